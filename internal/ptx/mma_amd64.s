#include "textflag.h"

// The canonical NaN of f32 arithmetic.
DATA nan<>+0(SB)/4, $0x7fffffff
GLOBL nan<>(SB), RODATA, $4

// CANON replaces NaNs in y by Y15; t is clobbered.
#define CANON(y, t) \
	VCMPPS    $3, y, y, t    \
	VBLENDVPS t, Y15, y, y

// The mma below uses an aligned area at R8: B as 16 rows (k) of 8 floats at 0, A as 16 rows of 16 floats at 512, the
// first half of the result at 1536.

// F16 and BF16 widen eight 16-bit numbers in memory.
#define F16(m, y) VCVTPH2PS m, y

#define BF16(m, y) \
	VPMOVZXWD m, y       \
	VPSLLD    $16, y, y

// ROW is the address of the register row with index i.
#define ROW(i, p) \
	MOVLQSX (4*i)(SI), p \
	SHLQ    $7, p        \
	ADDQ    DI, p

// TRANSPOSE stores the transpose of Y0…Y7 at off(R8).
#define TRANSPOSE(off) \
	VUNPCKLPS  Y1, Y0, Y8          \
	VUNPCKHPS  Y1, Y0, Y9          \
	VUNPCKLPS  Y3, Y2, Y10         \
	VUNPCKHPS  Y3, Y2, Y11         \
	VUNPCKLPS  Y5, Y4, Y12         \
	VUNPCKHPS  Y5, Y4, Y13         \
	VUNPCKLPS  Y7, Y6, Y14         \
	VUNPCKHPS  Y7, Y6, Y15         \
	VSHUFPS    $0x44, Y10, Y8, Y0  \
	VSHUFPS    $0xEE, Y10, Y8, Y1  \
	VSHUFPS    $0x44, Y11, Y9, Y2  \
	VSHUFPS    $0xEE, Y11, Y9, Y3  \
	VSHUFPS    $0x44, Y14, Y12, Y4 \
	VSHUFPS    $0xEE, Y14, Y12, Y5 \
	VSHUFPS    $0x44, Y15, Y13, Y6 \
	VSHUFPS    $0xEE, Y15, Y13, Y7 \
	VPERM2F128 $0x20, Y4, Y0, Y8   \
	VPERM2F128 $0x20, Y5, Y1, Y9   \
	VPERM2F128 $0x20, Y6, Y2, Y10  \
	VPERM2F128 $0x20, Y7, Y3, Y11  \
	VPERM2F128 $0x31, Y4, Y0, Y12  \
	VPERM2F128 $0x31, Y5, Y1, Y13  \
	VPERM2F128 $0x31, Y6, Y2, Y14  \
	VPERM2F128 $0x31, Y7, Y3, Y15  \
	VMOVUPS    Y8, (off)(R8)       \
	VMOVUPS    Y9, (off+32)(R8)    \
	VMOVUPS    Y10, (off+64)(R8)   \
	VMOVUPS    Y11, (off+96)(R8)   \
	VMOVUPS    Y12, (off+128)(R8)  \
	VMOVUPS    Y13, (off+160)(R8)  \
	VMOVUPS    Y14, (off+192)(R8)  \
	VMOVUPS    Y15, (off+224)(R8)

// BHALF widens register i of B, whose memory is column-major 8×8, and stores it by rows.
#define BHALF(W, i, off) \
	ROW(i, AX)           \
	W(0(AX), Y0)         \
	W(16(AX), Y1)        \
	W(32(AX), Y2)        \
	W(48(AX), Y3)        \
	W(64(AX), Y4)        \
	W(80(AX), Y5)        \
	W(96(AX), Y6)        \
	W(112(AX), Y7)       \
	TRANSPOSE(off)

// APART widens register i of A, whose memory is a row-major 8×8, into a quarter of A.
#define APART(W, i, off) \
	ROW(i, AX)           \
	W(0(AX), Y0)         \
	W(16(AX), Y1)        \
	W(32(AX), Y2)        \
	W(48(AX), Y3)        \
	W(64(AX), Y4)        \
	W(80(AX), Y5)        \
	W(96(AX), Y6)        \
	W(112(AX), Y7)       \
	VMOVUPS Y0, (off)(R8)      \
	VMOVUPS Y1, (off+64)(R8)   \
	VMOVUPS Y2, (off+128)(R8)  \
	VMOVUPS Y3, (off+192)(R8)  \
	VMOVUPS Y4, (off+256)(R8)  \
	VMOVUPS Y5, (off+320)(R8)  \
	VMOVUPS Y6, (off+384)(R8)  \
	VMOVUPS Y7, (off+448)(R8)

// CROW gathers row g of an accumulator half: columns alternate between the registers at AX and BX.
#define CROW(g, x, y) \
	VMOVUPS     (16*g)(AX), X8    \
	VMOVUPS     (16*g)(BX), X9    \
	VUNPCKLPS   X9, X8, X10       \
	VUNPCKHPS   X9, X8, X11       \
	VINSERTF128 $1, X11, Y10, y

