#include "textflag.h"
#include "neon_arm64.h"

// These kernels are written by hand beside the amd64 ones. avo generates amd64 alone, and one description of both
// would share little: NEON multiplies by an element of a register where AVX broadcasts from memory, addresses rows by
// post-increment where AVX indexes, and has twice the registers at half the width.

// ROW adds to four registers of sums the products of the element in a register with 64 bytes of b.
#define ROW(MUL, ADD, element, s0, s1, s2, s3) \
	MUL(element, 16, 24) \
	MUL(element, 17, 25) \
	MUL(element, 18, 26) \
	MUL(element, 19, 27) \
	ADD(24, s0, s0) \
	ADD(25, s1, s1) \
	ADD(26, s2, s2) \
	ADD(27, s3, s3)

// LOOP adds to the sums of four rows and 64 bytes of columns, in V0 to V15, the products of k elements, 1 or more, of
// the rows of a with those of b. LOAD loads an element of each row into V20 to V23.
#define LOOP(label, LOAD, MUL, ADD) \
label: \
	FLDPQ 32(R3), (F18, F19) \
	FLDPQ.P 64(R3), (F16, F17) \
	LOAD \
	ROW(MUL, ADD, 20, 0, 1, 2, 3) \
	ROW(MUL, ADD, 21, 4, 5, 6, 7) \
	ROW(MUL, ADD, 22, 8, 9, 10, 11) \
	ROW(MUL, ADD, 23, 12, 13, 14, 15) \
	SUBS $1, R4, R4 \
	BNE label

#define LOAD_D \
	FMOVD.P 8(R8), F20 \
	FMOVD.P 8(R9), F21 \
	FMOVD.P 8(R10), F22 \
	FMOVD.P 8(R11), F23

#define LOAD_S \
	FMOVS.P 4(R8), F20 \
	FMOVS.P 4(R9), F21 \
	FMOVS.P 4(R10), F22 \
	FMOVS.P 4(R11), F23

// LOAD_AT loads the elements at the next offset.
#define LOAD_AT \
	MOVW.P 4(R12), R13 \
	FMOVS (R8)(R13<<2), F20 \
	FMOVS (R9)(R13<<2), F21 \
	FMOVS (R10)(R13<<2), F22 \
	FMOVS (R11)(R13<<2), F23

#define DENSE

// OFFSETS begins at the first offset.
#define OFFSETS MOVD offsets+56(FP), R12

#define ROWS \
	LDP.P 16(R1), (R8, R9) \
	LDP.P 16(R1), (R10, R11)

// STORE stores sums and biases of a row of 16 columns.
#define STORE(s0, s1, s2, s3, f0, f1, f2, f3) \
	MOVD.P 8(R0), R8 \
	FADD_S4(16, s0, s0) \
	FADD_S4(17, s1, s1) \
	FADD_S4(18, s2, s2) \
	FADD_S4(19, s3, s3) \
	FSTPQ (f0, f1), 0(R8) \
	FSTPQ (f2, f3), 32(R8)

#define ZERO(v) VEOR v, v, v

// PRODUCTS is tile of f32 whose sums begin at zero and are stored where rows of the result lie, with a bias.
#define PRODUCTS(OPEN, LOAD) \
	MOVD to+0(FP), R0 \
	MOVD a+8(FP), R1 \
	MOVD rows+16(FP), R2 \
	MOVD bias+40(FP), R5 \
four: \
	MOVD b+24(FP), R3 \
	MOVD k+32(FP), R4 \
	ROWS \
	OPEN \
	ZERO(V0.B16) \
	ZERO(V1.B16) \
	ZERO(V2.B16) \
	ZERO(V3.B16) \
	ZERO(V4.B16) \
	ZERO(V5.B16) \
	ZERO(V6.B16) \
	ZERO(V7.B16) \
	ZERO(V8.B16) \
	ZERO(V9.B16) \
	ZERO(V10.B16) \
	ZERO(V11.B16) \
	ZERO(V12.B16) \
	ZERO(V13.B16) \
	ZERO(V14.B16) \
	ZERO(V15.B16) \
	LOOP(loop, LOAD, FMUL_S, FADD_S4) \
	FLDPQ 0(R5), (F16, F17) \
	FLDPQ 32(R5), (F18, F19) \
	STORE(0, 1, 2, 3, F0, F1, F2, F3) \
	STORE(4, 5, 6, 7, F4, F5, F6, F7) \
	STORE(8, 9, 10, 11, F8, F9, F10, F11) \
	STORE(12, 13, 14, 15, F12, F13, F14, F15) \
	SUBS $4, R2, R2 \
	BGT four \
	RET

// func tile(sums *[64]float64, a *[8]*float64, rows int, b *float64, k int)
//
// Of four rows at a time, as many times as there are rows.
TEXT ·tile(SB), NOSPLIT, $0-40
	MOVD sums+0(FP), R0
	MOVD a+8(FP), R1
	MOVD rows+16(FP), R2

four:
	MOVD  b+24(FP), R3
	MOVD  k+32(FP), R4
	ROWS
	FLDPQ 0(R0), (F0, F1)
	FLDPQ 32(R0), (F2, F3)
	FLDPQ 64(R0), (F4, F5)
	FLDPQ 96(R0), (F6, F7)
	FLDPQ 128(R0), (F8, F9)
	FLDPQ 160(R0), (F10, F11)
	FLDPQ 192(R0), (F12, F13)
	FLDPQ 224(R0), (F14, F15)
	LOOP(loop, LOAD_D, FMUL_D, FADD_D2)
	FSTPQ.P (F0, F1), 32(R0)
	FSTPQ.P (F2, F3), 32(R0)
	FSTPQ.P (F4, F5), 32(R0)
	FSTPQ.P (F6, F7), 32(R0)
	FSTPQ.P (F8, F9), 32(R0)
	FSTPQ.P (F10, F11), 32(R0)
	FSTPQ.P (F12, F13), 32(R0)
	FSTPQ.P (F14, F15), 32(R0)
	SUBS  $4, R2, R2
	BGT   four
	RET

// func tile32(to *[8]*float32, a *[8]*float32, rows int, b *float32, k int, bias *float32, columns uint32)
TEXT ·tile32(SB), NOSPLIT, $0-52
	PRODUCTS(DENSE, LOAD_S)

// func tile32at(to, a *[8]*float32, rows int, b *float32, k int, bias *float32, columns uint32, offsets *int32)
TEXT ·tile32at(SB), NOSPLIT, $0-64
	PRODUCTS(OFFSETS, LOAD_AT)
