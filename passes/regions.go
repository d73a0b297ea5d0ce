package passes

import "github.com/spark-compile/spark-compile/internal/precision"

// regionTable lists the passes that make regions and choose precisions; they follow semanticTable.
func regionTable() []*Pass {
	return []*Pass{
		{Name: "segment", Summary: "merge M = 1 linear layers of equal depth, with their transposes, biases and activations, into one SegmentedMatVec", Run: segment},
		{Name: "fuse", Summary: "group all nodes into regions: contraction, window, loop or view", Run: fuse,
			After: map[string]string{"segment": "segment looks for MatMul and Conv nodes, which fuse moves into regions"}},
		{Name: "stack", Summary: "merge isomorphic regions of equal depth into one region with members", Run: stack,
			After: map[string]string{"fuse": "stack compares regions"}},
		{Name: "views", Summary: "simplify view regions; those that cannot alias their operands become loops", Run: views,
			After: map[string]string{"fuse": "views rewrites view regions", "stack": "stack makes members views of the stacked value and removes Concats of members"}},
		{Name: "narrow", Summary: "store weights and the values between regions in f16, bf16 or the types that calibration chose; accumulate in f32", Run: narrow, Tolerance: 2e-3,
			After: map[string]string{"fuse": "narrow sets the types at region boundaries", "views": "a view must have its operand's type; a loop need not"}},
	}
}

// regionPipeline lists the passes that run for a precision after the semantic ones.
func regionPipeline(p *precision.Precision) []string {
	switch p.Between {
	case "":
		return []string{"fuse", "views"}
	case "f32":
		return []string{"segment", "fuse", "stack", "views"}
	}
	return []string{"segment", "fuse", "stack", "views", "narrow"}
}