#define CLOAD(i, j) \
	ROW(i, AX)     \
	ROW(j, BX)     \
	CROW(0, X0, Y0) \
	CROW(1, X1, Y1) \
	CROW(2, X2, Y2) \
	CROW(3, X3, Y3) \
	CROW(4, X4, Y4) \
	CROW(5, X5, Y5) \
	CROW(6, X6, Y6) \
	CROW(7, X7, Y7)

// STEP is one k for eight rows of A at R10; B's row is at R9.
#define STEP \
	VMOVUPS      (R9), Y8       \
	VBROADCASTSS 0(R10), Y9     \
	VBROADCASTSS 64(R10), Y10   \
	VBROADCASTSS 128(R10), Y11  \
	VBROADCASTSS 192(R10), Y12  \
	VFMADD231PS  Y8, Y9, Y0     \
	VFMADD231PS  Y8, Y10, Y1    \
	VFMADD231PS  Y8, Y11, Y2    \
	VFMADD231PS  Y8, Y12, Y3    \
	VBROADCASTSS 256(R10), Y9   \
	VBROADCASTSS 320(R10), Y10  \
	VBROADCASTSS 384(R10), Y11  \
	VBROADCASTSS 448(R10), Y12  \
	VFMADD231PS  Y8, Y9, Y4     \
	VFMADD231PS  Y8, Y10, Y5    \
	VFMADD231PS  Y8, Y11, Y6    \
	VFMADD231PS  Y8, Y12, Y7    \
	ADDQ         $32, R9        \
	ADDQ         $4, R10

#define STEPS4 STEP; STEP; STEP; STEP

// PRODUCT adds the 16 products of the eight rows of A at off, k ascending.
#define PRODUCT(off) \
	MOVQ         R8, R9        \
	LEAQ         (off)(R8), R10 \
	STEPS4                     \
	STEPS4                     \
	STEPS4                     \
	STEPS4                     \
	VBROADCASTSS nan<>(SB), Y15 \
	CANON(Y0, Y8)              \
	CANON(Y1, Y8)              \
	CANON(Y2, Y8)              \
	CANON(Y3, Y8)              \
	CANON(Y4, Y8)              \
	CANON(Y5, Y8)              \
	CANON(Y6, Y8)              \
	CANON(Y7, Y8)

#define KEEP(n, y) VMOVUPS y, (1536+32*n)(R8)

// SCATTER splits row g, in memory at p, into its even and odd columns.
#define SCATTER(g, y) \
	VEXTRACTF128 $1, y, X9          \
	VEXTRACTF128 $0, y, X8          \
	VSHUFPS      $0x88, X9, X8, X10 \
	VSHUFPS      $0xDD, X9, X8, X11 \
	VMOVUPS      X10, (16*g)(AX)    \
	VMOVUPS      X11, (16*g)(BX)

#define KEPT(n) \
	VMOVUPS (1536+32*n)(R8), Y12 \
	SCATTER(n, Y12)

#define MMA(W) \
	MOVQ r+0(FP), DI       \
	MOVQ v+8(FP), SI       \
	LEAQ area-1824(SP), R8 \
	ADDQ $31, R8           \
	ANDQ $~31, R8          \
	BHALF(W, 8, 0)         \
	BHALF(W, 9, 256)       \
	APART(W, 4, 512)       \
	APART(W, 5, 1024)      \
	APART(W, 6, 544)       \
	APART(W, 7, 1056)      \
	CLOAD(10, 11)          \
	PRODUCT(512)           \
	KEEP(0, Y0)            \
	KEEP(1, Y1)            \
	KEEP(2, Y2)            \
	KEEP(3, Y3)            \
	KEEP(4, Y4)            \
	KEEP(5, Y5)            \
	KEEP(6, Y6)            \
	KEEP(7, Y7)            \
	CLOAD(12, 13)          \
	PRODUCT(1024)          \
	ROW(2, AX)             \
	ROW(3, BX)             \
	SCATTER(0, Y0)         \
	SCATTER(1, Y1)         \
	SCATTER(2, Y2)         \
	SCATTER(3, Y3)         \
	SCATTER(4, Y4)         \
	SCATTER(5, Y5)         \
	SCATTER(6, Y6)         \
	SCATTER(7, Y7)         \
	ROW(0, AX)             \
	ROW(1, BX)             \
	KEPT(0)                \
	KEPT(1)                \
	KEPT(2)                \
	KEPT(3)                \
	KEPT(4)                \
	KEPT(5)                \
	KEPT(6)                \
	KEPT(7)                \
	VZEROUPPER             \
	RET

// func mmaF16AVX2(r *Row32, v *int32)
TEXT ·mmaF16AVX2(SB), 0, $1824-16
	MMA(F16)

// func mmaBF16AVX2(r *Row32, v *int32)
TEXT ·mmaBF16AVX2(SB), 0, $1824-16
	MMA(BF16)
