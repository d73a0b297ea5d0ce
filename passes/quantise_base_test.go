package passes

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// bases are the formats that weights are rounded to.
var bases = []precision.Operand{{Format: minifloat.E4M3FN}, {Format: minifloat.E3M2}, nvfp4}

// TestRowsAreRoundedToTheNearest: of all numbers of the format, with the scales that were chosen, none is nearer; a
// row of zeros stays one.
func TestRowsAreRoundedToTheNearest(t *testing.T) {
	const out, in, taps = 5, 20, 3
	rng := rand.New(rand.NewSource(1))
	rows := make([]float64, out*in*taps)
	for i := range rows {
		if o := i / (in * taps); o != 2 {
			rows[i] = rng.NormFloat64() * math.Pow(10, float64(o-3))
		}
	}
	for _, to := range bases {
		r := RoundRows(to, rows, out, in, taps)
		values := r.Values()
		f := r.DType.Format()
		for i, x := range rows {
			scale := r.Scales[i/(in*taps)] * r.Unit
			if r.Blocks != nil {
				scale *= r.Blocks[i/(in*taps)*2*taps+i/taps%in/16*taps+i%taps] // [out, 2, taps]
			}
			assert.InDelta(t, r.Numbers[i]*scale, values[i], 1e-15*math.Abs(values[i]))
			assert.Equal(t, r.Numbers[i], f.Round(r.Numbers[i], true))
			for code := range uint32(1) << f.Bits() {
				if y := f.Decode(code); y-y == 0 {
					require.LessOrEqual(t, math.Abs(values[i]-x), math.Abs(y*scale-x)*(1+1e-9), "%s %d: %v for %v", f.Name, i, values[i], x)
				}
			}
		}
		for k := range in * taps {
			assert.Zero(t, values[2*in*taps+k])
		}
		var missed, size float64
		for i, x := range rows {
			missed += (x - values[i]) * (x - values[i]) / math.Pow(100, float64(i/(in*taps)))
			size += x * x / math.Pow(100, float64(i/(in*taps)))
		}
		t.Logf("%s: relative L2 %.4f", f.Name, math.Sqrt(missed/size))
	}
	small := RoundRows(nvfp4, rows, 2*out, in/2, taps)
	assert.Equal(t, ir.Float8E4M3FN, small.DType, "a block is 16 channels")
	assert.Nil(t, small.Blocks)
}

// TestALayerComputesWithItsRoundedWeight, of every shape, and so does what reads the weight besides.
func TestALayerComputesWithItsRoundedWeight(t *testing.T) {
	for _, to := range bases {
		for _, c := range []struct {
			text           string
			out, in, taps  int
			at             func(o, i, k int) int
			x, w, products string
		}{
			{"MatMul(%x, %w) {transB=true}", 3, 40, 1, func(o, i, k int) int { return o*40 + i }, "2,40", "3,40", "2,3"},
			{"MatMul(%x, %w)", 3, 40, 1, func(o, i, k int) int { return i*3 + o }, "2,40", "40,3", "2,3"},
			{"Conv(%x, %w, %b) {dilations=[1,1], group=2, pads=[1,1,0,0], strides=[1,1]}", 4, 20, 6, func(o, i, k int) int { return (o*20+i)*6 + k }, "1,40,3,3", "4,20,2,3", "1,4,3,2"},
		} {
			g, err := ir.Parse(fmt.Sprintf("graph \"g\" {\n  input %%x: f32[%s]\n  const %%w: f32[%s] = splat 1\n  const %%b: f32[4] = [1, 2, 3, 4]\n  %%y: f32[%s] = %s\n  %%s: f32[%s] = Mul(%%w, %%w)\n  output %%y, %%s\n}", c.x, c.w, c.products, c.text, c.w))
			require.NoError(t, err)
			rng := rand.New(rand.NewSource(1))
			n := c.out * c.in * c.taps
			w, rows := make([]float64, n), make([]float64, n)
			each := func(f func(row, at int)) {
				for i := range n {
					f(i, c.at(i/c.taps/c.in, i/c.taps%c.in, i%c.taps))
				}
			}
			each(func(row, at int) { rows[row] = ir.RoundTo(ir.Float32, rng.NormFloat64()); w[at] = rows[row] })
			weight := g.Nodes[0].Inputs[1]
			weight.Const = ir.FromFloats(weight.Type, w)
			rounded := RoundRows(to, rows, c.out, c.in, c.taps)
			values := rounded.Values()
			each(func(row, at int) { w[at] = values[row] })
			want := g.Clone()
			for _, n := range want.Nodes {
				for _, v := range n.Inputs {
					if v.Name == "w" {
						v.Const = ir.FromFloats(v.Type, w)
					}
				}
			}
			require.NoError(t, quantiseBase(&Context{QuantiseBaseOptions: QuantiseBaseOptions{Base: Base{Operand: to}}}, g))
			require.NoError(t, g.Verify())
			requireSameOutputs(t, want, g, 1e-7)
		}
	}
}
