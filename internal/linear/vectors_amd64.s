#include "textflag.h"

// func axpy(a float32, x, y *float32, n int)
TEXT ·axpy(SB), NOSPLIT, $0-32
	VBROADCASTSS a+0(FP), Y0
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI
	MOVQ n+24(FP), CX

loop:
	VMULPS  0(SI), Y0, Y1
	VMULPS  32(SI), Y0, Y2
	VADDPS  0(DI), Y1, Y1
	VADDPS  32(DI), Y2, Y2
	VMOVUPS Y1, 0(DI)
	VMOVUPS Y2, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop
	VZEROUPPER
	RET
