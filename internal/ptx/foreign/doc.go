// Package foreign rewrites PTX of other compilers, as Triton and nvcc spell it, into the dialect of package ptx, whose parser takes no
// other. What an instruction means stays the table's: the rewriter renames registers and shared variables, drops what does not change
// results, and writes an instruction that the table lacks as several that together are the same.
//
//	Rewrite  a module's text → text for ptx.Parse, with every statement on the line where it was, and what a launch must know
//	Error    the line that cannot be rewritten, and why
//
//	rewrite.go      directives, kernels, scopes
//	statement.go    a statement's guard, opcode and operands; how operands are renamed
//	instruction.go  instructions whose spelling differs
//	sequence.go     instructions that become several
//
// Two things are not as the hardware has them. Instructions that are approximate (div.full, sqrt.approx, ex2.approx …) give the
// rounded exact result, and .ftz flushes no subnormal number.
package foreign
