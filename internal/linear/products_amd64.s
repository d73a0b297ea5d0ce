#include "textflag.h"

// STEP adds to two registers of sums the products of one element of a row of a with sixteen elements of b.
#define STEP(row, low, high) \
	VBROADCASTSS (row)(DX*4), Y10 \
	VMULPS       Y8, Y10, Y11 \
	VMULPS       Y9, Y10, Y12 \
	VADDPS       Y11, low, low \
	VADDPS       Y12, high, high

// func product4(sums, a0, a1, a2, a3, b *float32, k int)
TEXT ·product4(SB), NOSPLIT, $0-56
	MOVQ sums+0(FP), DI
	MOVQ a0+8(FP), R8
	MOVQ a1+16(FP), R9
	MOVQ a2+24(FP), R10
	MOVQ a3+32(FP), R11
	MOVQ b+40(FP), SI
	MOVQ k+48(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	XORQ DX, DX
	CMPQ CX, DX
	JLE  done

loop:
	VMOVUPS 0(SI), Y8
	VMOVUPS 32(SI), Y9
	STEP(R8, Y0, Y1)
	STEP(R9, Y2, Y3)
	STEP(R10, Y4, Y5)
	STEP(R11, Y6, Y7)
	ADDQ $64, SI
	INCQ DX
	CMPQ DX, CX
	JLT  loop

done:
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VZEROUPPER
	RET

// WIDE adds to a register of sums the products of one element of a row of a with sixteen elements of b.
#define WIDE(row, sums) \
	VMULPS.BCST 0(row)(DX*4), Z8, Z9 \
	VADDPS      Z9, sums, sums

// func product8(sums *[128]float32, a *[8]*float32, b *float32, k int)
TEXT ·product8(SB), NOSPLIT, $0-32
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), CX
	MOVQ b+16(FP), SI
	MOVQ 0(CX), R8
	MOVQ 8(CX), R9
	MOVQ 16(CX), R10
	MOVQ 24(CX), R11
	MOVQ 32(CX), R12
	MOVQ 40(CX), R13
	MOVQ 48(CX), AX
	MOVQ 56(CX), BX
	MOVQ k+24(FP), CX
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3
	VPXORQ Z4, Z4, Z4
	VPXORQ Z5, Z5, Z5
	VPXORQ Z6, Z6, Z6
	VPXORQ Z7, Z7, Z7
	XORQ DX, DX
	CMPQ CX, DX
	JLE  done8

loop8:
	VMOVUPS (SI), Z8
	WIDE(R8, Z0)
	WIDE(R9, Z1)
	WIDE(R10, Z2)
	WIDE(R11, Z3)
	WIDE(R12, Z4)
	WIDE(R13, Z5)
	WIDE(AX, Z6)
	WIDE(BX, Z7)
	ADDQ $64, SI
	INCQ DX
	CMPQ DX, CX
	JLT  loop8

done8:
	VMOVUPS Z0, 0(DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, 256(DI)
	VMOVUPS Z5, 320(DI)
	VMOVUPS Z6, 384(DI)
	VMOVUPS Z7, 448(DI)
	VZEROUPPER
	RET
