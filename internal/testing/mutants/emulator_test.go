package mutants

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/foreignkernels"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// fault is something that the CPU device could have got wrong about an instruction: its meaning replaced, or what comes to the same,
// every such instruction of a kernel changed.
type fault struct {
	op     string // opcodes that contain it
	name   string
	eval   func(d *ptx.Def) any
	change func(in *ptx.Instr) error
}

// emulatorFaults are as near to the right meaning as can be: what a figure or a sentence of the ISA read wrongly would give.
var emulatorFaults = []fault{
	{op: "scale_vec::4X", name: "rows 0–7 take the scales of rows 8–15", eval: registers(func(x []ptx.Row32) { swapLanes(&x[14], 1) })},
	{op: "scale_vec::4X", name: "columns take the scales of their neighbours", eval: registers(func(x []ptx.Row32) { swapLanes(&x[17], 4) })},
	{op: "scale_vec::4X", name: "bytes of A's scales from the highest down", eval: registers(func(x []ptx.Row32) { eachLane(&x[14], bits.ReverseBytes32) })},
	{op: "scale_vec::4X", name: "bytes of B's scales from the highest down", eval: registers(func(x []ptx.Row32) { eachLane(&x[17], bits.ReverseBytes32) })},
	{op: "scale_vec::4X", name: "scales belong to 32 of k", eval: registers(func(x []ptx.Row32) {
		eachLane(&x[14], func(v uint32) uint32 { return v&255 | v&255<<8 | v>>8&255<<16 | v>>8&255<<24 })
	})},
	{op: "scale_vec::4X", name: "a scale's highest bit of exponent not read", eval: registers(func(x []ptx.Row32) { eachLane(&x[14], func(v uint32) uint32 { return v & 0x3f3f3f3f }) })},
	{op: "scale_vec::2X", name: "one scale for all of k", eval: registers(func(x []ptx.Row32) { eachLane(&x[17], func(v uint32) uint32 { return v & 255 * 0x101 }) })},
	{op: "scale_vec::2X", name: "the exponent's bias off by one", eval: registers(func(x []ptx.Row32) { eachLane(&x[14], func(v uint32) uint32 { return v + 0x0101 }) })},
	{op: "scale_vec::1X", name: "the second byte read", eval: registers(func(x []ptx.Row32) { eachLane(&x[14], func(v uint32) uint32 { return v >> 8 }) })},
	{op: "scale_vec::1X", name: "rows 0–7 take the scales of rows 8–15", eval: registers(func(x []ptx.Row32) { swapLanes(&x[14], 1) })},
	{op: "m16n8k64", name: "neighbours along k exchanged in A's bytes", eval: registers(func(x []ptx.Row32) {
		for i := 4; i < 8; i++ {
			eachLane(&x[i], func(v uint32) uint32 { return v&0x0f0f0f0f<<4 | v>>4&0x0f0f0f0f })
		}
	})},
	{op: "mma.sync", name: "halves of k exchanged in A", eval: registers(func(x []ptx.Row32) { x[4], x[5], x[6], x[7] = x[6], x[7], x[4], x[5] })},
	{op: "mma.sync", name: "rows 0–7 and 8–15 of A exchanged", eval: registers(func(x []ptx.Row32) { x[4], x[5], x[6], x[7] = x[5], x[4], x[7], x[6] })},
	{op: "mma.sync", name: "halves of k exchanged in B", eval: registers(func(x []ptx.Row32) { x[8], x[9] = x[9], x[8] })},
	{op: "mma.sync", name: "columns of B are lanes of a quad", eval: registers(func(x []ptx.Row32) { swapLanes(&x[8], 1); swapLanes(&x[9], 1) })},
	{op: "mma.sync", name: "accumulators of a row in the order of registers 0, 2", eval: registers(func(x []ptx.Row32) { x[11], x[12] = x[12], x[11] })},
	{op: "mma.sync", name: "nothing is accumulated", eval: registers(func(x []ptx.Row32) { x[10], x[11], x[12], x[13] = ptx.Row32{}, ptx.Row32{}, ptx.Row32{}, ptx.Row32{} })},
	{op: "f32.e4m3.e5m2", name: "B read as e4m3", eval: as("f32.e4m3.e5m2", "f32.e4m3.e4m3")},
	{op: "f32.e5m2.e4m3", name: "A read as e4m3", eval: as("f32.e5m2.e4m3", "f32.e4m3.e4m3")},
	{op: "f32.e5m2.e5m2", name: "B read as e4m3", eval: as("f32.e5m2.e5m2", "f32.e5m2.e4m3")},
	{op: "f32.bf16.bf16", name: "read as f16", eval: as("bf16.bf16", "f16.f16")},
	{op: "tf32", name: "the mantissa of bf16", eval: registers(func(x []ptx.Row32) {
		for i := 4; i < 10; i++ {
			eachLane(&x[i], func(v uint32) uint32 { return v &^ 0xffff })
		}
	})},
	{op: "s32.u8.s8", name: "u8 as signed", eval: as("u8.s8", "s8.s8")},
	{op: "s32.s8.u8", name: "u8 as signed", eval: as("s8.u8", "s8.s8")},
	{op: "s32.s8.s8", name: "A's s8 as unsigned", eval: func(*ptx.Def) any { return ptx.Lookup("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32").Eval }},
	{op: "f32.e4m3.e2m1", name: "e2m1 in the lowest bits of its byte", eval: registers(func(x []ptx.Row32) {
		for i := 8; i < 10; i++ {
			eachLane(&x[i], func(v uint32) uint32 { return v << 2 & 0x3c3c3c3c })
		}
	})},
	{op: "f32.e2m1.e5m2", name: "e2m1 in the highest bits of its byte", eval: registers(func(x []ptx.Row32) {
		for i := 4; i < 8; i++ {
			eachLane(&x[i], func(v uint32) uint32 { return v >> 2 & 0x3c3c3c3c })
		}
	})},

	{op: "ldmatrix", name: "matrices in the order 0, 2, 1, 3", change: swap(0, 1, 2)},
	{op: "ldmatrix.sync.aligned.m8n8.x4.shared", name: "transposed", eval: func(*ptx.Def) any { return ptx.Transposed(true) }},
	{op: "ldmatrix.sync.aligned.m8n8.x4.trans", name: "not transposed", eval: func(*ptx.Def) any { return ptx.Transposed(false) }},
	{op: "stmatrix.sync.aligned.m8n8.x4", name: "matrices in the order 0, 2, 1, 3", change: swap(1, 1, 2)},
	{op: "cp.async.wait_group", name: "one group fewer waited for", change: plus(0, 1)},
	{op: "cp.async.wait_all", name: "nothing waited for", change: opcode("cp.async.commit_group")},
	{op: "cp.async.cg", name: "the source's size not read: nothing is filled with zeros", change: func(in *ptx.Instr) error { in.Operands[3] = in.Operands[2]; return nil }},
	{op: "cp.async.ca", name: "nothing is copied, all is zeros", change: imm(3, 0)},
	{op: "shfl.sync.bfly", name: "the lane above in place of the one across", eval: func(*ptx.Def) any { return ptx.Lookup("shfl.sync.down.b32").Eval }},
	{op: "shfl.sync.up", name: "down in place of up", eval: func(*ptx.Def) any { return ptx.Lookup("shfl.sync.down.b32").Eval }},
	{op: "shfl.sync.down", name: "up in place of down", eval: func(*ptx.Def) any { return ptx.Lookup("shfl.sync.up.b32").Eval }},
	{op: "shfl.sync.idx", name: "relative in place of absolute", eval: func(*ptx.Def) any { return ptx.Lookup("shfl.sync.bfly.b32").Eval }},
	{op: "redux.sync.max", name: "least in place of greatest", eval: func(*ptx.Def) any { return ptx.Lookup("redux.sync.min.s32").Eval }},
	{op: "redux.sync.min.u32", name: "signed", eval: func(*ptx.Def) any { return ptx.Lookup("redux.sync.min.s32").Eval }},
	{op: "redux.sync.add", name: "greatest in place of the sum", eval: func(*ptx.Def) any { return ptx.Lookup("redux.sync.max.s32").Eval }},
	{op: "global.max.u32", name: "signed", eval: func(*ptx.Def) any { return ptx.Lookup("redux.sync.max.s32").Eval }},
	{op: "global.max.s32", name: "least in place of greatest", eval: func(*ptx.Def) any { return ptx.Lookup("redux.sync.min.s32").Eval }},
	{op: "atom.shared.add", name: "replaces", eval: func(*ptx.Def) any { return ptx.Combine(func(_, x uint32) uint32 { return x }) }},
	{op: "add.f32", name: "adds as integers", eval: func(d *ptx.Def) any {
		if d.Does == ptx.Atomic {
			return ptx.Lookup("atom.global.add.u32").Eval
		}
		return d.Eval
	}},
	{op: "cvt.rn.f16x2.f32", name: "the first source becomes the lower half", change: exchange(1, 2)},
	{op: "cvt.rn.satfinite.e4m3x2.f32", name: "the first source becomes the lower half", change: exchange(1, 2)},
	{op: "cvt.rn.satfinite.e5m2x2.f32", name: "the first source becomes the lower half", change: exchange(1, 2)},
	{op: "cvt.rn.satfinite.e2m1x2.f32", name: "the first source becomes the lower half", change: exchange(1, 2)},
	{op: "cvt.rn.bf16x2.f32", name: "the first source becomes the lower half", change: exchange(1, 2)},
	{op: "cvt.rn.satfinite.e5m2x2.f32", name: "rounds as e4m3", eval: func(*ptx.Def) any { return ptx.Lookup("cvt.rn.satfinite.e4m3x2.f32").Eval }},
	{op: "cvt.rn.bf16.f32", name: "truncates", eval: unaryOf(func(v uint32) uint32 { return v >> 16 })},
	{op: "cvt.rn.f16x2.e4m3x2", name: "read as e5m2", eval: func(*ptx.Def) any { return ptx.Lookup("cvt.rn.f16x2.e5m2x2").Eval }},
	{op: "cvt.rn.f16x2.e5m2x2", name: "read as e4m3", eval: func(*ptx.Def) any { return ptx.Lookup("cvt.rn.f16x2.e4m3x2").Eval }},
	{op: "cvt.sat.f32.f32", name: "not clipped", change: opcode("mov.f32")},
	{op: "cvt.rmi.f32.f32", name: "towards zero", change: opcode("cvt.rzi.f32.f32")},
	{op: "cvt.rpi.f32.f32", name: "to nearest", change: opcode("cvt.rni.f32.f32")},
	{op: "fma.rm.f32", name: "to nearest", change: opcode("fma.rn.f32")},
	{op: "mul.hi.u32", name: "signed", eval: func(*ptx.Def) any { return ptx.Lookup("mul.hi.s32").Eval }},
	{op: "mul.hi.s32", name: "unsigned", eval: func(*ptx.Def) any { return ptx.Lookup("mul.hi.u32").Eval }},
	{op: "shf.l.wrap", name: "to the right", eval: func(*ptx.Def) any {
		return func(d, a, b, c *ptx.Row32) {
			for l := range d {
				d[l] = uint32((uint64(b[l])<<32 | uint64(a[l])) >> (c[l] & 31))
			}
		}
	}},
	{op: "prmt.b32", name: "the words exchanged", change: exchange(1, 2)},
	{op: "bfe.s32", name: "unsigned", change: opcode("bfe.u32")},
	{op: "fma.rn.f32x2", name: "the addend is 0", eval: func(*ptx.Def) any {
		mul := ptx.Lookup("mul.rn.f32x2").Eval.(func(d, a, b, c *ptx.Row64))
		return func(d, a, b, _ *ptx.Row64) { mul(d, a, b, nil) }
	}},
	{op: "add.rn.f32x2", name: "the upper half not added", eval: func(d *ptx.Def) any {
		add := d.Eval.(func(d, a, b, c *ptx.Row64))
		return func(d, a, b, c *ptx.Row64) {
			upper := *a
			add(d, a, b, c)
			for l := range d {
				d[l] = d[l]&(1<<32-1) | upper[l]>>32<<32
			}
		}
	}},
}

