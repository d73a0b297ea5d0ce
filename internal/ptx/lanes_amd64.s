#include "textflag.h"

// The canonical NaN of f32 arithmetic.
DATA nan<>+0(SB)/4, $0x7fffffff
GLOBL nan<>(SB), RODATA, $4

DATA halfnan<>+0(SB)/4, $0x00007fff
GLOBL halfnan<>(SB), RODATA, $4

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

// EXTREME is min or max: the two orders of operands differ where both are zero, join picks the sign; then a NaN gives
// way to the other operand.
#define EXTREME(op, join, off) \
	VMOVUPS   off(SI), Y0          \
	VMOVUPS   off(DX), Y1          \
	op        Y1, Y0, Y2           \
	op        Y0, Y1, Y3           \
	join      Y2, Y3, Y2           \
	VCMPPS    $3, Y0, Y0, Y3       \
	VBLENDVPS Y3, Y1, Y2, Y2       \
	VCMPPS    $3, Y1, Y1, Y3       \
	VBLENDVPS Y3, Y0, Y2, Y2       \
	CANON(Y2, Y3)                  \
	VMOVUPS   Y2, off(DI)

#define EXTREMES(op, join) \
	MOVQ         d+0(FP), DI    \
	MOVQ         a+8(FP), SI    \
	MOVQ         b+16(FP), DX   \
	VBROADCASTSS nan<>(SB), Y15 \
	EXTREME(op, join, 0)        \
	EXTREME(op, join, 32)       \
	EXTREME(op, join, 64)       \
	EXTREME(op, join, 96)       \
	VZEROUPPER                  \
	RET

// WIDEN8 is cvt.f32.f16 of the halves in the low bits of eight lanes.
#define WIDEN8(off) \
	VMOVDQU      off(SI), Y0    \
	VPACKUSDW    Y0, Y0, Y0     \
	VPERMQ       $8, Y0, Y0     \
	VCVTPH2PS    X0, Y0         \
	CANON(Y0, Y1)               \
	VMOVUPS      Y0, off(DI)

// NARROW8 is cvt.rn.f16.f32 of the eight floats at p, into y; Y14 holds f16's NaN.
#define NARROW8(p, y, x, t) \
	VMOVUPS   p, y           \
	VCMPPS    $3, y, y, t    \
	VCVTPS2PH $0, y, x       \
	VPMOVZXWD x, y           \
	VBLENDVPS t, Y14, y, y

#define HALF8(off) \
	NARROW8(off(SI), Y0, X0, Y1) \
	VMOVUPS Y0, off(DI)

#define HALVES8(off) \
	NARROW8(off(SI), Y0, X0, Y1) \
	NARROW8(off(DX), Y2, X2, Y3) \
	VPSLLD  $16, Y0, Y0          \
	VPOR    Y0, Y2, Y0           \
	VMOVUPS Y0, off(DI)

// func addAVX2(d, a, b, c *Row32)
TEXT ·addAVX2(SB), NOSPLIT, $0-32
	ROWS(VADDPS)

// func subAVX2(d, a, b, c *Row32)
TEXT ·subAVX2(SB), NOSPLIT, $0-32
	ROWS(VSUBPS)

// func mulAVX2(d, a, b, c *Row32)
TEXT ·mulAVX2(SB), NOSPLIT, $0-32
	ROWS(VMULPS)

// func fmaAVX2(d, a, b, c *Row32)
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

// func addIntAVX2(d, a, b, c *Row32)
TEXT ·addIntAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPADDD)

// func andAVX2(d, a, b, c *Row32)
TEXT ·andAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPAND)

// func shlAVX2(d, a, b, c *Row32)
TEXT ·shlAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPSLLVD)

// func shrAVX2(d, a, b, c *Row32)
TEXT ·shrAVX2(SB), NOSPLIT, $0-32
	INTEGERS(VPSRLVD)

// func madAVX2(d, a, b, c *Row32)
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

// func maxAVX2(d, a, b, c *Row32)
TEXT ·maxAVX2(SB), NOSPLIT, $0-32
	EXTREMES(VMAXPS, VANDPS)

// func widenAVX2(d, a, b, c *Row32)
TEXT ·widenAVX2(SB), NOSPLIT, $0-32
	MOVQ         d+0(FP), DI
	MOVQ         a+8(FP), SI
	VBROADCASTSS nan<>(SB), Y15
	WIDEN8(0)
	WIDEN8(32)
	WIDEN8(64)
	WIDEN8(96)
	VZEROUPPER
	RET

// func halfAVX2(d, a, b, c *Row32)
TEXT ·halfAVX2(SB), NOSPLIT, $0-32
	MOVQ         d+0(FP), DI
	MOVQ         a+8(FP), SI
	VBROADCASTSS halfnan<>(SB), Y14
	HALF8(0)
	HALF8(32)
	HALF8(64)
	HALF8(96)
	VZEROUPPER
	RET

// func halvesAVX2(d, a, b, c *Row32)
TEXT ·halvesAVX2(SB), NOSPLIT, $0-32
	MOVQ         d+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	VBROADCASTSS halfnan<>(SB), Y14
	HALVES8(0)
	HALVES8(32)
	HALVES8(64)
	HALVES8(96)
	VZEROUPPER
	RET
