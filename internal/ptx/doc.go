// Package ptx is a typed model of PTX modules: the instruction table with the meaning of each row, a builder that checks
// every instruction against it, a printer and a parser. It is a leaf: it knows nothing about what kernels are for, or about devices.
//
//	Def      a row of the instruction table, expanded: full opcode, operands, least PTX version, needed feature
//	Eval     what it computes: a function of a warp's registers, made of one of a lane's values (lanes.go)
//	Action   what it does beyond that: memory, order, control (effect.go)
//	Module   version, target, kernels
//	Kernel   parameters, register counts, body; built by I, If, Label …
//	Instr    one instruction: optional guard, Def, operands
//
// The table has no arithmetic without explicit rounding (add.f32): ptxas would contract it.
package ptx
