#include "textflag.h"
#include "neon_arm64.h"

// WIDEN converts the eight f32 in V16 and V17 to float64 in V20 to V23, WIDEN2 those in V18 and V19 in V24 to V27.
#define WIDEN \
	FCVTL(16, 20) \
	FCVTL2(16, 21) \
	FCVTL(17, 22) \
	FCVTL2(17, 23)

#define WIDEN2 \
	FCVTL(18, 24) \
	FCVTL2(18, 25) \
	FCVTL(19, 26) \
	FCVTL2(19, 27)

// SUBTRACT subtracts the second eight from the first.
#define SUBTRACT \
	FSUB_D2(24, 20, 20) \
	FSUB_D2(25, 21, 21) \
	FSUB_D2(26, 22, 22) \
	FSUB_D2(27, 23, 23)

// ACCUMULATE adds the first eight to V0 to V3.
#define ACCUMULATE \
	FADD_D2(20, 0, 0) \
	FADD_D2(21, 1, 1) \
	FADD_D2(22, 2, 2) \
	FADD_D2(23, 3, 3)

// func squares(d, s *[8]float64, x, y *float32, n int)
TEXT ·squares(SB), NOSPLIT, $0-40
	MOVD x+16(FP), R1
	MOVD y+24(FP), R2
	MOVD n+32(FP), R3
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	VEOR V6.B16, V6.B16, V6.B16
	VEOR V7.B16, V7.B16, V7.B16

loop:
	FLDPQ.P 32(R1), (F16, F17)
	FLDPQ.P 32(R2), (F18, F19)
	WIDEN
	WIDEN2
	SUBTRACT
	FMUL_D2(20, 20, 20)
	FMUL_D2(21, 21, 21)
	FMUL_D2(22, 22, 22)
	FMUL_D2(23, 23, 23)
	FMUL_D2(24, 24, 24)
	FMUL_D2(25, 25, 25)
	FMUL_D2(26, 26, 26)
	FMUL_D2(27, 27, 27)
	ACCUMULATE
	FADD_D2(24, 4, 4)
	FADD_D2(25, 5, 5)
	FADD_D2(26, 6, 6)
	FADD_D2(27, 7, 7)
	SUBS $8, R3, R3
	BNE  loop

	MOVD  d+0(FP), R0
	FSTPQ (F0, F1), 0(R0)
	FSTPQ (F2, F3), 32(R0)
	MOVD  s+8(FP), R0
	FSTPQ (F4, F5), 0(R0)
	FSTPQ (F6, F7), 32(R0)
	RET

// func columns(sums *float64, x *float32, rows, stride int)
TEXT ·columns(SB), NOSPLIT, $0-32
	MOVD  sums+0(FP), R0
	MOVD  x+8(FP), R1
	MOVD  rows+16(FP), R3
	MOVD  stride+24(FP), R4
	FLDPQ 0(R0), (F0, F1)
	FLDPQ 32(R0), (F2, F3)

loop:
	FLDPQ 0(R1), (F16, F17)
	WIDEN
	ACCUMULATE
	ADD   R4, R1, R1
	SUBS  $1, R3, R3
	BNE   loop

	FSTPQ (F0, F1), 0(R0)
	FSTPQ (F2, F3), 32(R0)
	RET

// func columnDifferences(sums *float64, x, y *float32, rows, stride int)
TEXT ·columnDifferences(SB), NOSPLIT, $0-40
	MOVD  sums+0(FP), R0
	MOVD  x+8(FP), R1
	MOVD  y+16(FP), R2
	MOVD  rows+24(FP), R3
	MOVD  stride+32(FP), R4
	FLDPQ 0(R0), (F0, F1)
	FLDPQ 32(R0), (F2, F3)

loop:
	FLDPQ 0(R1), (F16, F17)
	FLDPQ 0(R2), (F18, F19)
	WIDEN
	WIDEN2
	SUBTRACT
	ACCUMULATE
	ADD   R4, R1, R1
	ADD   R4, R2, R2
	SUBS  $1, R3, R3
	BNE   loop

	FSTPQ (F0, F1), 0(R0)
	FSTPQ (F2, F3), 32(R0)
	RET
