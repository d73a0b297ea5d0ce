#include "textflag.h"

// func windows(out *float32, taps **float32, count int, weights, bias *float32, channels, pixels, step int)
TEXT ·windows(SB), NOSPLIT, $0-64
	MOVQ out+0(FP), DI
	MOVQ taps+8(FP), SI
	MOVQ count+16(FP), CX
	MOVQ weights+24(FP), DX
	MOVQ bias+32(FP), R8
	MOVQ channels+40(FP), R9
	MOVQ pixels+48(FP), R10
	MOVQ step+56(FP), R11
	SHLQ $2, R9  // bytes
	SHLQ $2, R11
	XORQ R12, R12 // where the pixel's inputs are, from taps on

pixel:
	XORQ BX, BX // where the channel is

channel:
	LEAQ (R12)(BX*1), R13
	LEAQ (DX)(BX*1), AX
	XORQ R14, R14
	MOVQ R9, R15
	SUBQ BX, R15
	CMPQ R15, $128
	JGE  four
	VXORPS Y0, Y0, Y0

tap1:
	MOVQ (SI)(R14*8), R15
	VMOVUPS (R15)(R13*1), Y4
	VFMADD231PS (AX), Y4, Y0
	ADDQ R9, AX
	INCQ R14
	CMPQ R14, CX
	JLT  tap1
	TESTQ R8, R8
	JZ   store1
	VADDPS (R8)(BX*1), Y0, Y0

store1:
	VMOVUPS Y0, (DI)(BX*1)
	ADDQ $32, BX
	CMPQ BX, R9
	JLT  channel
	JMP  next

four:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3

tap4:
	MOVQ (SI)(R14*8), R15
	ADDQ R13, R15
	VMOVUPS 0(R15), Y4
	VMOVUPS 32(R15), Y5
	VMOVUPS 64(R15), Y6
	VMOVUPS 96(R15), Y7
	VFMADD231PS 0(AX), Y4, Y0
	VFMADD231PS 32(AX), Y5, Y1
	VFMADD231PS 64(AX), Y6, Y2
	VFMADD231PS 96(AX), Y7, Y3
	ADDQ R9, AX
	INCQ R14
	CMPQ R14, CX
	JLT  tap4
	TESTQ R8, R8
	JZ   store4
	VADDPS 0(R8)(BX*1), Y0, Y0
	VADDPS 32(R8)(BX*1), Y1, Y1
	VADDPS 64(R8)(BX*1), Y2, Y2
	VADDPS 96(R8)(BX*1), Y3, Y3

store4:
	VMOVUPS Y0, 0(DI)(BX*1)
	VMOVUPS Y1, 32(DI)(BX*1)
	VMOVUPS Y2, 64(DI)(BX*1)
	VMOVUPS Y3, 96(DI)(BX*1)
	SUBQ $-128, BX
	CMPQ BX, R9
	JLT  channel

next:
	ADDQ R9, DI
	ADDQ R11, R12
	DECQ R10
	JNZ  pixel
	VZEROUPPER
	RET
