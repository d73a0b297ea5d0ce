package jit

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/arm64"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// neonText are the constants of neon.go in assembly, with registers D, N and M.
const neonText = `
nADD     add vD.4s, vN.4s, vM.4s
nADDD    add vD.2d, vN.2d, vM.2d
nADDH    add vD.8h, vN.8h, vM.8h
nSUB     sub vD.4s, vN.4s, vM.4s
nSUBD    sub vD.2d, vN.2d, vM.2d
nMUL     mul vD.4s, vN.4s, vM.4s
nSMAX    smax vD.4s, vN.4s, vM.4s
nUMAX    umax vD.4s, vN.4s, vM.4s
nSMIN    smin vD.4s, vN.4s, vM.4s
nUMIN    umin vD.4s, vN.4s, vM.4s
nCMGT    cmgt vD.4s, vN.4s, vM.4s
nCMGTD   cmgt vD.2d, vN.2d, vM.2d
nCMEQ    cmeq vD.4s, vN.4s, vM.4s
nCMEQD   cmeq vD.2d, vN.2d, vM.2d
nCMTST   cmtst vD.4s, vN.4s, vM.4s
nCMTSTD  cmtst vD.2d, vN.2d, vM.2d
nSSHL    sshl vD.4s, vN.4s, vM.4s
nUSHL    ushl vD.4s, vN.4s, vM.4s
nUSHLD   ushl vD.2d, vN.2d, vM.2d
nADDPB   addp vD.16b, vN.16b, vM.16b
nAND     and vD.16b, vN.16b, vM.16b
nBIC     bic vD.16b, vN.16b, vM.16b
nORR     orr vD.16b, vN.16b, vM.16b
nEOR     eor vD.16b, vN.16b, vM.16b
nBSL     bsl vD.16b, vN.16b, vM.16b
nBIT     bit vD.16b, vN.16b, vM.16b
nBIF     bif vD.16b, vN.16b, vM.16b
nFADD    fadd vD.4s, vN.4s, vM.4s
nFADDD   fadd vD.2d, vN.2d, vM.2d
nFSUB    fsub vD.4s, vN.4s, vM.4s
nFSUBD   fsub vD.2d, vN.2d, vM.2d
nFMUL    fmul vD.4s, vN.4s, vM.4s
nFMULD   fmul vD.2d, vN.2d, vM.2d
nFDIV    fdiv vD.4s, vN.4s, vM.4s
nFMLA    fmla vD.4s, vN.4s, vM.4s
nFMAX    fmax vD.4s, vN.4s, vM.4s
nFMIN    fmin vD.4s, vN.4s, vM.4s
nFCMEQ   fcmeq vD.4s, vN.4s, vM.4s
nFCMEQD  fcmeq vD.2d, vN.2d, vM.2d
nFCMGE   fcmge vD.4s, vN.4s, vM.4s
nFCMGED  fcmge vD.2d, vN.2d, vM.2d
nFCMGT   fcmgt vD.4s, vN.4s, vM.4s
nFCMGTD  fcmgt vD.2d, vN.2d, vM.2d
nZIP1    zip1 vD.4s, vN.4s, vM.4s
nZIP2    zip2 vD.4s, vN.4s, vM.4s
nZIP1D   zip1 vD.2d, vN.2d, vM.2d
nZIP2D   zip2 vD.2d, vN.2d, vM.2d
nZIP1H   zip1 vD.8h, vN.8h, vM.8h
nZIP2H   zip2 vD.8h, vN.8h, vM.8h
nUZP1    uzp1 vD.4s, vN.4s, vM.4s
nUZP2    uzp2 vD.4s, vN.4s, vM.4s
nUZP1H   uzp1 vD.8h, vN.8h, vM.8h
nUZP1B   uzp1 vD.16b, vN.16b, vM.16b
nUMULL   umull vD.2d, vN.2s, vM.2s
nUMULL2  umull2 vD.2d, vN.4s, vM.4s
nSMULL   smull vD.2d, vN.2s, vM.2s
nSMULL2  smull2 vD.2d, vN.4s, vM.4s
nTBL1    tbl vD.16b, {vN.16b}, vM.16b
nTBL2    tbl vD.16b, {vN.16b-vN1.16b}, vM.16b
nTBL4    tbl vD.16b, {vN.16b-vN3.16b}, vM.16b
nTBX4    tbx vD.16b, {vN.16b-vN3.16b}, vM.16b
nABS     abs vD.4s, vN.4s
nNEG     neg vD.4s, vN.4s
nNEGD    neg vD.2d, vN.2d
nNOT     not vD.16b, vN.16b
nFSQRT   fsqrt vD.4s, vN.4s
nFRINTN  frintn vD.4s, vN.4s
nFRINTM  frintm vD.4s, vN.4s
nFRINTMD frintm vD.2d, vN.2d
nFRINTP  frintp vD.4s, vN.4s
nFRINTZ  frintz vD.4s, vN.4s
nFCVTZS  fcvtzs vD.4s, vN.4s
nFCVTZSD fcvtzs vD.2d, vN.2d
nSCVTF   scvtf vD.4s, vN.4s
nFCVTL   fcvtl vD.4s, vN.4h
nFCVTL2  fcvtl2 vD.4s, vN.8h
nFCVTLS  fcvtl vD.2d, vN.2s
nFCVTLS2 fcvtl2 vD.2d, vN.4s
nFCVTN   fcvtn vD.4h, vN.4s
nFCVTN2  fcvtn2 vD.8h, vN.4s
nFCVTNS  fcvtn vD.2s, vN.2d
nFCVTNS2 fcvtn2 vD.4s, vN.2d
nXTN     xtn vD.4h, vN.4s
nXTN2    xtn2 vD.8h, vN.4s
nXTNS    xtn vD.2s, vN.2d
nXTNS2   xtn2 vD.4s, vN.2d
nUXTL    uxtl vD.4s, vN.4h
nUXTL2   uxtl2 vD.4s, vN.8h
nUXTLS   uxtl vD.2d, vN.2s
nUXTLS2  uxtl2 vD.2d, vN.4s
nSXTLS   sxtl vD.2d, vN.2s
nSXTLS2  sxtl2 vD.2d, vN.4s
nSHRN16  shrn vD.4h, vN.4s, 16
nADDV    addv sD, vN.4s
nSMAXV   smaxv sD, vN.4s
nSMINV   sminv sD, vN.4s
nUMAXV   umaxv sD, vN.4s
nUMINV   uminv sD, vN.4s
nDUPS    dup vD.4s, vN.s[0]
nDUPW    dup vD.4s, wN
nDUPX    dup vD.2d, xN
nMOVI    movi vD.4s, 0
nMVNI    mvni vD.4s, 0
nMOVIMSL movi vD.4s, 0, msl 8
nBICI    bic vD.4s, 0
nFMLAS   fmla vD.4s, vN.4s, vM.s[0]
nUMOV    umov wD, vN.s[0]
nLD1R    ld1r {vD.4s}, [xN]
nLD1RD   ld1r {vD.2d}, [xN]
nSCVTFX  scvtf sD, xN
nMOVI64  movi vD.16b, 64
nSUBB    sub vD.16b, vN.16b, vM.16b
nUDIV    udiv wD, wN, wM
nMSUB    msub wD, wN, wM, w0
nCSINVNE csinv wD, wN, wM, ne
`

