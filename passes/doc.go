// Package passes rewrites an ir.Graph step by step from what the file says to what the code generator wants.
//
//	Pass      one step: a name, a summary, what must come before it and why, and how far results may move
//	Table     every pass, in the order of the default pipelines
//	Pipeline  which passes run at a precision
//	Run       runs them, verifies the graph after each and reports it to an observer
//
// Each pass is a file of its own. match.go is what they share: one sweep over the nodes in topological order that sees
// every node after its operands were rewritten, with exact use counts.
package passes
