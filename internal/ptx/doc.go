// Package ptx is a typed model of PTX modules: the instruction table, a builder that checks every instruction against
// it, a printer and a parser. It is a leaf: it knows nothing of kernels' purposes or of devices.
//
//	Def      a row of the instruction table, expanded: full opcode, operand kinds, least PTX version and target
//	Module   version, target, kernels
//	Kernel   parameters, register counts, body; built by I, If, Label …
//	Instr    one instruction: optional guard, Def, operands
//
// The table has no arithmetic without explicit rounding (add.f32): ptxas would contract it.
package ptx
