#include "textflag.h"
#include "neon_arm64.h"

// ROUND rounds V16, saturated, to the nearest number into V17; V18 is clobbered.
#define ROUND \
	FMIN_S4(2, 16, 17) \
	FMAX_S4(3, 17, 17) \
	VAND  V4.B16, V17.B16, V18.B16 \
	VUMAX V5.S4, V18.S4, V18.S4 \
	VADD  V6.S4, V18.S4, V18.S4 \
	FADD_S4(18, 17, 17) \
	FSUB_S4(18, 17, 17)

#define ROUNDING \
	MOVD r+0(FP), R0 \
	MOVD x+8(FP), R1 \
	MOVD n+16(FP), R2 \
	VLD1R.P 4(R0), [V0.S4] \
	VLD1R.P 4(R0), [V1.S4] \
	VLD1R.P 4(R0), [V2.S4] \
	VLD1R.P 4(R0), [V3.S4] \
	VLD1R.P 4(R0), [V4.S4] \
	VLD1R.P 4(R0), [V5.S4] \
	VLD1R.P 4(R0), [V6.S4]

// REQUANTISE rounds the next four numbers.
#define REQUANTISE \
	FMOVQ   0(R1), F16 \
	FMUL_S(0, 16, 16) \
	ROUND \
	FMUL_S(1, 17, 17) \
	FMOVQ.P F17, 16(R1)

// REQUANTISE2 rounds the next four, to sums of two numbers.
#define REQUANTISE2 \
	FMOVQ   0(R1), F16 \
	FMUL_S(0, 16, 16) \
	ROUND \
	VMOV    V17.B16, V19.B16 \
	FSUB_S4(17, 16, 16) \
	ROUND \
	FADD_S4(17, 19, 17) \
	FMUL_S(1, 17, 17) \
	FMOVQ.P F17, 16(R1)

// func axpy(a float32, x, y *float32, n int)
TEXT ·axpy(SB), NOSPLIT, $0-32
	FMOVS a+0(FP), F0
	MOVD  x+8(FP), R1
	MOVD  y+16(FP), R0
	MOVD  n+24(FP), R2

loop:
	FLDPQ 32(R1), (F18, F19)
	FLDPQ.P 64(R1), (F16, F17)
	FLDPQ 0(R0), (F20, F21)
	FLDPQ 32(R0), (F22, F23)
	FMUL_S(0, 16, 16)
	FMUL_S(0, 17, 17)
	FMUL_S(0, 18, 18)
	FMUL_S(0, 19, 19)
	FADD_S4(16, 20, 20)
	FADD_S4(17, 21, 21)
	FADD_S4(18, 22, 22)
	FADD_S4(19, 23, 23)
	FSTPQ.P (F20, F21), 32(R0)
	FSTPQ.P (F22, F23), 32(R0)
	SUBS  $16, R2, R2
	BNE   loop
	RET

// func positive(to, from *float32, n int)
TEXT ·positive(SB), NOSPLIT, $0-24
	MOVD to+0(FP), R0
	MOVD from+8(FP), R1
	MOVD n+16(FP), R2
	VEOR V0.B16, V0.B16, V0.B16

loop:
	FLDPQ.P 32(R1), (F16, F17)
	FLDPQ.P 32(R1), (F18, F19)
	FMAX_S4(0, 16, 16) // NaN stays
	FMAX_S4(0, 17, 17)
	FMAX_S4(0, 18, 18)
	FMAX_S4(0, 19, 19)
	FSTPQ.P (F16, F17), 32(R0)
	FSTPQ.P (F18, F19), 32(R0)
	SUBS $16, R2, R2
	BNE  loop
	RET

// func magnitude(x *float32, n int) uint32
TEXT ·magnitude(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R2
	MOVW $0x7fffffff, R3
	VDUP R3, V0.S4
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16

loop:
	FLDPQ.P 32(R1), (F16, F17)
	FLDPQ.P 32(R1), (F18, F19)
	VAND  V0.B16, V16.B16, V16.B16
	VAND  V0.B16, V17.B16, V17.B16
	VAND  V0.B16, V18.B16, V18.B16
	VAND  V0.B16, V19.B16, V19.B16
	VUMAX V16.S4, V1.S4, V1.S4
	VUMAX V17.S4, V2.S4, V2.S4
	VUMAX V18.S4, V1.S4, V1.S4
	VUMAX V19.S4, V2.S4, V2.S4
	SUBS  $16, R2, R2
	BNE   loop

	VUMAX V2.S4, V1.S4, V1.S4
	UMAXV_S4(1, 1)
	FMOVS F1, ret+16(FP)
	RET

// func requantise(r *Rounding, x *float32, n int)
TEXT ·requantise(SB), NOSPLIT, $0-24
	ROUNDING

loop:
	REQUANTISE
	REQUANTISE
	SUBS $8, R2, R2
	BNE  loop
	RET

// func requantise2(r *Rounding, x *float32, n int)
TEXT ·requantise2(SB), NOSPLIT, $0-24
	ROUNDING

loop:
	REQUANTISE2
	REQUANTISE2
	SUBS $8, R2, R2
	BNE  loop
	RET
