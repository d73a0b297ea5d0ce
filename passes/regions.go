package passes

import "github.com/spark-compile/spark-compile/internal/precision"

// regionTable holds the passes that make regions and choose precisions; they follow semanticTable.
func regionTable() []*Pass {
	return []*Pass{
		{Name: "segment", Summary: "M = 1 linear layers of equal depth become one SegmentedMatVec, their transposes, biases and activations with them", Run: segment},
		{Name: "fuse", Summary: "every node becomes part of a Region: contraction, window, loop or view", Run: fuse,
			After: map[string]string{"segment": "it looks for MatMul and Conv nodes, which fuse hides in regions"}},
		{Name: "stack", Summary: "isomorphic regions of equal depth become one region with members", Run: stack,
			After: map[string]string{"fuse": "it compares regions"}},
		{Name: "views", Summary: "view regions in their plainest form; what cannot alias becomes a loop", Run: views,
			After: map[string]string{"fuse": "it works on view regions", "stack": "members are views of the stacked value, and Concats of members vanish"}},
		{Name: "narrow", Summary: "values between regions and weights become f16, bf16 or what a calibration chose, accumulated in f32", Run: narrow, Tolerance: 2e-3,
			After: map[string]string{"fuse": "it places Casts at the borders of regions", "views": "a view has the type of what it views, and a loop has not"}},
	}
}

// regionPipeline says which of them run at a precision, after the semantic ones.
func regionPipeline(p *precision.Precision) []string {
	switch p.Between {
	case "":
		return []string{"fuse", "views"}
	case "f32":
		return []string{"segment", "fuse", "stack", "views"}
	}
	return []string{"segment", "fuse", "stack", "views", "narrow"}
}
