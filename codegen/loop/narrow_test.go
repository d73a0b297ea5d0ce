package loop

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// TestBytesTravelTogether: e4m3 is read and written 16 bytes at a time, by the hardware's conversions where there are some.
func TestBytesTravelTogether(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	random := func(typ ir.Type) *ir.Tensor {
		x := make([]float64, typ.Numel())
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return ir.FromFloats(typ, x)
	}
	for _, c := range []struct {
		name  string
		build func(g *ir.Graph, add func(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value, input func(typ ir.Type, constant bool) *ir.Value) *ir.Value
		reads string
		write string
	}{
		{"an elementwise chain", func(g *ir.Graph, add func(string, ir.Attrs, ...*ir.Value) *ir.Value, input func(ir.Type, bool) *ir.Value) *ir.Value {
			x := add("Cast", ir.Attrs{"to": ir.Float32}, input(ir.T(ir.Float8E4M3FN, 1, 32, 64, 256), false))
			y := add("Mul", nil, add("Sigmoid", nil, x), g.Constant("c", ir.FromFloats(ir.T(ir.Float32), []float64{100})))
			return add("Cast", ir.Attrs{"to": ir.Float8E4M3FN}, y)
		}, "ld.global.v4.b32", "st.global.v4.b32"},
		{"weights of vectors", func(g *ir.Graph, add func(string, ir.Attrs, ...*ir.Value) *ir.Value, input func(ir.Type, bool) *ir.Value) *ir.Value {
			const n, k = 96, 512
			x := input(ir.T(ir.Float32, k), false)
			w := add("Cast", ir.Attrs{"to": ir.Float32}, input(ir.T(ir.Float8E4M3FN, n, k), true))
			of := func(v int64) *ir.Value {
				xs := make([]int64, n)
				for i := range xs {
					xs[i] = v
				}
				return g.Constant("i", ir.FromInts(ir.T(ir.Int32, n), xs))
			}
			return add("SegmentedMatVec", nil, x, w, nil, of(0), of(k))
		}, "ld.global.nc.v4.b32", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer, body := ir.NewGraph("g"), ir.NewGraph("body")
			data := map[*ir.Value]*ir.Tensor{}
			var inputs []*ir.Value
			y := c.build(body, func(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
				n, err := body.Add(op, op, attrs, in...)
				require.NoError(t, err)
				return n.Outputs[0]
			}, func(typ ir.Type, constant bool) *ir.Value {
				v := &ir.Value{Name: fmt.Sprintf("x%d", len(inputs)), Type: typ}
				data[v] = random(typ)
				if constant {
					v.Const = data[v]
				}
				inputs = append(inputs, v)
				return body.AddInput(v.Name, typ)
			})
			body.Outputs = []*ir.Value{y}
			region, err := outer.NewRegion("loop", c.name, body, 0, nil, inputs...)
			require.NoError(t, err)
			for _, name := range target.Names() {
				tgt, err := target.Lookup(name)
				require.NoError(t, err)
				spec, err := Lower(region, &kernel.Context{Target: tgt})
				require.NoError(t, err)
				text := spec.Build(tgt, "k").String()
				if tgt.FP8 {
					for _, want := range []string{c.reads, c.write, "cvt.rn.f16x2.e4m3x2"} {
						require.True(t, strings.Contains(text, want), want)
					}
				}
				got := kerneltest.Run(t, spec, tgt, data)[region.Outputs[0]]
				require.Less(t, kerneltest.RelL2(got, kerneltest.Reference(t, region, data)[0]), 2e-3, name)
			}
		})
	}
}
