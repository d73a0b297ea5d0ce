package jit

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// lengthX86 is the length of an instruction of amd64, of those that the emitter uses with AVX2.
func lengthX86(t *testing.T, code []byte) int {
	t.Helper()
	n := 0
	for code[n] == 0x66 || code[n] == 0xf3 || code[n]&0xf0 == 0x40 { // prefixes
		n++
	}
	op := code[n]
	n++
	imm := 0
	switch {
	case op == 0xc3 || op == 0xa5:
		return n
	case op == 0xe8 || op == 0xe9:
		return n + 4
	case op == 0x0f && code[n]&0xf0 == 0x80:
		return n + 5
	case op == 0x0f:
		n++
	case op == 0xc4: // VEX
		table := code[n] & 31
		op = code[n+2]
		n += 3
		if table == 3 || table == 1 && slices.Contains([]byte{0x70, 0x71, 0x72, 0x73, 0xc2, 0xc6}, op) {
			imm = 1
		}
	case op == 0x83 || op == 0xc1:
		imm = 1
	case op == 0x81 || op == 0x69 || op == 0xc7 || op == 0xf7 && code[n]>>3&7 == 0:
		imm = 4
	case op&7 == 3 && op < 0x40, slices.Contains([]byte{0x63, 0x85, 0x88, 0x89, 0x8b, 0x8d, 0xff, 0xf7}, op):
	default:
		t.Fatalf("an instruction %#x in % x", op, code[:min(16, len(code))])
	}
	mod, rm := code[n]>>6, code[n]&7
	n++
	if mod < 3 && rm == 4 {
		n++
	}
	switch {
	case mod == 1:
		n++
	case mod == 2 || mod == 0 && rm == 5:
		n += 4
	}
	return n + imm
}

// backwards is where a branch at the end of a loop goes, of an instruction at pc.
func backwards(arm bool, code []byte, pc int) (target int, ok bool) {
	if arm {
		word := binary.LittleEndian.Uint32(code[pc:])
		switch {
		case word>>24 == 0x54: // b.cond
			target = pc + int(int32(word<<8)>>13)*4
		case word>>26 == 5: // b
			target = pc + int(int32(word<<6)>>6)*4
		default:
			return 0, false
		}
		return target, target <= pc
	}
	if code[pc] != 0x0f || code[pc+1]&0xf0 != 0x80 {
		return 0, false
	}
	target = pc + 6 + int(int32(binary.LittleEndian.Uint32(code[pc+2:])))
	return target, target <= pc
}

// executed are the instructions that code of an instruction executes for a whole warp, if nothing is out of the
// ordinary: loops go over the lanes.
func executed(t *testing.T, level Level, in Inst, known map[int32]uint32) int {
	t.Helper()
	e := newEmitter(level, false)
	e.known = known
	e.exits, e.subs, e.left = map[[2]int]label{}, map[string]label{}, map[string]int{}
	e.insts, e.siteOf, e.leader, e.vNaN = []Inst{in}, []int32{-1}, make([]bool, 2), 15
	require.True(t, e.translate(&in), "%s %s", level, in.Def.Op)
	for _, sub := range e.subOf {
		sub()
	}
	hot := len(e.buf)
	for _, cold := range e.cold {
		cold()
	}
	code, ok := e.finish()
	require.True(t, ok)
	var starts []int
	total := 0
	for pc := 0; pc < hot; {
		starts = append(starts, pc)
		total++
		if target, ok := backwards(level == NEON, code, pc); ok {
			body := len(starts) - slices.Index(starts, target)
			require.Less(t, body, len(starts)+1, "a loop begins between instructions")
			total += 31 * body
		}
		if level == NEON {
			pc += 4
		} else {
			pc += lengthX86(t, code[pc:])
		}
		require.LessOrEqual(t, pc, hot)
	}
	return total
}

