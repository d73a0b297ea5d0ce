package codegen_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

const elements = 1 << 16 // of a vector: 256 KB

// scaled lowers any region of an activation x and a weight w to y = a·x + w, a given by value; work is what the cost
// model is told.
func scaled(a float32, work *cost.Work) kerneltest.Lowering {
	return func(n *ir.Node, _ *kernel.Context) (*kernel.Spec, error) {
		return &kernel.Spec{Stem: "scaled", Family: "loop", Grid: [3]int{elements / 1024, 2, 2}, Block: [3]int{256, 1, 1}, Priority: -1, Work: work,
			Operands: []kernel.Operand{{Value: n.Inputs[0]}, {Value: n.Inputs[1]}, {Value: n.Outputs[0], Write: true},
				{Number: &kernel.Number{Type: "f32", Bits: uint64(math.Float32bits(a))}}},
			Emit: func(k *ptx.Kernel, params []ptx.Sym) {
				i, x := k.Reg(ptx.B32), k.RegVec(ptx.B32, 4)
				pointers, f := k.RegVec(ptx.B64, 3), k.RegVec(ptx.B32, 3)
				for j, s := range []string{"%tid.x", "%ctaid.x", "%ctaid.y", "%ctaid.z"} {
					k.I("mov.u32", x[j], ptx.Special(s))
				}
				k.I("mad.lo.s32", i, x[3], ptx.Imm(2), x[2])
				k.I("mad.lo.s32", i, i, ptx.Imm(elements/1024), x[1])
				k.I("mad.lo.s32", i, i, ptx.Imm(256), x[0])
				for j, p := range pointers {
					k.I("ld.param.u64", p, ptx.At(params[j], 0))
					k.I("mad.wide.u32", p, i, ptx.Imm(4), p)
				}
				k.I("ld.param.f32", f[0], ptx.At(params[3], 0))
				k.I("ld.global.f32", f[2], ptx.At(pointers[1], 0))
				k.I("griddepcontrol.wait")
				k.I("ld.global.f32", f[1], ptx.At(pointers[0], 0))
				k.I("fma.rn.f32", f[1], f[1], f[0], f[2])
				k.I("st.global.f32", ptx.At(pointers[2], 0), f[1])
				k.I("ret")
			}}, nil
	}
}

// scaledProgram applies scaled with the weights 1, 2, … in sequence; launches multiply by 2 and by 1 in turns.
func scaledProgram(t *testing.T, launches int, work *cost.Work, tg *target.Target) *runtime.Program {
	g := kerneltest.NewGraph(t, "g")
	typ := ir.T(ir.Float32, elements)
	y := g.AddInput("x", typ)
	for i := range launches {
		w := make([]float64, elements)
		for j := range w {
			w[j] = float64(i + 1)
		}
		r := g.Region(ir.FamilyLoop)
		c := g.Constant(g.Fresh("w"), ir.FromFloats(typ, w))
		y = r.Finish(r.Add("Add", nil, r.Read(y, false), r.Read(c, false))).Outputs[0]
	}
	g.Outputs = []*ir.Value{y}
	n := 0
	p, r := g.Program(kerneltest.Lowerings{ir.FamilyLoop: func(node *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
		n++
		return scaled(float32(1+n%2), work)(node, ctx)
	}}, tg)
	require.Len(t, r.Variant.Kernels, 1, "numbers and prefetches are no part of the text")
	return p
}

// runScaled runs it on ones with all checks on; it returns the last element and what each launch prefetched, in bytes.
func runScaled(t *testing.T, p *runtime.Program) (float32, []int64, error) {
	var fetched []int64
	d, err := emu.Open(emu.Options{Check: true, Profile: func(c *emu.Counts) {
		n := int64(0)
		for _, m := range c.Memories {
			n += 32 * m.PrefetchSectors
		}
		fetched = append(fetched, n)
	}})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	copy(runtime.View[float32](s.Input("x")), filled(elements, 1))
	err = s.Run(t.Context())
	out := s.Output(p.Outputs[0].Name)
	return math.Float32frombits(binary.LittleEndian.Uint32(out[len(out)-4:])), fetched, err
}

// TestNumbersAreParameters: two launches of one kernel, each with a number of its own.
func TestNumbersAreParameters(t *testing.T) {
	p := scaledProgram(t, 2, nil, target.Oldest())
	l := p.Variants[0].Entries[0].Launches
	for i, launch := range l {
		require.Equal(t, []runtime.Param{{Buffer: -1, Value: uint64(math.Float32bits(float32(2 - i))), Bytes: 4}}, launch.Params[3:])
		require.Nil(t, launch.Prefetch, "a target without dependent launch")
	}
	require.Equal(t, -1, l[0].Priority)
}

// TestPrefetch_WeightsAreFetched: launches that compute for a µs each prefetch the weights of their successors, 256
// KB each, as far as DRAM delivers them meanwhile. The last has no successor. All share a kernel.
func TestPrefetch_WeightsAreFetched(t *testing.T) {
	const count = 12
	tg := target.Default()
	us := tg.TFLOPS["f16"] * 1e6 / 2
	work := &cost.Work{Blocks: tg.SMs, Warps: 8, Resident: 1, Products: []cost.Products{{Type: "f16", MACs: us}}}
	p := scaledProgram(t, count, work, tg)
	v := &p.Variants[0]
	launches := v.Entries[0].Launches
	end := 4 * elements
	require.NotNil(t, launches[0].Prefetch)
	require.NotNil(t, launches[1].Prefetch, "DRAM does not deliver all while the first runs")
	for i, l := range launches {
		if l.Prefetch == nil {
			continue
		}
		at := v.Buffers[l.Prefetch.Buffer].Offset + l.Prefetch.Offset
		require.GreaterOrEqual(t, at, 4*elements*(i+1), "launch %d: not what it reads itself", i)
		require.Equal(t, max(end, 4*elements*(i+1)), at, "launch %d: where the previous one ended", i)
		end = at + l.Prefetch.Bytes
		require.Equal(t, []runtime.Param{{Buffer: l.Prefetch.Buffer, Offset: l.Prefetch.Offset, Bytes: 8}}, l.Params[3:4])
		require.EqualValues(t, l.Prefetch.Bytes, l.Params[6].Value)
	}
	require.Equal(t, count*4*elements, end)
	require.Nil(t, launches[count-1].Prefetch)
	require.Equal(t, runtime.Param{Buffer: -1, Bytes: 8}, launches[count-1].Params[3])

	got, fetched, err := runScaled(t, p)
	require.NoError(t, err)
	want := 1
	for i := range count {
		want = want*(2-i%2) + i + 1
	}
	require.Equal(t, float32(want), got)
	for i, l := range launches {
		want := 0
		if l.Prefetch != nil {
			want = l.Prefetch.Bytes
		}
		require.EqualValues(t, want, fetched[i], "launch %d asks for what it declares", i)
	}

	// What is declared bounds what may be asked for.
	launches[0].Prefetch.Bytes -= 16
	_, _, err = runScaled(t, p)
	var violation *emu.Violation
	require.ErrorAs(t, err, &violation)
	require.Equal(t, emu.Undeclared, violation.Rule)
}
