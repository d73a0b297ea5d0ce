// Package ir holds the compiler's intermediate representation: a typed dataflow graph of static shapes.
//
//	Graph    inputs, outputs and nodes in topological order; constants belong to the graph through their uses
//	Value    one edge: a graph input, a constant (Const) or a node's output (Def, Index)
//	Node     an Op applied to values, with attributes; a Region node carries a fused subgraph as Body
//	Op       a row of the op table: attributes, shape rule, meaning, and the properties that passes and kernels query
//	Role     the part that a node may play in a region
//	Expansion the ops that a composite op expands to
//	Type     element type and static shape
//	Tensor   constant data, as bytes
//	Array    a tensor under evaluation, in float64 or int64
//
// The reference evaluator (Evaluate) defines the IR's semantics: simple rather than fast, accumulating in float64.
// Verify checks all invariants after each pass. Parse is the inverse of Print.
package ir