// a64Case is what a method emits, as the text that GNU as assembles to the same. far: labels are beyond 1 MiB.
type a64Case struct {
	text string
	far  bool
	emit func(a *aarch64)
}

// words32 is a constant of 32 bytes.
func words32(f func(i int) uint32) string {
	var b []byte
	for i := range 8 {
		b = binary.LittleEndian.AppendUint32(b, f(i))
	}
	return string(b)
}

func a64General() []a64Case {
	return []a64Case{
		{"mov w10, w11", false, func(a *aarch64) { a.mov32(rcx, rdx) }},
		{"mov x0, x8", false, func(a *aarch64) { a.mov64(rdi, r15) }},
		{"ldr w9, [x14, 128]", false, func(a *aarch64) { a.mov32(rax, at(rsi, 128)) }},
		{"ldr x7, [x2, 32760]", false, func(a *aarch64) { a.mov64(r14, at(r9, 32760)) }},
		{"ldur w9, [x10, -1]", false, func(a *aarch64) { a.mov32(rax, at(rcx, -1)) }},
		{"add x16, x6, x13, lsl 2; ldr w10, [x16, 128]", false, func(a *aarch64) { a.mov32(rcx, indexed(r13, rbp, 2, 128)) }},
		{"add x16, x6, x13; sub x16, x16, 1024; ldr w10, [x16]", false, func(a *aarch64) { a.mov32(rcx, indexed(r13, rbp, 0, -1024)) }},
		{"str w2, [x5]", false, func(a *aarch64) { a.put32(at(r12, 0), r9) }},
		{"str x3, [x4, 8]", false, func(a *aarch64) { a.put64(at(r11, 8), r10) }},
		{"strh w12, [x1, 8190]", false, func(a *aarch64) { a.put16(at(r8, 8190), rbx) }},
		{"strb w14, [x0, 1]", false, func(a *aarch64) { a.put8(at(rdi, 1), rsi) }},
		{"sturb w14, [x0, -256]", false, func(a *aarch64) { a.put8(at(rdi, -256), rsi) }},
		{"uxtb w10, w11", false, func(a *aarch64) { a.movzx8(rcx, rdx) }},
		{"ldrb w10, [x11, 7]", false, func(a *aarch64) { a.movzx8(rcx, at(rdx, 7)) }},
		{"uxth w10, w11", false, func(a *aarch64) { a.movzx16(rcx, rdx) }},
		{"ldrh w10, [x11, 6]", false, func(a *aarch64) { a.movzx16(rcx, at(rdx, 6)) }},
		{"ldurh w10, [x11, 7]", false, func(a *aarch64) { a.movzx16(rcx, at(rdx, 7)) }},
		{"sxtb w10, w11", false, func(a *aarch64) { a.movsx8(rcx, rdx) }},
		{"ldrsb w10, [x11, 7]", false, func(a *aarch64) { a.movsx8(rcx, at(rdx, 7)) }},
		{"sxtw x10, w11", false, func(a *aarch64) { a.movsx32(rcx, rdx) }},
		{"ldrsw x10, [x11, 4]", false, func(a *aarch64) { a.movsx32(rcx, at(rdx, 4)) }},
		{"add x19, x14, 4, lsl 12; ldr w9, [x19, 3616]; ldr w10, [x19, 3620]; add x20, x14, 4, lsl 12; ldr w10, [x20, 3620]", false, func(a *aarch64) {
			a.mov32(rax, at(rR, 20000))
			a.mov32(rcx, at(rR, 20004)) // from the same address
			a.next = 1
			a.place(a.newLabel()) // which forgets it
			a.mov32(rcx, at(rR, 20004))
		}},
		{"add x16, x0, 4, lsl 12; add x16, x16, 3616; ldr w9, [x16]", false, func(a *aarch64) { a.mov32(rax, at(rdi, 20000)) }},
		{"adr x16, .+64; ldr w9, [x16, 4]", false, func(a *aarch64) { a.mov32(rax, a.const64(7).plus(4)) }},
		{"adr x16, .+64; sub x16, x16, 257; ldr w9, [x16]", false, func(a *aarch64) { a.mov32(rax, a.const64(7).plus(-257)) }},
		{"movz w9, 5; movn w10, 0, lsl 16; movn w11, 1", false, func(a *aarch64) { a.movi32(rax, 5); a.movi32(rcx, -1); a.movi32(rdx, -2) }},
		{"movz w9, 0x5678; movk w9, 0x1234, lsl 16; movz w9, 1, lsl 16", false, func(a *aarch64) {
			a.movi32(rax, 0x12345678)
			a.movi32(rax, 0x10000)
		}},
		{"str wzr, [x0, 4]; movz w17, 7; str w17, [x0, 4]", false, func(a *aarch64) { a.movi32(at(rdi, 4), 0); a.movi32(at(rdi, 4), 7) }},
		{"movz x17, 0x5678; movk x17, 0x1234, lsl 48", false, func(a *aarch64) { a.moveImmediate(xValue, 0x1234000000005678, true) }},
		{"movn x17, 0xedcb, lsl 32", false, func(a *aarch64) { a.moveImmediate(xValue, 0xffff1234ffffffff, true) }},
		{"movn x17, 0xffff; movk x17, 0xff00, lsl 16", false, func(a *aarch64) { a.moveImmediate(xValue, 0xffffffffff000000, true) }},
		{"movz x17, 0, lsl 48", false, func(a *aarch64) { a.moveImmediate(xValue, 0, true) }},
		{"sub x9, x10, 5; add x9, x10, 1, lsl 12", false, func(a *aarch64) { a.addImmediate(9, 10, -5); a.addImmediate(9, 10, 4096) }},
		{"add x9, x10, 0x123, lsl 12; add x9, x9, 0x456", false, func(a *aarch64) { a.addImmediate(9, 10, 0x123456) }},
		{"movz x17, 0x100, lsl 16; add x9, x10, x17", false, func(a *aarch64) { a.addImmediate(9, 10, 1<<24) }},
		{"add x9, x10, 8", false, func(a *aarch64) { a.lea(rax, at(rcx, 8)) }},
		{"add x9, x10, x11, lsl 3; add x9, x10, x11; sub x9, x9, 16", false, func(a *aarch64) {
			a.lea(rax, indexed(rcx, rdx, 3, 0))
			a.lea(rax, indexed(rcx, rdx, 0, -16))
		}},
		{"adr x11, .+64; add x11, x11, 8", false, func(a *aarch64) { a.lea(rdx, a.const64(7).plus(8)) }},
		{"adr x11, .; movz w17, 64; movk w17, 0, lsl 16; add x11, x11, w17, sxtw", true, func(a *aarch64) { a.lea(rdx, a.const64(7)) }},
		{"adds w9, w9, w10; subs w9, w9, w10; cmp w9, w10; ands w9, w9, w10; orr w9, w9, w10; eor w9, w9, w10", false, func(a *aarch64) {
			for _, op := range []int{aluAdd, aluSub, aluCmp, aluAnd, aluOr, aluXor} {
				a.alu32(op, rax, rcx)
			}
		}},
		{"adds x0, x0, x8; subs x0, x0, x8; cmp x0, x8; ands x0, x0, x8; orr x0, x0, x8; eor x0, x0, x8", false, func(a *aarch64) {
			for _, op := range []int{aluAdd, aluSub, aluCmp, aluAnd, aluOr, aluXor} {
				a.alu64(op, rdi, r15)
			}
		}},
		{"ldr w17, [x10, 4]; adds w9, w9, w17", false, func(a *aarch64) { a.alu32(aluAdd, rax, at(rcx, 4)) }},
		{"adds w9, w9, 5; subs w9, w9, 5; subs w9, w9, 4095; adds w9, w9, 5; cmp w9, 5; cmn w9, 1", false, func(a *aarch64) {
			a.alu32i(aluAdd, rax, 5)
			a.alu32i(aluAdd, rax, -5)
			a.alu32i(aluSub, rax, 4095)
			a.alu32i(aluSub, rax, -5)
			a.alu32i(aluCmp, rax, 5)
			a.alu32i(aluCmp, rax, -1)
		}},
		{"movz w17, 31; ands w9, w9, w17; movz w17, 0x1000; cmp w9, w17", false, func(a *aarch64) { a.alu32i(aluAnd, rax, 31); a.alu32i(aluCmp, rax, 4096) }},
		{"ldr x15, [x0, 16]; subs x15, x15, 9; str x15, [x0, 16]", false, func(a *aarch64) { a.alu64i(aluSub, at(rdi, 16), 9) }},
		{"ldr w15, [x0, 64]; movz w17, 0x1234; cmp w15, w17", false, func(a *aarch64) { a.alu32i(aluCmp, at(rdi, 64), 0x1234) }},
		{"movz x17, 24; mul x9, x10, x17; movz x17, 24; ldr x16, [x10, 8]; mul x9, x16, x17", false, func(a *aarch64) {
			a.imul64i(rax, rcx, 24)
			a.imul64i(rax, at(rcx, 8), 24)
		}},
		{"tst w9, w10; tst x11, x14; movz w17, 15; tst w9, w17", false, func(a *aarch64) { a.test32(rax, rcx); a.test64(rdx, rsi); a.test32i(rax, 15) }},
		{"lsl w9, w9, 3; lsl w10, w10, 31; lsl w11, w11, 1", false, func(a *aarch64) { a.shl32(rax, 3); a.shl32(rcx, 31); a.shl32(rdx, 1) }},
		{"mvn w9, w9; adds x10, x10, 1", false, func(a *aarch64) { a.not32(rax); a.inc64(rcx) }},
		{"mov x27, x30; ret x27; ret", false, func(a *aarch64) { a.prologue(); a.leave(); a.ret() }},
		{"rbit w9, w10; clz w9, w9; sub w17, w10, 1; ands w9, w10, w17", false, func(a *aarch64) { a.tzcnt(rax, rcx); a.blsr(rax, rcx) }},
		{"movz w17, 1; lsl w17, w17, w10; orr w9, w9, w17", false, func(a *aarch64) { a.setBit(rax, rcx) }},
		{"tst x10, x10; b.eq .+28; ldr x9, [x6]; str x9, [x5]; adds x6, x6, 8; adds x5, x5, 8; subs x10, x10, 1; b .-28", false, func(a *aarch64) {
			a.forward(r12, r13, rcx)
		}},
		{"ldr x16, [x0, 48]; br x16", false, func(a *aarch64) { a.jumpTo(at(rdi, 48)) }},
		{"b .+8; bl .+4; ret; b .-4; b.lo .-8; b.hs .-12; b.eq .-16; b.ne .-20; b.hi .-24; b.ge .-28; b.le .-32", false, func(a *aarch64) {
			l := a.newLabel()
			a.jmp(l)
			a.call(l)
			a.place(l)
			a.ret()
			a.jmp(l)
			for _, cc := range []byte{ccB, ccAE, ccE, ccNE, ccA, ccGE, ccLE} {
				a.jcc(cc, l)
			}
		}},
		{"b.hs .+8; b .+4; ret", true, func(a *aarch64) { l := a.newLabel(); a.jcc(ccB, l); a.place(l); a.ret() }},
	}
}

