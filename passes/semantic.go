package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
)

// semanticTable lists the passes that work on ops, before there are regions.
func semanticTable() []*Pass {
	return []*Pass{
		&widenPass, &recogniseQuantised, &foldPass, &dcePass, &simplifyPass, &csePass,
		&expandPass,
		&recogniseGelu, &recogniseSilu, &recogniseSoftmax, &recogniseLayerNorm, &recogniseAttention,
		&foldBatchNorm, &mergeBranches, &foldScale, &layoutPass, &gemmPass,
	}
}

// semanticPipeline lists the passes that run for a precision. Where values stay as the file has them, those do that leave every
// rounding in its place, and those that take apart what no kernel computes in one go.
func semanticPipeline(p *precision.Precision) []string {
	clean := []string{"fold", "simplify", "cse", "dce"}
	if p.Between == "" {
		return slices.Concat(clean, []string{"expand", "layout"}, clean)
	}
	return slices.Concat(
		[]string{"widen"}, clean,
		[]string{"recognise-quantised"},
		[]string{"expand"}, clean,
		[]string{
			"recognise-gelu", "recognise-silu", "recognise-softmax", "recognise-layernorm", "recognise-attention",
			"fold-batchnorm", "merge-branches", "fold-scale", "layout",
		}, clean,
		// After layout the constants of attention blocks meet their weights, and a norm over channels its last axis.
		[]string{"recognise-layernorm", "merge-branches", "fold-scale", "gemm"}, clean,
	)
}
