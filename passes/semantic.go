package passes

// semanticTable holds the passes that work on ops, before regions are made.
func semanticTable() []*Pass {
	return []*Pass{}
}

// semanticPipelines says which of them run at a precision.
func semanticPipelines() map[string][]string {
	return map[string][]string{
		PrecisionFile: {},
		PrecisionFP32: {},
		PrecisionFP16: {},
	}
}