// a64Vector are vectors: emitter register n is v2n and v2n+1.
func a64Vector() []a64Case {
	v := func(a *aarch64, o vop, d, n int, rm any, imm ...byte) { a.vector(o, w256, d, n, rm, imm) }
	v128 := func(a *aarch64, o vop, d, n int, rm any) { a.vector(o, w128, d, n, rm, nil) }
	same := func(v uint32) string { return words32(func(int) uint32 { return v }) }
	count := words32(func(i int) uint32 { return uint32(i) })
	period := words32(func(i int) uint32 { return uint32(i % 4) })
	constant := func(a *aarch64, s string) mem { return a.constant([]byte(s)) }
	return []a64Case{
		{"ldp q2, q3, [x14, 1008]; stp q30, q31, [x14, -1024]", false, func(a *aarch64) { v(a, vmovups, 1, 0, at(rR, 1008)); v(a, vstoreups, 15, 0, at(rR, -1024)) }},
		{"add x19, x14, 5, lsl 12; ldp q2, q3, [x19, -480]", false, func(a *aarch64) { v(a, vmovupd, 1, 0, at(rR, 20000)) }},
		{"add x19, x14, 4, lsl 12; add x19, x19, 2048; ldp q2, q3, [x19]", false, func(a *aarch64) { v(a, vmovups, 1, 0, at(rR, 18432)) }},
		{"mov v2.16b, v8.16b; mov v3.16b, v9.16b; mov v8.16b, v2.16b; mov v9.16b, v3.16b", false, func(a *aarch64) { v(a, vmovups, 1, 0, 4); v(a, vstoreups, 1, 0, 4) }},
		{"ldr q2, [x14, 65520]; ldur q2, [x14, -8]; str q2, [x14, 16]", false, func(a *aarch64) {
			v128(a, vmovups, 1, 0, at(rR, 65520))
			v128(a, vmovups, 1, 0, at(rR, -8))
			v128(a, vstoreups, 1, 0, at(rR, 16))
		}},
		{"mov v2.16b, v8.16b; fadd v2.4s, v4.4s, v8.4s", false, func(a *aarch64) { v128(a, vmovups, 1, 0, 4); v128(a, vaddps, 1, 2, 4) }},
		{"movi v28.4s, 165; add v0.4s, v2.4s, v28.4s; add v1.4s, v3.4s, v28.4s", false, func(a *aarch64) { v(a, vpaddd, 0, 1, constant(a, same(165))) }},
		{"ldr q0, .+64; mov v1.16b, v0.16b", false, func(a *aarch64) { v(a, vmovups, 0, 0, constant(a, same(0x12340000))) }},
		{"adr x16, .+64; ldp q0, q1, [x16]", false, func(a *aarch64) { v(a, vmovups, 0, 0, constant(a, count)) }},
		{"ldr q0, .+64; mov v1.16b, v0.16b", false, func(a *aarch64) { v(a, vmovups, 0, 0, constant(a, period)) }},
		{"adr x16, .; movz w17, 64; movk w17, 0, lsl 16; add x16, x16, w17, sxtw; ldr q0, [x16]; mov v1.16b, v0.16b", true, func(a *aarch64) {
			v(a, vmovups, 0, 0, constant(a, period))
		}},
		{"adr x16, .+64; ldp q28, q29, [x16]; fmul v0.4s, v2.4s, v28.4s; fmul v1.4s, v3.4s, v29.4s", false, func(a *aarch64) { v(a, vmulps, 0, 1, constant(a, count)) }},
		{"movi v4.4s, 7; mov v5.16b, v4.16b", false, func(a *aarch64) { a.splat32(2, 7) }},
		{"mvni v4.4s, 0x80, lsl 24; mov v5.16b, v4.16b; movi v4.4s, 0x7f, msl 8; mov v5.16b, v4.16b", false, func(a *aarch64) {
			a.splat32(2, nan32)
			a.splat32(2, nan16)
		}},
		{"movi v3.4s, 0xa5, lsl 8; movi v3.4s, 0x12, lsl 16; movi v3.4s, 0xff, lsl 24; movi v3.4s, 0x80, msl 16", false, func(a *aarch64) {
			for _, v := range []uint32{0xa500, 0x120000, 0xff000000, 0x80ffff} {
				a.splat(3, v)
			}
		}},
		{"mvni v3.4s, 0; mvni v3.4s, 0x12, lsl 8; mvni v3.4s, 0x12, msl 8; mvni v3.4s, 0x12, msl 16", false, func(a *aarch64) {
			for _, v := range []uint32{0, 0x1200, 0x12ff, 0x12ffff} {
				a.splat(3, ^v)
			}
		}},
		{"movz w17, 0x5678; movk w17, 0x1234, lsl 16; dup v3.4s, w17", false, func(a *aarch64) { a.splat(3, 0x12345678) }},
		{"bic v2.4s, 0x80, lsl 24; bic v3.4s, 0x80, lsl 24; movi v28.4s, 31; and v2.16b, v2.16b, v28.16b; and v3.16b, v3.16b, v28.16b", false, func(a *aarch64) {
			v(a, vpand, 1, 1, constant(a, same(0x7fffffff)))
			v(a, vpand, 1, 1, constant(a, same(31)))
		}},
		{"neg v4.4s, v4.4s; neg v5.4s, v5.4s; ushl v2.4s, v2.4s, v4.4s; ushl v3.4s, v3.4s, v5.4s", false, func(a *aarch64) { a.shiftRight(pairOf(1), pairOf(2)) }},
		{"ldr q2, .+64; mov v3.16b, v2.16b", false, func(a *aarch64) { a.splat64(1, 1<<52) }},
		{"movz x17, 0x10, lsl 48; dup v2.2d, x17; mov v3.16b, v2.16b", true, func(a *aarch64) { a.splat64(1, 1<<52) }},
		{"movz w17, 0x5678; movk w17, 0x1234, lsl 16; dup v0.4s, w17; mov v1.16b, v0.16b", true, func(a *aarch64) {
			v(a, vmovups, 0, 0, constant(a, same(0x12345678)))
		}},
		{"ld1r {v2.4s}, [x14]; mov v3.16b, v2.16b; add x16, x0, 8; ld1r {v2.2d}, [x16]; mov v3.16b, v2.16b", false, func(a *aarch64) {
			v(a, vbroadcast, 1, 0, at(rR, 0))
			v(a, vbroadcastq, 1, 0, at(rdi, 8))
		}},
		{"fsqrt v0.4s, v2.4s; fsqrt v1.4s, v3.4s", false, func(a *aarch64) { v(a, vsqrtps, 0, 0, 1) }},
		{"fcvtl2 v1.2d, v2.4s; fcvtl v0.2d, v2.2s; ldr q28, [x14, 32]; uxtl2 v1.4s, v28.8h; uxtl v0.4s, v28.4h", false, func(a *aarch64) {
			v(a, vcvtps2pd, 0, 0, 1)
			v(a, vpmovzxwd, 0, 0, at(rR, 32))
		}},
		{"fcvtn v4.4h, v2.4s; fcvtn2 v4.8h, v3.4s", false, func(a *aarch64) { v(a, vcvtps2ph, 1, 0, 2, 0) }},
		{"fcvtzs v26.2d, v2.2d; fcvtzs v27.2d, v3.2d; xtn v0.2s, v26.2d; xtn2 v0.4s, v27.2d", false, func(a *aarch64) { v(a, vcvttpd2dq, 0, 0, 1) }},
		{"bic v0.16b, v4.16b, v2.16b; bic v1.16b, v5.16b, v3.16b", false, func(a *aarch64) { v(a, vpandn, 0, 1, 2) }},
		{"fmla v0.4s, v2.4s, v4.4s; fmla v1.4s, v3.4s, v5.4s", false, func(a *aarch64) { v(a, vfmadd231ps, 0, 1, 2) }},
		{"mov v26.16b, v4.16b; mov v27.16b, v5.16b; fmla v26.4s, v0.4s, v2.4s; fmla v27.4s, v1.4s, v3.4s; mov v0.16b, v26.16b; mov v1.16b, v27.16b", false, func(a *aarch64) { v(a, vfmadd213ps, 0, 1, 2) }},
		{"fcmgt v26.4s, v4.4s, v2.4s; mov v0.16b, v4.16b; bit v0.16b, v2.16b, v26.16b; fcmgt v26.4s, v5.4s, v3.4s; mov v1.16b, v5.16b; bit v1.16b, v3.16b, v26.16b", false, func(a *aarch64) { v(a, vminps, 0, 1, 2) }},
		{"fcmgt v26.2d, v2.2d, v4.2d; bit v4.16b, v2.16b, v26.16b; fcmgt v26.2d, v3.2d, v5.2d; bit v5.16b, v3.16b, v26.16b", false, func(a *aarch64) { v(a, vmaxpd, 2, 1, 2) }},
		{"movi v27.4s, 64; umin v26.4s, v4.4s, v27.4s; ushl v0.4s, v2.4s, v26.4s; umin v26.4s, v5.4s, v27.4s; ushl v1.4s, v3.4s, v26.4s", false, func(a *aarch64) { v(a, vpsllvd, 0, 1, 2) }},
		{"movi v27.4s, 64; umin v26.4s, v4.4s, v27.4s; neg v26.4s, v26.4s; sshl v0.4s, v2.4s, v26.4s; umin v26.4s, v5.4s, v27.4s; neg v26.4s, v26.4s; sshl v1.4s, v3.4s, v26.4s", false, func(a *aarch64) { v(a, vpsravd, 0, 1, 2) }},
		{"movi v27.4s, 64; umin v26.4s, v4.4s, v27.4s; neg v26.2d, v26.2d; ushl v0.2d, v2.2d, v26.2d; umin v26.4s, v5.4s, v27.4s; neg v26.2d, v26.2d; ushl v1.2d, v3.2d, v26.2d", false, func(a *aarch64) { v(a, vpsrlvq, 0, 1, 2) }},
		{"frintn v0.4s, v2.4s; frintn v1.4s, v3.4s; frintm v0.4s, v2.4s; frintm v1.4s, v3.4s; frintp v0.4s, v2.4s; frintp v1.4s, v3.4s; frintz v0.4s, v2.4s; frintz v1.4s, v3.4s", false, func(a *aarch64) {
			for imm := range 4 {
				v(a, vroundps, 0, 0, 1, byte(8+imm))
			}
		}},
		{"frintm v0.2d, v2.2d; frintm v1.2d, v3.2d", false, func(a *aarch64) { v(a, vroundpd, 0, 0, 1, 9) }},
		{"fcmeq v0.4s, v2.4s, v4.4s; fcmeq v1.4s, v3.4s, v5.4s", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 2, 0) }},
		{"fcmeq v0.2d, v2.2d, v4.2d; not v0.16b, v0.16b; fcmeq v1.2d, v3.2d, v5.2d; not v1.16b, v1.16b", false, func(a *aarch64) { v(a, vcmppd, 0, 1, 2, 4) }},
		{"fcmgt v26.4s, v2.4s, v4.4s; fcmgt v27.4s, v4.4s, v2.4s; orr v0.16b, v26.16b, v27.16b; fcmgt v26.4s, v3.4s, v5.4s; fcmgt v27.4s, v5.4s, v3.4s; orr v1.16b, v26.16b, v27.16b", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 2, 0x0c) }},
		{"fcmgt v0.4s, v4.4s, v2.4s; fcmgt v1.4s, v5.4s, v3.4s; fcmge v0.4s, v4.4s, v2.4s; fcmge v1.4s, v5.4s, v3.4s", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 2, 0x11); v(a, vcmpps, 0, 1, 2, 0x12) }},
		{"fcmgt v0.4s, v2.4s, v4.4s; fcmgt v1.4s, v3.4s, v5.4s; fcmge v0.4s, v2.4s, v4.4s; fcmge v1.4s, v3.4s, v5.4s", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 2, 0x1e); v(a, vcmpps, 0, 1, 2, 0x1d) }},
		{"fcmeq v26.4s, v2.4s, v2.4s; not v0.16b, v26.16b; fcmeq v26.4s, v3.4s, v3.4s; not v1.16b, v26.16b", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 1, 3) }},
		{"fcmeq v26.4s, v2.4s, v2.4s; fcmeq v27.4s, v4.4s, v4.4s; and v26.16b, v26.16b, v27.16b; mov v0.16b, v26.16b; fcmeq v26.4s, v3.4s, v3.4s; fcmeq v27.4s, v5.4s, v5.4s; and v26.16b, v26.16b, v27.16b; mov v1.16b, v26.16b", false, func(a *aarch64) { v(a, vcmpps, 0, 1, 2, 7) }},
		{"bit v2.16b, v4.16b, v6.16b; bit v3.16b, v5.16b, v7.16b", false, func(a *aarch64) { v(a, vblendvps, 1, 1, 2, 3<<4) }},
		{"bif v4.16b, v2.16b, v6.16b; bif v5.16b, v3.16b, v7.16b", false, func(a *aarch64) { v(a, vblendvps, 2, 1, 2, 3<<4) }},
		{"bsl v6.16b, v4.16b, v2.16b; bsl v7.16b, v5.16b, v3.16b", false, func(a *aarch64) { v(a, vblendvps, 3, 1, 2, 3<<4) }},
		{"mov v0.16b, v2.16b; bit v0.16b, v4.16b, v6.16b; mov v1.16b, v3.16b; bit v1.16b, v5.16b, v7.16b", false, func(a *aarch64) { v(a, vblendvps, 0, 1, 2, 3<<4) }},
		{"mov v1.16b, v4.16b; mov v0.16b, v2.16b", false, func(a *aarch64) { v(a, vinsertX, 0, 1, 2, 1) }},
		{"movi v26.4s, 3; and v26.16b, v26.16b, v4.16b; movi v27.4s, 3; and v27.16b, v27.16b, v5.16b; movz w17, 0x404; movk w17, 0x404, lsl 16; dup v28.4s, w17; movz w17, 0x100; movk w17, 0x302, lsl 16; dup v29.4s, w17; mul v26.4s, v26.4s, v28.4s; add v26.4s, v26.4s, v29.4s; mul v27.4s, v27.4s, v28.4s; add v27.4s, v27.4s, v29.4s; tbl v0.16b, {v2.16b}, v26.16b; tbl v1.16b, {v3.16b}, v27.16b", false, func(a *aarch64) { v(a, vpermilpsV, 0, 1, 2) }},
		{"shl v4.8h, v2.8h, 8; shl v5.8h, v3.8h, 8; shl v4.4s, v2.4s, 0; shl v5.4s, v3.4s, 0; shl v4.2d, v2.2d, 63; shl v5.2d, v3.2d, 63", false, func(a *aarch64) {
			a.shiftI(vpsllwI, 6, 2, 1, 8)
			a.shiftI(vpslldI, 6, 2, 1, 0)
			a.shiftI(vpsllqI, 6, 2, 1, 63)
		}},
		{"ushr v4.4s, v2.4s, 31; ushr v5.4s, v3.4s, 31; ushr v4.2d, v2.2d, 1; ushr v5.2d, v3.2d, 1; mov v4.16b, v2.16b; mov v5.16b, v3.16b; movi v4.4s, 0; movi v5.4s, 0", false, func(a *aarch64) {
			a.shiftI(vpsrldI, 2, 2, 1, 31)
			a.shiftI(vpsrlqI, 2, 2, 1, 1)
			a.shiftI(vpsrldI, 2, 2, 1, 0)
			a.shiftI(vpsrldI, 2, 2, 1, 32)
		}},
		{"sshr v4.8h, v2.8h, 1; sshr v5.8h, v3.8h, 1; sshr v4.4s, v2.4s, 32; sshr v5.4s, v3.4s, 32", false, func(a *aarch64) {
			a.shiftI(vpsrawI, 4, 2, 1, 1)
			a.shiftI(vpsradI, 4, 2, 1, 200)
		}},
		{"adr x16, .+64; ldp q28, q29, [x16]; dup v4.4s, w8; cmtst v5.4s, v4.4s, v29.4s; cmtst v4.4s, v4.4s, v28.4s", false, func(a *aarch64) {
			a.testBits(r, pairOf(2), constant(a, count), general[rEM])
		}},
		{"adr x16, .+64; ldp q28, q29, [x16]; dup v4.2d, x8; cmtst v5.2d, v4.2d, v29.2d; cmtst v4.2d, v4.2d, v28.2d", false, func(a *aarch64) {
			a.testBits(q, pairOf(2), constant(a, count), general[rEM])
		}},
		{"fcmeq v26.4s, v2.4s, v2.4s; bif v2.16b, v30.16b, v26.16b; fcmeq v26.4s, v3.4s, v3.4s; bif v3.16b, v31.16b, v26.16b", false, func(a *aarch64) { a.canon(pairOf(1)) }},
		{"umull v26.2d, v2.2s, v4.2s; umull2 v27.2d, v2.4s, v4.4s; uzp2 v2.4s, v26.4s, v27.4s; umull v26.2d, v3.2s, v5.2s; umull2 v27.2d, v3.4s, v5.4s; uzp2 v3.4s, v26.4s, v27.4s", false, func(a *aarch64) { a.upper32(pairOf(1), pairOf(2), false) }},
		{"smull v26.2d, v2.2s, v4.2s; smull2 v27.2d, v2.4s, v4.4s; uzp2 v2.4s, v26.4s, v27.4s; smull v26.2d, v3.2s, v5.2s; smull2 v27.2d, v3.4s, v5.4s; uzp2 v3.4s, v26.4s, v27.4s", false, func(a *aarch64) { a.upper32(pairOf(1), pairOf(2), true) }},
		{"fmax v0.4s, v2.4s, v4.4s; fmax v1.4s, v3.4s, v5.4s; fcmeq v26.4s, v0.4s, v0.4s; bif v0.16b, v30.16b, v26.16b; fcmeq v26.4s, v1.4s, v1.4s; bif v1.16b, v31.16b, v26.16b", false, func(a *aarch64) { a.extreme(true, true, pairOf(0), pairOf(1), pairOf(2), pairOf(3)) }},
		{"xtn v0.4h, v2.4s; fcvtl v0.4s, v0.4h; xtn v1.4h, v3.4s; fcvtl v1.4s, v1.4h; shrn v0.4h, v2.4s, 16; fcvtl v0.4s, v0.4h; shrn v1.4h, v3.4s, 16; fcvtl v1.4s, v1.4h", false, func(a *aarch64) {
			a.halves(pairOf(0), pairOf(1), false)
			a.halves(pairOf(0), pairOf(1), true)
		}},
		{"umax v2.4s, v2.4s, v3.4s; umaxv s2, v2.4s; umov w9, v2.s[0]", false, func(a *aarch64) { a.largest(1) }},
		{"adr x16, .+64; ldp q28, q29, [x16]; bic v4.16b, v28.16b, v4.16b; bic v5.16b, v29.16b, v5.16b; orr v4.16b, v4.16b, v5.16b; addv s4, v4.4s; umov w17, v4.s[0]; orr w10, w10, w17, lsl 24", false, func(a *aarch64) { a.gatherBits(pairOf(2), constant(a, count), 24) }},
		{"fmla v3.4s, v24.4s, v16.s[0]; fmla v3.4s, v25.4s, v31.s[1]; fmla v3.4s, v24.4s, v7.s[2]; fmla v15.4s, v24.4s, v16.s[3]", false, func(a *aarch64) {
			a.fmlaBy(3, 24, 16, 0)
			a.fmlaBy(3, 25, 31, 1)
			a.fmlaBy(3, 24, 7, 2)
			a.fmlaBy(15, 24, 16, 3)
		}},
		{"str s26, [x14, 4]", false, func(a *aarch64) { a.access(2<<30|accStore|accVector, 2, vTemp, at(rR, 4)) }},
	}
}

