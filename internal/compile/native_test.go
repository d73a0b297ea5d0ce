package compile

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// TestRegionsOnTheCPUDeviceAreTheReference: calibration runs regions as kernels. Each yields what float64 does, but for
// rounding in f32, also when its constants are replaced.
func TestRegionsOnTheCPUDeviceAreTheReference(t *testing.T) {
	tg := target.Default()
	for _, name := range []string{"vision", "policy", "dmonitoring"} {
		t.Run(name, func(t *testing.T) {
			g, err := onnx.Import(small(t, name), onnx.ImportOptions{})
			require.NoError(t, err)
			s, err := (&Options{Precision: "fp8"}).stages()
			require.NoError(t, err)
			require.NoError(t, passes.Run(&passes.Context{Target: tg, Precision: "fp8"}, g, s.fuse, nil))
			d, err := newNative(tg)
			require.NoError(t, err)
			defer d.Close()
			seen := map[*ir.Value][]*ir.Tensor{}
			for _, in := range calibrate.Generate(g, 2) {
				for _, v := range g.Inputs {
					seen[v] = append(seen[v], in[v.Name].Tensor())
				}
			}
			replaced := 0
			for _, n := range g.Nodes {
				in := make([][]*ir.Tensor, 2)
				for _, v := range n.Inputs {
					for at := range in {
						var a *ir.Tensor
						if !v.IsConst() {
							a = seen[v][at]
						}
						in[at] = append(in[at], a)
					}
				}
				want := same(t, d, n, in)
				for k, v := range n.Outputs {
					seen[v] = []*ir.Tensor{want[0][k], want[1][k]}
				}
				if i := slices.IndexFunc(n.Inputs, func(v *ir.Value) bool { return v.IsConst() && v.Type.DType.IsFloat() }); i >= 0 {
					other := *n
					other.Inputs = slices.Clone(n.Inputs)
					w := n.Inputs[i].Const.Floats()
					for k := range w {
						w[k] *= 1.5
					}
					other.Inputs[i] = g.Constant("other", ir.FromFloats(n.Inputs[i].Type, w))
					if got := same(t, d, &other, in); !got[0][0].Equal(want[0][0]) {
						replaced++
					}
				}
			}
			require.Positive(t, replaced)
		})
	}
}

// rubbish is room for the outputs of a region on some inputs, full of NaNs.
func rubbish(n *ir.Node, inputs int) *calibrate.BufferPool {
	pool := &calibrate.BufferPool{Least: 1}
	spoil(pool, n, inputs)
	return pool
}

// used is room for the outputs of one region after the other. Room for each is tens of megabytes that the system clears.
var used = &calibrate.BufferPool{Least: 1}

// spoil fills a room, of which nothing is in use, with NaNs as far as a region's outputs reach.
func spoil(pool *calibrate.BufferPool, n *ir.Node, inputs int) {
	size := 0
	for _, v := range n.Outputs {
		size += inputs * (v.Type.Bytes() + 1<<10)
	}
	all := pool.Tensor(ir.T(ir.Uint8, size))
	for i := range all.Data {
		all.Data[i] = 0xff
	}
	pool.Give([]*ir.Tensor{all})
}

// same requires a region's outputs on the CPU device to be those of the reference, which it returns.
func same(t *testing.T, d *native, n *ir.Node, in [][]*ir.Tensor) [][]*ir.Tensor {
	t.Helper()
	spoil(used, n, len(in))
	got, err := d.Evaluate(context.Background(), n, in, used)
	require.NoError(t, err, n.Name)
	defer func() {
		for _, list := range got {
			used.Give(list)
		}
	}()
	want, err := calibrate.Reference{}.Evaluate(context.Background(), n, in, nil)
	require.NoError(t, err, n.Name)
	for at := range want {
		for k, w := range want[at] {
			var miss, size float64
			have := got[at][k].Floats()
			for i, x := range w.Floats() {
				miss += (have[i] - x) * (have[i] - x)
				size += x * x
			}
			allowed := 1e-5
			if n.Outputs[k].Type.DType == ir.Float16 { // an output of the model: the reference does not round it
				allowed = math.Exp2(-11)
			}
			require.LessOrEqual(t, math.Sqrt(miss), allowed*math.Sqrt(size), "%s, output %d", n.Name, k)
		}
	}
	return want
}
