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

// func magnitude(x *float32, n int) uint32
TEXT ·magnitude(SB), NOSPLIT, $0-20
	MOVQ     x+0(FP), SI
	MOVQ     n+8(FP), CX
	VPCMPEQD Y0, Y0, Y0
	VPSRLD   $1, Y0, Y0
	VPXOR    Y1, Y1, Y1
	VPXOR    Y2, Y2, Y2

loop:
	VPAND   0(SI), Y0, Y3
	VPAND   32(SI), Y0, Y4
	VPMAXUD Y3, Y1, Y1
	VPMAXUD Y4, Y2, Y2
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loop

	VPMAXUD      Y2, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VPMAXUD      X2, X1, X1
	VPSHUFD      $0x4e, X1, X2
	VPMAXUD      X2, X1, X1
	VPSHUFD      $0xb1, X1, X2
	VPMAXUD      X2, X1, X1
	VMOVD        X1, AX
	MOVL         AX, ret+16(FP)
	VZEROUPPER
	RET
