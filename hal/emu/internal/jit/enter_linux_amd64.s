#include "textflag.h"

// func enter(x *Context, code uintptr)
TEXT ·enter(SB), 0, $256-16
	MOVQ x+0(FP), DI
	MOVQ code+8(FP), AX
	CALL AX
	VZEROUPPER
	RET
