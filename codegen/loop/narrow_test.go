package loop

import (
	"testing"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/stretchr/testify/require"
)

// TestBytesTravelTogether: e4m3 is read and written 16 bytes at a time, by the hardware's conversions where there are
// some.
func TestBytesTravelTogether(t *testing.T) {
	e4m3, f32 := ir.Float8E4M3FN, ir.Float32
	for _, c := range []struct {
		testCase
		reads, write string
	}{
		{testCase{name: "an elementwise chain", inputs: []ir.Type{ir.T(e4m3, 1, 32, 64, 256)},
			build: func(r *kerneltest.Region, in []*ir.Value) []*ir.Value {
				y := r.Add("Sigmoid", nil, r.Cast(in[0], f32))
				return []*ir.Value{r.Cast(r.Add("Mul", nil, y, r.Splat(100)), e4m3)}
			}}, "ld.global.v4.b32", "st.global.v4.b32"},
		{testCase{name: "weights of vectors", inputs: []ir.Type{ir.T(f32, 512), ir.T(e4m3, 3072, 512)}, consts: []bool{false, true},
			build: func(r *kerneltest.Region, in []*ir.Value) []*ir.Value {
				of := func(v int64) *ir.Value { return r.Body.Constant("i", ir.SplatInt(ir.T(ir.Int32, 3072), v)) }
				return []*ir.Value{r.Add("SegmentedMatVec", nil, in[0], r.Cast(in[1], f32), nil, of(0), of(512))}
			}}, "ld.global.v4.b32", ""},
	} {
		for _, name := range target.Names() {
			t.Run(c.name+" on "+name, func(t *testing.T) {
				ctx := kerneltest.Target(t, name)
				text := c.check(t, name).Build(ctx.Target, "k").String()
				if ctx.Target.Multiplies("e4m3") {
					for _, want := range []string{c.reads, c.write, "cvt.rn.f16x2.e4m3x2"} {
						require.Contains(t, text, want)
					}
				}
			})
		}
	}
}