// registers makes an mma read its registers changed: x holds d, a, b, c and, with block scales, those with their selectors.
func registers(f func(x []ptx.Row32)) func(d *ptx.Def) any {
	return func(d *ptx.Def) any {
		multiply := d.Eval.(func(r []ptx.Row32, v []int32))
		return func(r []ptx.Row32, v []int32) {
			x, own := make([]ptx.Row32, len(v)), make([]int32, len(v))
			for i, row := range v {
				x[i], own[i] = r[row], int32(i)
			}
			f(x)
			multiply(x, own)
			for i := range 4 {
				r[v[i]] = x[i]
			}
		}
	}
}

func eachLane(r *ptx.Row32, f func(uint32) uint32) {
	for l := range r {
		r[l] = f(r[l])
	}
}

// swapLanes exchanges lanes that differ in a bit.
func swapLanes(r *ptx.Row32, bit int) {
	was := *r
	for l := range r {
		r[l] = was[l^bit]
	}
}

// as gives an instruction the meaning of another.
func as(from, to string) func(d *ptx.Def) any {
	return func(d *ptx.Def) any { return ptx.Lookup(strings.Replace(d.Op, from, to, 1)).Eval }
}

func unaryOf(f func(uint32) uint32) func(d *ptx.Def) any {
	return func(*ptx.Def) any {
		return func(d, a, _, _ *ptx.Row32) {
			for l := range d {
				d[l] = f(a[l])
			}
		}
	}
}

