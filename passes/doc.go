// Package passes rewrites an ir.Graph step by step from the form in the model file to the form the code generator
// needs.
//
//	Pass      one step: its name, summary, places in the pipelines, ordering constraints with reasons, and numeric tolerance
//	Table     every pass, in the order in which pipelines first reach it
//	Pipeline  the passes that run for a precision, put together from the rows
//	Run       runs passes, verifies the graph after each, and shows it to an observer
//
// Each pass registers its row in a file of its own, which is all there is to adding one. They share match.go, a sweep
// over the nodes in topological order that visits each node after its operands were rewritten and keeps use counts
// exact, and pattern.go, which matches values by how they are computed.
package passes