// counted are instructions, and what of: 32 elements, or the multiply-accumulates of an mma.
var counted = []struct {
	op string
	of int
}{
	{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 16 * 8 * 32},
	{"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", 16 * 8 * 32},
	{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16 * 8 * 16},
	{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16 * 8 * 16},
	{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 16 * 8 * 8},
	{"add.rn.f32", 32}, {"mul.rn.f32", 32}, {"fma.rn.f32", 32}, {"div.rn.f32", 32}, {"sqrt.rn.f32", 32},
	{"max.f32", 32}, {"min.NaN.f32", 32}, {"neg.f32", 32}, {"ex2.approx.f32", 32},
	{"cvt.f32.f16", 32}, {"cvt.rn.f16.f32", 32}, {"cvt.rn.f16x2.f32", 32}, {"cvt.f32.bf16", 32}, {"cvt.rn.bf16x2.f32", 32},
	{"cvt.rn.satfinite.e4m3x2.f32", 32}, {"cvt.rn.f16x2.e4m3x2", 32}, {"cvt.rzi.s32.f32", 32}, {"cvt.rn.f32.s32", 32},
	{"mov.b32", 32}, {"add.s32", 32}, {"mad.lo.s32", 32}, {"mad.wide.u32", 32}, {"add.s64", 32}, {"and.b32", 32}, {"shl.b32", 32}, {"shr.u32", 32},
	{"prmt.b32", 32}, {"setp.lt.f32", 32}, {"setp.ge.s32", 32}, {"setp.lt.u32", 32}, {"selp.f32", 32},
	{"ld.shared.f32", 32}, {"ld.shared.v4.f32", 32}, {"st.shared.f32", 32}, {"ld.global.f32", 32}, {"ld.global.v4.f32", 32},
	{"st.global.f32", 32}, {"shfl.sync.bfly.b32", 32},
}

// example is an instruction on rows that lie anywhere in a warp's.
func example(t *testing.T, op string) Inst {
	t.Helper()
	def := ptx.Lookup(op)
	require.NotNil(t, def, op)
	in := Inst{Def: def, Guard: -1, D: 31, A: 7, B: 20, C: 12}
	switch def.Does {
	case ptx.Load, ptx.Store:
		in.Size = 4
		in.Vec = []int32{31, 32, 33, 34}
		if !slices.Contains(def.Mods, "v4") {
			in.Vec = in.Vec[:1]
		}
	case ptx.Shuffle:
		in.Vec = []int32{3, 40}
	case ptx.Multiply:
		for row := range int32(14) {
			in.Vec = append(in.Vec, 10+row)
		}
	}
	return in
}

// above are instructions that exceed the bound, and why.
var above = map[string]string{
	"shl.b32": "NEON takes a signed byte as the count, so a greater one is limited first",
	"shr.u32": "NEON shifts to the right by negative counts, which are limited and negated first",
}

// TestNEON_InstructionsPerElement counts what is executed by the native code of instructions: times under emulation
// would say nothing. Vectors are half as wide as AVX2's.
func TestNEON_InstructionsPerElement(t *testing.T) {
	const most = 2.2
	text := "instructions per element or multiply-accumulate         AVX2   NEON  ratio\n"
	row := func(name string, of int, in Inst, known map[int32]uint32) {
		avx2, neon := executed(t, AVX2, in, known), executed(t, NEON, in, known)
		ratio := float64(neon) / float64(avx2)
		require.Equal(t, above[name] != "", ratio > most, "%s: %.2f", name, ratio)
		text += fmt.Sprintf("%-53s %6.3f %6.3f %6.2f\n", name, float64(avx2)/float64(of), float64(neon)/float64(of), ratio)
	}
	for _, c := range counted {
		in := example(t, c.op)
		row(c.op, c.of, in, nil)
		if c.op == "shl.b32" || c.op == "shr.u32" {
			row(c.op+" by a constant", c.of, in, map[int32]uint32{in.B: 7})
		}
	}
	for _, op := range slices.Sorted(maps.Keys(above)) {
		text += fmt.Sprintf("\nabove %.1f: %s: %s", most, op, above[op])
	}
	golden.Text(t, "testdata/instructions.txt", text+"\n")
}
