package codegen_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// scaled lowers any region of an activation x and a weight w to y = a·x + w, a given by value. Before it waits, the kernel
// asks L2 for what the next kernel reads, a line a thread; a reckless one loads it.
func scaled(a float32, reckless bool) codegen.Lower {
	return func(n *ir.Node, _ *kernel.Context) (*kernel.Spec, error) {
		return &kernel.Spec{Stem: "scaled", Family: "loop", Grid: [3]int{1, 1, 1}, Block: [3]int{64, 1, 1}, Priority: -1,
			Operands: []kernel.Operand{{Value: n.Inputs[0]}, {Value: n.Inputs[1]}, {Value: n.Outputs[0], Write: true}, {Prefetch: 200},
				{Number: &kernel.Number{Type: "f32", Bits: uint64(math.Float32bits(a))}}, {Prefetched: true}},
			Emit: func(k *ptx.Kernel, params []ptx.Sym) {
				i, bytes := k.RegVec(ptx.B32, 2), k.Reg(ptx.B32)
				pointers, f := k.RegVec(ptx.B64, 4), k.RegVec(ptx.B32, 3)
				k.I("mov.u32", i[0], ptx.Special("%tid.x"))
				for j, p := range pointers {
					k.I("ld.param.u64", p, ptx.At(params[j], 0))
					k.I("mad.wide.u32", p, i[0], ptx.Imm(4), p)
				}
				k.I("ld.param.f32", f[0], ptx.At(params[4], 0))
				k.I("ld.param.u32", bytes, ptx.At(params[5], 0))
				k.I("shl.b32", i[1], i[0], ptx.Imm(2))
				none, skip := k.Reg(ptx.Pred), k.NewLabel("skip")
				k.I("setp.ge.u32", none, i[1], bytes)
				k.If(none, "bra", skip)
				k.I("prefetch.global.L2", ptx.At(pointers[3], 0))
				if reckless {
					k.I("ld.global.f32", f[1], ptx.At(pointers[3], 0))
				}
				k.Place(skip)
				k.I("ld.global.f32", f[2], ptx.At(pointers[1], 0))
				k.I("griddepcontrol.wait")
				k.I("ld.global.f32", f[1], ptx.At(pointers[0], 0))
				k.I("fma.rn.f32", f[1], f[1], f[0], f[2])
				k.I("st.global.f32", ptx.At(pointers[2], 0), f[1])
				k.I("ret")
			}}, nil
	}
}

// TestNumbersAndPrefetchesAreParameters: two launches of one kernel, each with a number of its own; the first gets the
// second's weights to prefetch, the second has nobody behind it.
func TestNumbersAndPrefetchesAreParameters(t *testing.T) {
	g := kerneltest.NewGraph(t, "g")
	typ := ir.T(ir.Float32, 64)
	y := g.AddInput("x", typ)
	for _, w := range []float64{10, 100} {
		r := g.Region(ir.FamilyLoop)
		c := g.Constant(g.Fresh("w"), ir.Splat(typ, w))
		y = r.Finish(r.Add("Add", nil, r.Read(y, false), r.Read(c, false))).Outputs[0]
	}
	g.Outputs = []*ir.Value{y}
	program := func(reckless bool) *runtime.Program {
		n := float32(1)
		p, r := g.Program(codegen.Families{ir.FamilyLoop: func(node *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
			n++
			return scaled(n, reckless)(node, ctx)
		}}, target.Default())
		require.Len(t, r.Variant.Kernels, 1, "numbers are no part of the text")
		return p
	}
	p := program(false)
	v := &p.Variants[0]
	first, second := v.Entries[0].Launches[0], v.Entries[0].Launches[1]
	weights := second.Reads[1]
	require.Equal(t, runtime.ConstantBuffer, v.Buffers[weights.Buffer].Kind)
	require.Equal(t, []runtime.Access{{Buffer: weights.Buffer, Bytes: 200}}, first.Prefetch)
	require.NotContains(t, first.Reads, weights)
	require.Equal(t, []runtime.Param{{Buffer: weights.Buffer, Bytes: 8}, {Buffer: -1, Value: uint64(math.Float32bits(2)), Bytes: 4}, {Buffer: -1, Value: 200, Bytes: 4}}, first.Params[3:])
	require.Empty(t, second.Prefetch)
	require.Equal(t, []runtime.Param{{Buffer: -1, Bytes: 8}, {Buffer: -1, Value: uint64(math.Float32bits(3)), Bytes: 4}, {Buffer: -1, Bytes: 4}}, second.Params[3:])
	require.Equal(t, -1, first.Priority)

	run := func(p *runtime.Program) ([]byte, error) {
		d, err := emu.Open(emu.Options{Check: true})
		require.NoError(t, err)
		s, err := runtime.Open(t.Context(), p, d, runtime.ModelOptions{})
		require.NoError(t, err)
		copy(runtime.View[float32](s.Input("x")), filled(64, 1))
		return s.Output(p.Outputs[0].Name), s.Run(t.Context())
	}
	got, err := run(p)
	require.NoError(t, err)
	require.Equal(t, float32((1*2+10)*3+100), math.Float32frombits(binary.LittleEndian.Uint32(got[4*63:])))

	_, err = run(program(true))
	var violation *emu.Violation
	require.ErrorAs(t, err, &violation, "what is prefetched must not be loaded")
	require.Equal(t, emu.Undeclared, violation.Rule)
}
