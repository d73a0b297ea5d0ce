#include "textflag.h"

// STEP is the next state of eight generators, Z0 its lower and Z1 its upper halves: times a number, whose lower half is ML with
// its upper 32 bits in MLH and whose upper half is MH, plus one of IL and IH. Z2 to Z9 are clobbered.
#define STEP(ML, MLH, MH, IL, IH) \
	VPSRLQ   $32, Z0, Z2       \
	VPMULUDQ ML, Z0, Z3        \
	VPMULUDQ MLH, Z0, Z4       \
	VPMULUDQ ML, Z2, Z5        \
	VPMULUDQ MLH, Z2, Z6       \
	VPMULLQ  ML, Z1, Z7        \
	VPMULLQ  MH, Z0, Z8        \
	VPSRLQ   $32, Z3, Z9       \
	VPADDQ   Z9, Z5, Z5        \
	VPANDQ   Z21, Z5, Z9       \
	VPADDQ   Z9, Z4, Z4        \
	VPSRLQ   $32, Z5, Z5       \
	VPSRLQ   $32, Z4, Z9       \
	VPADDQ   Z5, Z6, Z6        \
	VPADDQ   Z9, Z6, Z6        \
	VPADDQ   Z7, Z8, Z7        \
	VPADDQ   Z7, Z6, Z1        \
	VPMULLQ  ML, Z0, Z0        \
	VPADDQ   IL, Z0, Z0        \
	VPADDQ   IH, Z1, Z1        \
	VPCMPUQ  $1, IL, Z0, K1    \
	VPADDQ   Z23, Z1, K1, Z1

// func normals8(lo, hi *[8]uint64, constants *[14]uint64, to *float64, groups int)
TEXT ·normals8(SB), NOSPLIT, $0-40
	MOVQ         lo+0(FP), SI
	MOVQ         hi+8(FP), DX
	MOVQ         constants+16(FP), BX
	MOVQ         to+24(FP), DI
	MOVQ         groups+32(FP), CX
	VMOVDQU64    (SI), Z0
	VMOVDQU64    (DX), Z1
	VPBROADCASTQ 0(BX), Z16
	VPSRLQ       $32, Z16, Z17
	VPBROADCASTQ 8(BX), Z18
	VPBROADCASTQ 16(BX), Z19
	VPBROADCASTQ 24(BX), Z20
	VPBROADCASTQ 32(BX), Z26
	VPSRLQ       $32, Z26, Z27
	VPBROADCASTQ 40(BX), Z28
	VPBROADCASTQ 48(BX), Z29
	VPBROADCASTQ 56(BX), Z30
	VPBROADCASTQ 64(BX), Z21
	VPBROADCASTQ 72(BX), Z22
	VPBROADCASTQ 80(BX), Z23
	VPBROADCASTQ 88(BX), Z24
	VPBROADCASTQ 96(BX), Z25
	VPBROADCASTQ 104(BX), Z31

group:
	VMOVAPD Z31, Z10
	MOVQ    $12, AX

draw:
	STEP(Z16, Z17, Z18, Z19, Z20)
	VPSRLQ     $32, Z1, Z2
	VPXORQ     Z1, Z2, Z2
	VPMULLQ    Z22, Z2, Z2
	VPSRLQ     $48, Z2, Z3
	VPXORQ     Z3, Z2, Z2
	VPORQ      Z23, Z0, Z3
	VPMULLQ    Z3, Z2, Z2
	VPANDQ     Z24, Z2, Z2
	VCVTUQQ2PD Z2, Z2
	VMULPD     Z25, Z2, Z2
	VADDPD     Z2, Z10, Z10
	DECQ       AX
	JNZ        draw

	VMOVUPD Z10, (DI)
	ADDQ    $64, DI
	STEP(Z26, Z27, Z28, Z29, Z30)
	DECQ    CX
	JNZ     group

	VMOVDQU64 Z0, (SI)
	VMOVDQU64 Z1, (DX)
	VZEROUPPER
	RET
