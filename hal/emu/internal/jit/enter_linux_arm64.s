#include "textflag.h"

// func enter(x *Context, code uintptr)
TEXT ·enter(SB), 0, $256-16
	MOVD x+0(FP), R0
	MOVD code+8(FP), R16
	CALL (R16)
	RET

// func synchronise(start, size uintptr)
TEXT ·synchronise(SB), NOSPLIT, $0-16
	MOVD start+0(FP), R0
	MOVD size+8(FP), R1
	ADD  R0, R1, R1
	MRS  CTR_EL0, R2
	MOVD $4, R5

	// Data cache: lines of 4 << CTR_EL0[19:16] bytes.
	UBFX $16, R2, $4, R3
	LSL  R3, R5, R3
	SUB  $1, R3, R4
	BIC  R4, R0, R6

clean:
	WORD $0xd50b7b26 // dc cvau, x6
	ADD  R3, R6, R6
	CMP  R1, R6
	BLO  clean
	DSB  $0xb        // inner shareable

	// Instruction cache: lines of 4 << CTR_EL0[3:0] bytes.
	UBFX $0, R2, $4, R3
	LSL  R3, R5, R3
	SUB  $1, R3, R4
	BIC  R4, R0, R6

invalidate:
	WORD $0xd50b7526 // ic ivau, x6
	ADD  R3, R6, R6
	CMP  R1, R6
	BLO  invalidate
	DSB  $0xb
	ISB  $0xf
	RET
