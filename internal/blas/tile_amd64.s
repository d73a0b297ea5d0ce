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

#define DENSE

// LOOP4 adds to the sums of four rows and 64 bytes of columns, in registers, the products of k elements, 1 or more, of the rows of a
// with those of b. SEEK4 sets the register AT4 to where element DX of a row lies.
#define LOOP4(label, BROADCAST, MUL, ADD, SIZE, SEEK4, AT4) \
label: \
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
	JLT label

// LOOP8 is the same of eight rows, with registers of 512 bits.
#define LOOP8(label, MUL, ADD, SIZE, SEEK8, AT8) \
label: \
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
	JLT label

#define ROWS4 \
	MOVQ 0(BX), R8 \
	MOVQ 8(BX), R9 \
	MOVQ 16(BX), R10 \
	MOVQ 24(BX), R11

#define ROWS8 \
	ROWS4 \
	MOVQ 32(BX), R12 \
	MOVQ 40(BX), R13 \
	MOVQ 48(BX), AX \
	MOVQ 56(BX), BX

// STORE4 stores sums and biases of a row of 16 columns, STORE8 those of the columns that a mask selects.
#define STORE4(row, low, high) \
	MOVQ row(DI), R8 \
	VADDPS 0(SI), low, low \
	VADDPS 32(SI), high, high \
	VMOVUPS low, 0(R8) \
	VMOVUPS high, 32(R8)

#define STORE8(row, sums) \
	MOVQ row(DI), R8 \
	VADDPS Z8, sums, sums \
	VMOVUPS sums, K1, (R8)

// PRODUCTS is tile of f32 whose sums begin at zero and are stored where rows of the result lie, with a bias.
#define PRODUCTS(OPEN4, SEEK4, AT4, OPEN8, SEEK8, AT8) \
	MOVQ to+0(FP), DI \
	MOVQ a+8(FP), BX \
	MOVQ rows+16(FP), AX \
	MOVQ b+24(FP), SI \
	MOVQ k+32(FP), CX \
	XORQ DX, DX \
	CMPB ·wide(SB), $0 \
	JNE eight \
four: \
	ROWS4 \
	OPEN4 \
	VXORPS Y0, Y0, Y0 \
	VXORPS Y1, Y1, Y1 \
	VXORPS Y2, Y2, Y2 \
	VXORPS Y3, Y3, Y3 \
	VXORPS Y4, Y4, Y4 \
	VXORPS Y5, Y5, Y5 \
	VXORPS Y6, Y6, Y6 \
	VXORPS Y7, Y7, Y7 \
	LOOP4(loop4, VBROADCASTSS, VMULPS, VADDPS, 4, SEEK4, AT4) \
	MOVQ bias+40(FP), SI \
	STORE4(0, Y0, Y1) \
	STORE4(8, Y2, Y3) \
	STORE4(16, Y4, Y5) \
	STORE4(24, Y6, Y7) \
	MOVQ b+24(FP), SI \
	XORQ DX, DX \
	ADDQ $32, DI \
	ADDQ $32, BX \
	SUBQ $4, AX \
	JGT four \
	VZEROUPPER \
	RET \
eight: \
	ROWS8 \
	VXORPS X0, X0, X0 \
	VXORPS X1, X1, X1 \
	VXORPS X2, X2, X2 \
	VXORPS X3, X3, X3 \
	VXORPS X4, X4, X4 \
	VXORPS X5, X5, X5 \
	VXORPS X6, X6, X6 \
	VXORPS X7, X7, X7 \
	OPEN8 \
	LOOP8(loop8, VMULPS, VADDPS, 4, SEEK8, AT8) \
	MOVQ to+0(FP), DI \
	MOVQ bias+40(FP), SI \
	MOVL columns+48(FP), AX \
	KMOVW AX, K1 \
	VMOVUPS (SI), Z8 \
	STORE8(0, Z0) \
	STORE8(8, Z1) \
	STORE8(16, Z2) \
	STORE8(24, Z3) \
	STORE8(32, Z4) \
	STORE8(40, Z5) \
	STORE8(48, Z6) \
	STORE8(56, Z7) \
	VZEROUPPER \
	RET

#define OFFSETS4 MOVQ offsets+56(FP), R12
#define OFFSET4 MOVLQSX (R12)(DX*4), R13
#define OFFSETS8 MOVQ offsets+56(FP), DI
#define OFFSET8 MOVLQSX (DI)(DX*4), R15

// func tile(sums *[64]float64, a *[8]*float64, rows int, b *float64, k int)
//
// Of four rows at a time, as many times as there are rows, or with registers of 512 bits of all at once.
TEXT ·tile(SB), NOSPLIT, $0-40
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), BX
	MOVQ rows+16(FP), AX
	MOVQ b+24(FP), SI
	MOVQ k+32(FP), CX
	XORQ DX, DX
	CMPB ·wide(SB), $0
	JNE  eight

four:
	ROWS4
	VMOVUPS 0(DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	LOOP4(loop4, VBROADCASTSD, VMULPD, VADDPD, 8, DENSE, DX)
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	MOVQ b+24(FP), SI
	XORQ DX, DX
	ADDQ $256, DI
	ADDQ $32, BX
	SUBQ $4, AX
	JGT  four
	VZEROUPPER
	RET

eight:
	ROWS8
	VMOVUPS 0(DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS 256(DI), Z4
	VMOVUPS 320(DI), Z5
	VMOVUPS 384(DI), Z6
	VMOVUPS 448(DI), Z7
	LOOP8(loop8, VMULPD, VADDPD, 8, DENSE, DX)
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

// func tile32(to *[8]*float32, a *[8]*float32, rows int, b *float32, k int, bias *float32, columns uint32)
TEXT ·tile32(SB), NOSPLIT, $0-52
	PRODUCTS(DENSE, DENSE, DX, DENSE, DENSE, DX)

// func tile32at(to *[8]*float32, a *[8]*float32, rows int, b *float32, k int, bias *float32, columns uint32, offsets *int32)
TEXT ·tile32at(SB), NOSPLIT, $0-64
	PRODUCTS(OFFSETS4, OFFSET4, R13, OFFSETS8, OFFSET8, R15)
