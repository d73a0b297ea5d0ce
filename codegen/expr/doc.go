// Package expr is the language in which every kernel family's arithmetic is written: a hash-consed DAG of typed scalars
// over iteration variables, with loads, reductions and the scalar functions of the op table.
//
//	Builder  makes nodes; equal nodes are one node, integer arithmetic is simplified by ranges as it is built
//	Expr     a node: Pred, S32, S64, F32 or F64. Narrow element types exist only in Load and Store
//	Emitter  writes expressions into a ptx.Kernel, each once, loop invariants outside loops
//
// Every node may be evaluated speculatively: loads carry their own predicate, and nothing traps. That is why hoisting
// and common-subexpression reuse need no further analysis.
//
// Integer index arithmetic is kept as affine forms Σ cᵢ·aᵢ + c over atoms with known ranges; division and remainder by
// constants cancel against them, so that reshapes, slices, transposes and broadcasts become plain address arithmetic.
package expr
