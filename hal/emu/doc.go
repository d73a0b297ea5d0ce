// Package emu is the CPU device: it parses the PTX that a GPU would get and executes it, a warp at a time, on 32-lane
// rows of registers. What it computes is the specification: exact rounding in every instruction, mma as k-ascending
// fused multiply-adds (of block-scaled operands: of value·scale, which is exact), approximate functions as the rounded
// float64 result of portable code.
//
//	Device    memory, modules, graphs (hal.Device)
//	program   a kernel decoded once: instructions with operands resolved to rows
//	block     a thread block in execution: warps, shared memory; resumable where a warp yields
//	Engine    what executes kernels: the interpreter, in portable Go the specification, or native code (internal/jit)
//	Violation what Options.Check finds: bounds, alignment, undefined reads, races, divergence, missing edges
//
// Divergence: a warp is a set of lane groups, each with its own pc; the group with the least pc runs, and groups that
// meet merge. In code whose loops branch backwards and whose joins lie below their branches, as codegen writes it,
// lanes reconverge at the immediate post-dominator.
package emu
