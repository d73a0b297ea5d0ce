package passes

// regionTable holds the passes that make regions and choose precisions; they follow semanticTable.
func regionTable() []*Pass { return nil }

// regionPipeline says which of them run at a precision, after the semantic ones.
func regionPipeline(precision string) []string { return nil }