// neonConstants are the instructions among the constants of neon.go, in order.
func neonConstants(t *testing.T) (names []string, words map[string]uint32) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "neon.go", nil, 0)
	require.NoError(t, err)
	words = map[string]uint32{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !regexp.MustCompile(`^n[A-Z]`).MatchString(spec.Names[0].Name) {
			return true
		}
		word, err := strconv.ParseUint(spec.Values[0].(*ast.BasicLit).Value, 0, 32)
		require.NoError(t, err)
		names = append(names, spec.Names[0].Name)
		words[spec.Names[0].Name] = uint32(word)
		return true
	})
	return names, words
}

// instruction is a text and its encoding.
type instruction struct {
	text string
	word uint32
}

// neonInstructions are the constants with two sets of registers, in which each bit of a number is once set and once not.
func neonInstructions(t *testing.T) (out []instruction) {
	names, words := neonConstants(t)
	rows := strings.Split(strings.TrimSpace(neonText), "\n")
	require.Len(t, rows, len(names), "a text for each constant")
	for i, row := range rows {
		name, text, _ := strings.Cut(row, " ")
		text = strings.TrimSpace(text)
		require.Equal(t, names[i], name, "texts are in the order of neon.go")
		for _, regs := range []map[byte]int{{'D': 21, 'N': 10, 'M': 26}, {'D': 10, 'N': 21, 'M': 5}} {
			word := words[name] | uint32(regs['D'])
			if strings.ContainsAny(text, "N") {
				word |= uint32(regs['N']) << 5
			}
			if strings.ContainsAny(text, "M") {
				word |= uint32(regs['M']) << 16
			}
			out = append(out, instruction{regexp.MustCompile(`[DNM]\d?`).ReplaceAllStringFunc(text, func(r string) string {
				n, _ := strconv.Atoi(r[1:])
				return strconv.Itoa(regs[r[0]] + n)
			}), word})
		}
	}
	return out
}

// emitted are the instructions of cases.
func emitted(t *testing.T) (out []instruction) {
	for _, c := range append(a64General(), a64Vector()...) {
		a := newAArch64(c.far)
		c.emit(a)
		n := len(a.buf)
		code, ok := a.finish()
		require.True(t, ok, c.text)
		texts := strings.Split(c.text, "; ")
		require.Len(t, texts, n/4, "%s: % x", c.text, code[:n])
		for i, text := range texts {
			out = append(out, instruction{text, binary.LittleEndian.Uint32(code[4*i:])})
		}
	}
	return out
}

// TestA64_EncodesAsTheGNUAssembler compares encodings with those of the same text by the GNU assembler. Machines without
// it compare them with testdata/a64.txt, which says what it made.
func TestA64_EncodesAsTheGNUAssembler(t *testing.T) {
	var source, listing strings.Builder
	var all []instruction
	for _, i := range append(neonInstructions(t), emitted(t)...) {
		if slices.Contains(all, i) {
			continue
		}
		all = append(all, i)
		fmt.Fprintln(&source, i.text)
		fmt.Fprintf(&listing, "%08x %s\n", i.word, i.text)
	}
	t.Run("golden", func(t *testing.T) { golden.Text(t, "testdata/a64.txt", listing.String()) })
	t.Run("assembler", func(t *testing.T) {
		words := arm64.Assemble(t, source.String())
		require.Len(t, words, len(all))
		for i, want := range words {
			require.Equal(t, fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", all[i].word), all[i].text)
		}
	})
}

// TestA64_TestsEachMethodOfTheMachine: those of vectors are in a64Vector.
func TestA64_TestsEachMethodOfTheMachine(t *testing.T) {
	source, err := os.ReadFile("a64_test.go")
	require.NoError(t, err)
	m := reflect.TypeFor[machine]()
	for i := range m.NumMethod() {
		require.Contains(t, string(source), "a."+m.Method(i).Name+"(")
	}
}
