// Package passes rewrites an ir.Graph step by step from the form in the model file to the form the code generator needs.
//
//	Pass      one step: its name, summary, ordering constraints with reasons, and numeric tolerance
//	Table     every pass, in the order of the default pipelines
//	Pipeline  the passes that run for a precision
//	Run       runs passes, verifies the graph after each, and shows it to an observer
//
// Each pass has its own file. They share match.go, a sweep over the nodes in topological order that visits each node after
// its operands were rewritten and keeps use counts exact, and pattern.go, which matches values by how they are computed.
package passes
