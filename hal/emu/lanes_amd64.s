#include "textflag.h"

// The canonical NaN of f32 arithmetic.
DATA nan<>+0(SB)/4, $0x7fffffff
GLOBL nan<>(SB), RODATA, $4

// CANON replaces NaNs in y by Y15; t is clobbered.
#define CANON(y, t) \
	VCMPPS    $3, y, y, t    \
	VBLENDVPS t, Y15, y, y

// BINARY is d = a op b for the eight lanes at off.
#define BINARY(op, off) \
	VMOVUPS off(SI), Y0    \
	op      off(DX), Y0, Y0 \
	CANON(Y0, Y1)          \
	VMOVUPS Y0, off(DI)

#define ROWS(op) \
	MOVQ         d+0(FP), DI  \
	MOVQ         a+8(FP), SI  \
	MOVQ         b+16(FP), DX \
	VBROADCASTSS nan<>(SB), Y15 \
	BINARY(op, 0)             \
	BINARY(op, 32)            \
	BINARY(op, 64)            \
	BINARY(op, 96)            \
	VZEROUPPER                \
	RET

// INTEGER is BINARY without the NaNs.
#define INTEGER(op, off) \
	VMOVUPS off(SI), Y0    \
	op      off(DX), Y0, Y0 \
	VMOVUPS Y0, off(DI)

#define INTEGERS(op) \
	MOVQ d+0(FP), DI  \
	MOVQ a+8(FP), SI  \
	MOVQ b+16(FP), DX \
	INTEGER(op, 0)    \
	INTEGER(op, 32)   \
	INTEGER(op, 64)   \
	INTEGER(op, 96)   \
	VZEROUPPER        \
	RET

#define MAD8(off) \
	VMOVUPS off(SI), Y0     \
	VPMULLD off(DX), Y0, Y0 \
	VPADDD  off(CX), Y0, Y0 \
	VMOVUPS Y0, off(DI)

#define FMA8(off) \
	VMOVUPS     off(SI), Y0     \
	VMOVUPS     off(DX), Y1     \
	VFMADD213PS off(CX), Y1, Y0 \
	CANON(Y0, Y1)               \
	VMOVUPS     Y0, off(DI)

// func addAVX2(d, a, b, c *row32)
TEXT ·addAVX2(SB), NOSPLIT, $0-32
	ROWS(VADDPS)

// func subAVX2(d, a, b, c *row32)
TEXT ·subAVX2(SB), NOSPLIT, $0-32
	ROWS(VSUBPS)

// func mulAVX2(d, a, b, c *row32)
TEXT ·mulAVX2(SB), NOSPLIT, $0-32
	ROWS(VMULPS)

// func fmaAVX2(d, a, b, c *row32)
TEXT ·fmaAVX2(SB), NOSPLIT, $0-32
	MOVQ         d+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	MOVQ         c+24(FP), CX
	VBROADCASTSS nan<>(SB), Y15
	FMA8(0)
	FMA8(32)
	FMA8(64)
	FMA8(96)
	VZEROUPPER
	RET

// func addIntAVX2(d, a, b, c *row32)
TEXT ·addIntAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPADDD)

// func andAVX2(d, a, b, c *row32)
TEXT ·andAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPAND)

// func shlAVX2(d, a, b, c *row32)
TEXT ·shlAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPSLLVD)

// func shrAVX2(d, a, b, c *row32)
TEXT ·shrAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPSRLVD)

// func madAVX2(d, a, b, c *row32)
TEXT ·madAVX2(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ c+24(FP), CX
	MAD8(0)
	MAD8(32)
	MAD8(64)
	MAD8(96)
	VZEROUPPER
	RET