// apply breaks the CPU device, or the text, and returns what mends it.
func (f *fault) apply() (edit func(string) (string, error), mend func()) {
	was := map[*ptx.Def]any{}
	if f.eval != nil {
		for _, op := range ptx.Opcodes() {
			if d := ptx.Lookup(op); strings.Contains(op, f.op) {
				was[d] = d.Eval
			}
		}
		for d := range was {
			d.Eval = f.eval(d)
		}
	}
	if f.change != nil {
		edit = func(text string) (string, error) {
			m, err := ptx.Parse(text)
			if err != nil {
				return "", err
			}
			for _, k := range m.Kernels {
				for _, s := range k.Body {
					if s.Instr == nil || !strings.Contains(s.Instr.Def.Op, f.op) {
						continue
					}
					s.Instr.Operands = slices.Clone(s.Instr.Operands)
					if err := f.change(s.Instr); err != nil {
						return "", fmt.Errorf("%w: %w", hal.ErrBadModule, err)
					}
				}
			}
			return m.String(), nil
		}
	}
	return edit, func() {
		for d, eval := range was {
			d.Eval = eval
		}
	}
}

// TestOthersKernelsNoticeABrokenDevice: each fault makes kernels that other compilers wrote give wrong answers, or a
// check reports them. docs/data/device-faults.csv counts them by compiler; UPDATE=1 writes it. The faults are the
// interpreter's; native code computes the same bits.
func TestOthersKernelsNoticeABrokenDevice(t *testing.T) {
	fulltest.Long(t)
	opts := emu.Options{Check: true, Engine: emu.Specification, Workers: 1}
	uses := map[string][]foreignkernels.Case{}
	for _, c := range foreignkernels.Cases() {
		same := fault{op: "mma", change: func(*ptx.Instr) error { return nil }}
		edit, _ := same.apply()
		require.NoError(t, c.Run(opts, edit), "%s unchanged", c.Name())
		m, err := c.Rewritten()
		require.NoError(t, err)
		parsed, err := ptx.Parse(m.Text)
		require.NoError(t, err)
		ops := map[string]bool{}
		for _, s := range parsed.Kernels[0].Body {
			if s.Instr != nil {
				ops[s.Instr.Def.Op] = true
			}
		}
		for op := range ops {
			uses[op] = append(uses[op], c)
		}
	}
	rows := [][]string{{"instructions", "fault", "noticed by"}}
	for i := range emulatorFaults {
		f := &emulatorFaults[i]
		t.Run(f.op+": "+f.name, func(t *testing.T) {
			found, seen, all := map[string]int{}, map[string]bool{}, 0
			edit, mend := f.apply()
			defer mend()
			for _, op := range slices.Sorted(maps.Keys(uses)) {
				if !strings.Contains(op, f.op) {
					continue
				}
				caught := 0
				for _, c := range uses[op] {
					err := c.Run(opts, edit)
					require.NotErrorIs(t, err, hal.ErrBadModule)
					if err != nil {
						caught++
					}
					if seen[c.Name()] {
						continue
					}
					seen[c.Name()] = true
					all++
					if err != nil {
						found[c.By()]++
					}
				}
				require.Positive(t, caught, "no kernel notices it of %s", op)
			}
			require.NotEmpty(t, found, "no kernel notices it")
			var who []string
			total := 0
			for _, name := range slices.Sorted(maps.Keys(found)) {
				who = append(who, fmt.Sprintf("%s %d", name, found[name]))
				total += found[name]
			}
			rows = append(rows, []string{f.op, f.name, fmt.Sprintf("%d of %d: %s", total, all, strings.Join(who, ", "))})
		})
	}
	if t.Failed() {
		return
	}
	golden.CSV(t, "../../../docs/data/device-faults.csv", rows)
	golden.States(t, testsPage, fmt.Sprintf("%d faults in the CPU device", len(emulatorFaults)))
}
