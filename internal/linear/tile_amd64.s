#include "textflag.h"

// STEP adds to two registers of sums the products of one element of a row of a with eight elements of b.
#define STEP(row, at, low, high) \
	VBROADCASTSD at(row), Y10 \
	VMULPD       Y8, Y10, Y11 \
	VMULPD       Y9, Y10, Y12 \
	VADDPD       Y11, low, low \
	VADDPD       Y12, high, high

// func tile4(sums, a0, a1, a2, a3, b *float64, k int)
TEXT ·tile4(SB), NOSPLIT, $0-56
	MOVQ sums+0(FP), DI
	MOVQ a0+8(FP), R8
	MOVQ a1+16(FP), R9
	MOVQ a2+24(FP), R10
	MOVQ a3+32(FP), R11
	MOVQ b+40(FP), SI
	MOVQ k+48(FP), CX
	VMOVUPD 0(DI), Y0
	VMOVUPD 32(DI), Y1
	VMOVUPD 64(DI), Y2
	VMOVUPD 96(DI), Y3
	VMOVUPD 128(DI), Y4
	VMOVUPD 160(DI), Y5
	VMOVUPD 192(DI), Y6
	VMOVUPD 224(DI), Y7
	TESTQ CX, CX
	JLE  done

loop:
	VMOVUPD 0(SI), Y8
	VMOVUPD 32(SI), Y9
	STEP(R8, 0, Y0, Y1)
	STEP(R9, 0, Y2, Y3)
	STEP(R10, 0, Y4, Y5)
	STEP(R11, 0, Y6, Y7)
	ADDQ $64, SI
	ADDQ $8, R8
	ADDQ $8, R9
	ADDQ $8, R10
	ADDQ $8, R11
	DECQ CX
	JNZ  loop

done:
	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	VMOVUPD Y2, 64(DI)
	VMOVUPD Y3, 96(DI)
	VMOVUPD Y4, 128(DI)
	VMOVUPD Y5, 160(DI)
	VMOVUPD Y6, 192(DI)
	VMOVUPD Y7, 224(DI)
	VZEROUPPER
	RET

// WIDE adds to a register of sums the products of one element of a row of a with eight elements of b.
#define WIDE(row, sums) \
	VMULPD.BCST 0(row)(DX*8), Z8, Z9 \
	VADDPD      Z9, sums, sums

// func tile8(sums *[64]float64, a *[8]*float64, b *float64, k int)
TEXT ·tile8(SB), NOSPLIT, $0-32
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
	VMOVUPD 0(DI), Z0
	VMOVUPD 64(DI), Z1
	VMOVUPD 128(DI), Z2
	VMOVUPD 192(DI), Z3
	VMOVUPD 256(DI), Z4
	VMOVUPD 320(DI), Z5
	VMOVUPD 384(DI), Z6
	VMOVUPD 448(DI), Z7
	XORQ DX, DX
	CMPQ CX, DX
	JLE  done8

loop8:
	VMOVUPD (SI), Z8
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
	VMOVUPD Z0, 0(DI)
	VMOVUPD Z1, 64(DI)
	VMOVUPD Z2, 128(DI)
	VMOVUPD Z3, 192(DI)
	VMOVUPD Z4, 256(DI)
	VMOVUPD Z5, 320(DI)
	VMOVUPD Z6, 384(DI)
	VMOVUPD Z7, 448(DI)
	VZEROUPPER
	RET
