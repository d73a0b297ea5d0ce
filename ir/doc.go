// Package ir holds the compiler's intermediate representation: a typed dataflow graph of static shapes.
//
//	Graph    inputs, outputs and nodes in topological order; constants hang on their uses
//	Value    one edge: a graph input, a constant (Const) or a node's output (Def, Index)
//	Node     an Op applied to values, with attributes; a Region node carries a fused subgraph as Body
//	Op       a row of the op table: attributes, shape rule, meaning, and the facts that passes and kernels ask for
//	Role     what a node may be within a region
//	Expansion  the ops that a composite op stands for
//	Type     element type and static shape
//	Tensor   constant data, as bytes
//	Array    a tensor under evaluation, in float64 or int64
//
// The reference evaluator (Evaluate) is the meaning of the IR: slow, obvious, float64 accumulation.
// Verify checks every invariant and runs after each pass. Print and Parse are inverse to each other.
package ir
