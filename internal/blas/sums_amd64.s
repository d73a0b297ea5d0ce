#include "textflag.h"

// func squares(d, s *[8]float64, x, y *float32, n int)
TEXT ·squares(SB), NOSPLIT, $0-40
	MOVQ   x+16(FP), SI
	MOVQ   y+24(FP), DX
	MOVQ   n+32(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3

loop:
	VCVTPS2PD 0(DX), Y4
	VCVTPS2PD 16(DX), Y5
	VCVTPS2PD 0(SI), Y6
	VCVTPS2PD 16(SI), Y7
	VSUBPD    Y4, Y6, Y6
	VSUBPD    Y5, Y7, Y7
	VMULPD    Y4, Y4, Y4
	VMULPD    Y5, Y5, Y5
	VMULPD    Y6, Y6, Y6
	VMULPD    Y7, Y7, Y7
	VADDPD    Y6, Y0, Y0
	VADDPD    Y7, Y1, Y1
	VADDPD    Y4, Y2, Y2
	VADDPD    Y5, Y3, Y3
	ADDQ      $32, SI
	ADDQ      $32, DX
	SUBQ      $8, CX
	JNZ       loop

	MOVQ    d+0(FP), DI
	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	MOVQ    s+8(FP), DI
	VMOVUPD Y2, 0(DI)
	VMOVUPD Y3, 32(DI)
	VZEROUPPER
	RET

// func columns(sums *float64, x *float32, rows, stride int)
TEXT ·columns(SB), NOSPLIT, $0-32
	MOVQ    sums+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    rows+16(FP), CX
	MOVQ    stride+24(FP), BX
	VMOVUPD 0(DI), Y0
	VMOVUPD 32(DI), Y1

loop:
	VCVTPS2PD 0(SI), Y2
	VCVTPS2PD 16(SI), Y3
	VADDPD    Y2, Y0, Y0
	VADDPD    Y3, Y1, Y1
	ADDQ      BX, SI
	DECQ      CX
	JNZ       loop

	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	VZEROUPPER
	RET

// func columnDifferences(sums *float64, x, y *float32, rows, stride int)
TEXT ·columnDifferences(SB), NOSPLIT, $0-40
	MOVQ    sums+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    y+16(FP), DX
	MOVQ    rows+24(FP), CX
	MOVQ    stride+32(FP), BX
	VMOVUPD 0(DI), Y0
	VMOVUPD 32(DI), Y1

loop:
	VCVTPS2PD 0(SI), Y2
	VCVTPS2PD 16(SI), Y3
	VCVTPS2PD 0(DX), Y4
	VCVTPS2PD 16(DX), Y5
	VSUBPD    Y4, Y2, Y2
	VSUBPD    Y5, Y3, Y3
	VADDPD    Y2, Y0, Y0
	VADDPD    Y3, Y1, Y1
	ADDQ      BX, SI
	ADDQ      BX, DX
	DECQ      CX
	JNZ       loop

	VMOVUPD Y0, 0(DI)
	VMOVUPD Y1, 32(DI)
	VZEROUPPER
	RET
