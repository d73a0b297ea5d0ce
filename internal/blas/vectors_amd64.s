#include "textflag.h"

// ROUND rounds Y7, saturated, to the nearest number into Y9; Y8 is clobbered.
#define ROUND \
	VMINPS Y2, Y7, Y9 \
	VMAXPS Y3, Y9, Y9 \
	VANDPS Y4, Y9, Y8 \
	VPMAXUD Y5, Y8, Y8 \
	VPADDD Y6, Y8, Y8 \
	VADDPS Y8, Y9, Y9 \
	VSUBPS Y8, Y9, Y9

#define ROUNDING \
	MOVQ r+0(FP), DI \
	MOVQ x+8(FP), SI \
	MOVQ n+16(FP), CX \
	VBROADCASTSS 0(DI), Y0 \
	VBROADCASTSS 4(DI), Y1 \
	VBROADCASTSS 8(DI), Y2 \
	VBROADCASTSS 12(DI), Y3 \
	VBROADCASTSS 16(DI), Y4 \
	VBROADCASTSS 20(DI), Y5 \
	VBROADCASTSS 24(DI), Y6

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

// func positive(to, from *float32, n int)
TEXT ·positive(SB), NOSPLIT, $0-24
	MOVQ   to+0(FP), DI
	MOVQ   from+8(FP), SI
	MOVQ   n+16(FP), CX
	VXORPS Y0, Y0, Y0

loop:
	VMAXPS  0(SI), Y0, Y1  // of NaN, or of two zeros, the one in memory
	VMAXPS  32(SI), Y0, Y2
	VADDPS  Y0, Y1, Y1
	VADDPS  Y0, Y2, Y2
	VMOVUPS Y1, 0(DI)
	VMOVUPS Y2, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
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

// func requantise(r *Rounding, x *float32, n int)
TEXT ·requantise(SB), NOSPLIT, $0-24
	ROUNDING

loop:
	VMULPS 0(SI), Y0, Y7
	ROUND
	VMULPS  Y1, Y9, Y9
	VMOVUPS Y9, 0(SI)
	ADDQ    $32, SI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// func requantise2(r *Rounding, x *float32, n int)
TEXT ·requantise2(SB), NOSPLIT, $0-24
	ROUNDING

loop:
	VMULPS  0(SI), Y0, Y7
	ROUND
	VMOVAPS Y9, Y10
	VSUBPS  Y9, Y7, Y7
	ROUND
	VADDPS  Y9, Y10, Y9
	VMULPS  Y1, Y9, Y9
	VMOVUPS Y9, 0(SI)
	ADDQ    $32, SI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET
