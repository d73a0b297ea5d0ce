package jit

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEncodings compares encodings with the text that GNU objdump gives for them.
func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
		emit func(e *emitter)
	}{
		{"mov ecx,DWORD PTR [r13+rbp*4+0x80]", "418b8cad80000000", func(e *emitter) { e.mov32(rcx, indexed(r13, rbp, 2, 128)) }},
		{"mov QWORD PTR [r12],r9", "4d890c24", func(e *emitter) { e.put64(at(r12, 0), r9) }},
		{"mov BYTE PTR [rdi+0x1],sil", "40887701", func(e *emitter) { e.put8(at(rdi, 1), rsi) }},
		{"cmp DWORD PTR [rdi+0x44],0x1234", "817f4434120000", func(e *emitter) { e.alu32i(aluCmp, at(rdi, 0x44), 0x1234) }},
		{"blsr ebp,ebp", "c4e250f3cd", func(e *emitter) { e.blsr(rbp, rbp) }},
		{"tzcnt r14d,ebp", "f3440fbcf5", func(e *emitter) { e.tzcnt(r14, rbp) }},
		{"vaddps zmm17,zmm30,ZMMWORD PTR [rsi+0x40]", "62e10c40584e01", func(e *emitter) { e.wide, e.x.wide = true, true; e.v(vaddps, 17, 30, at(rsi, 64)) }},
		{"vaddps zmm1,zmm2,ZMMWORD PTR [rsi+0x41]", "62f16c48588e41000000", func(e *emitter) { e.wide, e.x.wide = true, true; e.v(vaddps, 1, 2, at(rsi, 65)) }},
		{"vmovups zmm3{k6},zmm29", "62917c4e10dd", func(e *emitter) { e.wide, e.x.wide = true, true; e.vk(vmovups, 3, 0, 29, 6) }},
		{"vpsubq zmm16{k2}{z},zmm16,zmm0", "62e1fdc2fbc0", func(e *emitter) { e.x.evex(vpsubq, w512, 16, 16, 0, mod{k: 2, zero: true}, 0) }},
		{"vcmpunordps k1,zmm20,zmm21", "62b15c40c2cd03", func(e *emitter) { e.x.evex(vcmpps, w512, 1, 20, 21, mod{}, 1); e.b(3) }},
		{"vpsrld zmm8,zmm24,0x10", "62913d4872d010", func(e *emitter) { e.wide, e.x.wide = true, true; e.shiftI(vpsrldI, 2, 8, 24, 16) }},
		{"vpgatherdd zmm2{k1},DWORD PTR [r10+zmm16*1]", "62d27d41901402", func(e *emitter) { e.gather(vgatherdd, w512, 2, r10, 16, 1, 0) }},
		{"vinserti32x4 zmm1,zmm1,XMMWORD PTR [rax+rdx*1],0x3", "62f37548380c1003", func(e *emitter) {
			e.wide, e.x.wide = true, true
			e.vw(vinsertX, w512, 1, 1, indexed(rax, rdx, 0, 0), []byte{3})
		}},
		{"vpmovdw ymm9,zmm8", "62527e4833c1", func(e *emitter) { e.x.evex(vpmovdw, w512, 8, 0, 9, mod{}, 0) }},
		{"kshiftrd k7,k5,0x10", "c4e37931fd10", func(e *emitter) { e.x.kshiftr(7, 5, 16) }},
		{"kunpckwd k1,k2,k1", "c4e16c4bc9", func(e *emitter) { e.x.kunpck(1, 2, 1) }},
		{"vfmadd231ps ymm3,ymm10,ymm8", "c4c22db8d8", func(e *emitter) { e.v(vfmadd231ps, 3, 10, 8) }},
		{"vblendvps ymm1,ymm1,ymm15,ymm2", "c4c3754acf20", func(e *emitter) { e.vi(vblendvps, 1, 1, 15, 2<<4) }},
		{"vpermps zmm28,zmm24,ZMMWORD PTR [r14+0x40]", "62423d40166601", func(e *emitter) { e.wide, e.x.wide = true, true; e.v(vpermps, 28, 24, at(r14, 64)) }},
		{"vpermilps ymm3,ymm3,ymm4", "c4e2650cdc", func(e *emitter) { e.v(vpermilpsV, 3, 3, 4) }},
		{"vpermilps zmm30,zmm30,zmm25", "62020d400cf1", func(e *emitter) { e.wide, e.x.wide = true, true; e.v(vpermilpsV, 30, 30, 25) }},
		{"vpternlogd zmm5,zmm6,ZMMWORD PTR [rax],0xe4", "62f34d482528e4", func(e *emitter) { e.wide, e.x.wide = true, true; e.vi(vpternlogd, 5, 6, at(rax, 0), 0xe4) }},
		{"vpsraw zmm25,zmm25,0x1", "6291354071e101", func(e *emitter) { e.wide, e.x.wide = true, true; e.shiftI(vpsrawI, 4, 25, 25, 1) }},
		{"vpsllw ymm5,ymm2,0x8", "c4e15571f208", func(e *emitter) { e.shiftI(vpsllwI, 6, 5, 2, 8) }},
		{"vpaddw zmm26,zmm26,ZMMWORD PTR [rsi+0x40]", "62612d40fd5601", func(e *emitter) { e.wide, e.x.wide = true, true; e.v(vpaddw, 26, 26, at(rsi, 64)) }},
		{"vptest ymm0,ymm0", "c4e27d17c0", func(e *emitter) { e.v(vptest, 0, 0, 0) }},
		{"vpermq ymm4,ymm4,0xd8", "c4e3fd00e4d8", func(e *emitter) { e.vi(vpermq, 4, 0, 4, 0xd8) }},
	} {
		e := newEmitter(AVX2, false)
		c.emit(e)
		require.Equal(t, c.want, hex.EncodeToString(e.buf), c.text)
	}
}
