// Package jit translates decoded PTX into native code, for amd64 with AVX2 or AVX-512 and for arm64 with NEON, that
// computes on the interpreter's own rows: a warp's registers stay in memory as 32 lanes each, and native code may stop
// before any instruction, leaving exactly the state that the interpreter would have there.
//
// That is what makes it small. An instruction without a native form, a divergent branch, a barrier, an address that
// fails its check: the code returns with the pc, the interpreter executes that one instruction (or reports the
// violation), and native code is re-entered after it. A kernel is compiled twice: for warps whose 32 lanes run
// together, and, when one first needs it, for warps with inactive lanes, where every result is blended by the mask of
// the running ones.
//
// With AVX-512, instructions that compute on rows lane by lane are emitted a vector of lanes at a time, as far as
// they follow each other (a run), with loads of vectors between them: rows are in registers meanwhile, and are read
// once and written once.
//
// Forms of instructions are written once, for vectors of 256 bits in the terms of AVX2. On arm64 such a vector is a pair
// of NEON's registers, and most of AVX2's instructions are two of NEON's; what would take many more has a form of its own
// in neon_forms.go. testdata/instructions.txt counts both. Every processor computes the same bits.
//
// Compiled for steps, each instruction that computes on registers alone is code of its own, which the interpreter
// calls when it gets there.
//
//	Inst     an instruction, its operands rows
//	Code     a kernel's code; Run enters it, or Step
//	Context  a warp's state as native code sees it
//	machine  what the emitter needs of an assembler; x86 encodes VEX (AVX2) and EVEX (AVX-512), aarch64 A64 with NEON
//	emitter  instruction by instruction into code; native holds the forms by opcode, except for memory
//	likely   examples of addresses, by which code is arranged
//	base     an address that loads of a run begin from, and the way in which lanes load there
//	run      instructions that are emitted a vector of lanes at a time, and what registers hold of rows in them
//	sequence mma that follow each other, and what is kept of their operands
//	element  a format of matrix elements and how a word of them is widened; product, an mma of two such formats
//
// Code memory is never writable and executable at the same time.
package jit
