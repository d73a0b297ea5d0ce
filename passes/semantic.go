package passes

import "slices"

// semanticTable holds the passes that work on ops, before regions are made.
func semanticTable() []*Pass {
	return []*Pass{
		&widenPass, &recogniseQuantised, &foldPass, &dcePass, &simplifyPass, &csePass,
		&expandRecurrent, &einsumPass,
		&recogniseGelu, &recogniseSilu, &recogniseSoftmax, &recogniseLayerNorm, &recogniseAttention,
		&foldBatchNorm, &mergeBranches, &foldScale, &layoutPass, &gemmPass,
	}
}

// semanticPipelines says which of them run at a precision. At precision "file" those do that leave every rounding where
// the file has it, and those that take apart what no kernel computes in one go.
func semanticPipelines() map[string][]string {
	clean := []string{"fold", "simplify", "cse", "dce"}
	wide := slices.Concat(
		[]string{"widen"}, clean,
		[]string{"recognise-quantised"},
		[]string{"expand-recurrent", "einsum"}, clean,
		[]string{
			"recognise-gelu", "recognise-silu", "recognise-softmax", "recognise-layernorm", "recognise-attention",
			"fold-batchnorm", "merge-branches", "fold-scale", "layout",
		}, clean,
		// After layout the constants of attention blocks meet their weights, and a norm over channels its last axis.
		[]string{"recognise-layernorm", "merge-branches", "fold-scale", "gemm"}, clean,
	)
	return map[string][]string{
		PrecisionFile:  slices.Concat(clean, []string{"expand-recurrent", "einsum", "layout"}, clean),
		PrecisionFP32:  wide,
		PrecisionFP16:  wide,
		PrecisionBF16:  wide,
		PrecisionFP8:   wide,
		PrecisionNVFP4: wide,
	}
}
