#include "textflag.h"
#include "neon_arm64.h"

// func windows(out *float32, taps **float32, count int, weights, bias *float32, channels, pixels, step int)
TEXT ·windows(SB), NOSPLIT, $0-64
	MOVD out+0(FP), R0
	MOVD count+16(FP), R2
	MOVD weights+24(FP), R3
	MOVD bias+32(FP), R4
	MOVD channels+40(FP), R5
	MOVD pixels+48(FP), R6
	MOVD step+56(FP), R7
	LSL  $2, R5, R5 // bytes
	LSL  $2, R7, R7
	MOVD ZR, R8     // where the pixel's inputs are, from taps on

pixel:
	MOVD ZR, R9 // where the channel is

channel:
	ADD  R8, R9, R10
	ADD  R3, R9, R11
	MOVD taps+8(FP), R12
	MOVD R2, R13
	SUB  R9, R5, R14
	CMP  $128, R14
	BGE  four
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16

tap1:
	MOVD.P 8(R12), R15
	ADD    R10, R15, R15
	FLDPQ  0(R15), (F16, F17)
	FLDPQ  0(R11), (F24, F25)
	VFMLA  V16.S4, V24.S4, V0.S4
	VFMLA  V17.S4, V25.S4, V1.S4
	ADD    R5, R11, R11
	SUBS   $1, R13, R13
	BNE    tap1
	CBZ    R4, store1
	ADD    R4, R9, R15
	FLDPQ  0(R15), (F16, F17)
	FADD_S4(16, 0, 0)
	FADD_S4(17, 1, 1)

store1:
	ADD   R0, R9, R15
	FSTPQ (F0, F1), 0(R15)
	ADD   $32, R9, R9
	CMP   R5, R9
	BLT   channel
	B     next

four:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	VEOR V6.B16, V6.B16, V6.B16
	VEOR V7.B16, V7.B16, V7.B16

tap4:
	MOVD.P 8(R12), R15
	ADD    R10, R15, R15
	FLDPQ  0(R15), (F16, F17)
	FLDPQ  32(R15), (F18, F19)
	FLDPQ  64(R15), (F20, F21)
	FLDPQ  96(R15), (F22, F23)
	FLDPQ  0(R11), (F24, F25)
	FLDPQ  32(R11), (F26, F27)
	FLDPQ  64(R11), (F28, F29)
	FLDPQ  96(R11), (F30, F31)
	VFMLA  V16.S4, V24.S4, V0.S4
	VFMLA  V17.S4, V25.S4, V1.S4
	VFMLA  V18.S4, V26.S4, V2.S4
	VFMLA  V19.S4, V27.S4, V3.S4
	VFMLA  V20.S4, V28.S4, V4.S4
	VFMLA  V21.S4, V29.S4, V5.S4
	VFMLA  V22.S4, V30.S4, V6.S4
	VFMLA  V23.S4, V31.S4, V7.S4
	ADD    R5, R11, R11
	SUBS   $1, R13, R13
	BNE    tap4
	CBZ    R4, store4
	ADD    R4, R9, R15
	FLDPQ  0(R15), (F16, F17)
	FLDPQ  32(R15), (F18, F19)
	FLDPQ  64(R15), (F20, F21)
	FLDPQ  96(R15), (F22, F23)
	FADD_S4(16, 0, 0)
	FADD_S4(17, 1, 1)
	FADD_S4(18, 2, 2)
	FADD_S4(19, 3, 3)
	FADD_S4(20, 4, 4)
	FADD_S4(21, 5, 5)
	FADD_S4(22, 6, 6)
	FADD_S4(23, 7, 7)

store4:
	ADD   R0, R9, R15
	FSTPQ (F0, F1), 0(R15)
	FSTPQ (F2, F3), 32(R15)
	FSTPQ (F4, F5), 64(R15)
	FSTPQ (F6, F7), 96(R15)
	ADD   $128, R9, R9
	CMP   R5, R9
	BLT   channel

next:
	ADD  R5, R0, R0
	ADD  R7, R8, R8
	SUBS $1, R6, R6
	BNE  pixel
	RET
