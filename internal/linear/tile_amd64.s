#include "textflag.h"

// ROW4 adds to two registers of sums the products of one element of a row of a with 64 bytes of b.
#define ROW4(BROADCAST, MUL, ADD, element, low, high) \
	BROADCAST element, Y10 \
	MUL Y8, Y10, Y11 \
	MUL Y9, Y10, Y12 \
	ADD Y11, low, low \
	ADD Y12, high, high

// ROW8 is the same with one register of 512 bits.
#define ROW8(MUL, ADD, element, sums) \
	MUL.BCST element, Z8, Z9 \
	ADD Z9, sums, sums

// TILE adds to the sums of eight rows and 64 bytes of columns the products of k elements, 1 or more, of the rows of a with those of
// b: of four rows at a time, as many times as there are rows, or with registers of 512 bits of all at once. SEEK4 and SEEK8 set the
// registers AT4 and AT8 to where element DX of a row lies.
#define TILE(BROADCAST, MUL, ADD, SIZE, OPEN4, SEEK4, AT4, OPEN8, SEEK8, AT8) \
	MOVQ sums+0(FP), DI \
	MOVQ a+8(FP), BX \
	MOVQ rows+16(FP), AX \
	MOVQ b+24(FP), SI \
	MOVQ k+32(FP), CX \
	XORQ DX, DX \
	CMPB ·wide(SB), $0 \
	JNE eight \
four: \
	MOVQ 0(BX), R8 \
	MOVQ 8(BX), R9 \
	MOVQ 16(BX), R10 \
	MOVQ 24(BX), R11 \
	OPEN4 \
	VMOVUPS 0(DI), Y0 \
	VMOVUPS 32(DI), Y1 \
	VMOVUPS 64(DI), Y2 \
	VMOVUPS 96(DI), Y3 \
	VMOVUPS 128(DI), Y4 \
	VMOVUPS 160(DI), Y5 \
	VMOVUPS 192(DI), Y6 \
	VMOVUPS 224(DI), Y7 \
loop4: \
	SEEK4 \
	VMOVUPS 0(SI), Y8 \
	VMOVUPS 32(SI), Y9 \
	ROW4(BROADCAST, MUL, ADD, 0(R8)(AT4*SIZE), Y0, Y1) \
	ROW4(BROADCAST, MUL, ADD, 0(R9)(AT4*SIZE), Y2, Y3) \
	ROW4(BROADCAST, MUL, ADD, 0(R10)(AT4*SIZE), Y4, Y5) \
	ROW4(BROADCAST, MUL, ADD, 0(R11)(AT4*SIZE), Y6, Y7) \
	ADDQ $64, SI \
	INCQ DX \
	CMPQ DX, CX \
	JLT loop4 \
	VMOVUPS Y0, 0(DI) \
	VMOVUPS Y1, 32(DI) \
	VMOVUPS Y2, 64(DI) \
	VMOVUPS Y3, 96(DI) \
	VMOVUPS Y4, 128(DI) \
	VMOVUPS Y5, 160(DI) \
	VMOVUPS Y6, 192(DI) \
	VMOVUPS Y7, 224(DI) \
	MOVQ b+24(FP), SI \
	XORQ DX, DX \
	ADDQ $256, DI \
	ADDQ $32, BX \
	SUBQ $4, AX \
	JGT four \
	VZEROUPPER \
	RET \
eight: \
	MOVQ 0(BX), R8 \
	MOVQ 8(BX), R9 \
	MOVQ 16(BX), R10 \
	MOVQ 24(BX), R11 \
	MOVQ 32(BX), R12 \
	MOVQ 40(BX), R13 \
	MOVQ 48(BX), AX \
	MOVQ 56(BX), BX \
	VMOVUPS 0(DI), Z0 \
	VMOVUPS 64(DI), Z1 \
	VMOVUPS 128(DI), Z2 \
	VMOVUPS 192(DI), Z3 \
	VMOVUPS 256(DI), Z4 \
	VMOVUPS 320(DI), Z5 \
	VMOVUPS 384(DI), Z6 \
	VMOVUPS 448(DI), Z7 \
	OPEN8 \
loop8: \
	SEEK8 \
	VMOVUPS (SI), Z8 \
	ROW8(MUL, ADD, 0(R8)(AT8*SIZE), Z0) \
	ROW8(MUL, ADD, 0(R9)(AT8*SIZE), Z1) \
	ROW8(MUL, ADD, 0(R10)(AT8*SIZE), Z2) \
	ROW8(MUL, ADD, 0(R11)(AT8*SIZE), Z3) \
	ROW8(MUL, ADD, 0(R12)(AT8*SIZE), Z4) \
	ROW8(MUL, ADD, 0(R13)(AT8*SIZE), Z5) \
	ROW8(MUL, ADD, 0(AX)(AT8*SIZE), Z6) \
	ROW8(MUL, ADD, 0(BX)(AT8*SIZE), Z7) \
	ADDQ $64, SI \
	INCQ DX \
	CMPQ DX, CX \
	JLT loop8 \
	MOVQ sums+0(FP), DI \
	VMOVUPS Z0, 0(DI) \
	VMOVUPS Z1, 64(DI) \
	VMOVUPS Z2, 128(DI) \
	VMOVUPS Z3, 192(DI) \
	VMOVUPS Z4, 256(DI) \
	VMOVUPS Z5, 320(DI) \
	VMOVUPS Z6, 384(DI) \
	VMOVUPS Z7, 448(DI) \
	VZEROUPPER \
	RET

#define DENSE
#define OFFSETS4 MOVQ offsets+40(FP), R12
#define OFFSET4 MOVLQSX (R12)(DX*4), R13
#define OFFSETS8 MOVQ offsets+40(FP), DI
#define OFFSET8 MOVLQSX (DI)(DX*4), R15

// func tile(sums *[64]float64, a *[8]*float64, rows int, b *float64, k int)
TEXT ·tile(SB), NOSPLIT, $0-40
	TILE(VBROADCASTSD, VMULPD, VADDPD, 8, DENSE, DENSE, DX, DENSE, DENSE, DX)

// func tile32(sums *[128]float32, a *[8]*float32, rows int, b *float32, k int)
TEXT ·tile32(SB), NOSPLIT, $0-40
	TILE(VBROADCASTSS, VMULPS, VADDPS, 4, DENSE, DENSE, DX, DENSE, DENSE, DX)

// func tile32at(sums *[128]float32, a *[8]*float32, rows int, b *float32, k int, offsets *int32)
TEXT ·tile32at(SB), NOSPLIT, $0-48
	TILE(VBROADCASTSS, VMULPS, VADDPS, 4, OFFSETS4, OFFSET4, R13, OFFSETS8, OFFSET8, R15)
