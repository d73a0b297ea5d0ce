package compile

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestGradientsOfSampling: those of GridSample and RoiAlign as programs, under the CPU device's checks, against the evaluator.
func TestGradientsOfSampling(t *testing.T) {
	g := ir.NewGraph("g")
	x, grid, rois := g.AddInput("x", ir.T(ir.Float32, 2, 3, 5, 6)), g.AddInput("grid", ir.T(ir.Float32, 2, 4, 3, 2)), g.AddInput("rois", ir.T(ir.Float32, 3, 4))
	index := g.Constant("index", ir.Vector(1, 0, -1))
	var ys, dys []*ir.Value
	loss := func(op string, attrs ir.Attrs, in ...*ir.Value) {
		n, err := g.Add(op, fmt.Sprint(op, len(ys)), attrs, in...)
		require.NoError(t, err)
		ys, dys = append(ys, n.Outputs[0]), append(dys, g.AddInput(fmt.Sprint("dy", len(ys)), n.Outputs[0].Type))
	}
	for _, mode := range []string{"nearest", "linear", "cubic"} {
		for i, padding := range []string{"zeros", "border", "reflection"} {
			loss("GridSample", ir.Attrs{"mode": mode, "padding": padding, "align_corners": i == 1}, x, grid)
		}
	}
	loss("RoiAlign", ir.Attrs{"height": 2, "width": 3, "sampling_ratio": 2}, x, rois, index)
	for i := range ys {
		wrt := []*ir.Value{x, grid}
		if ys[i].Def.Op.Name == "RoiAlign" {
			wrt = wrt[:1]
		}
		d, err := g.Gradients(ys[i:i+1], dys[i:i+1], wrt)
		require.NoError(t, err)
		for k, v := range d {
			if !v.IsConst() {
				v.Name = fmt.Sprintf("%s by %s", ys[i].Def.Name, wrt[k].Name)
				g.Outputs = append(g.Outputs, v)
			}
		}
	}
	require.NoError(t, g.Verify())
	for p, bound := range map[string]float64{"fp32": 1e-5, "fp16": 2e-3} {
		r, err := Graph(context.Background(), "g", g, Options{Precision: p, Targets: []string{"sm_121"}})
		require.NoError(t, err)
		in := RandomInputs(g, 7)
		for i := range in["grid"].F { // within the image and beyond, on no pixel and no edge
			in["grid"].F[i] = 1.7 * math.Sin(float64(1+3*i))
		}
		for i := range in["rois"].F {
			in["rois"].F[i] = float64(i%4/2*3) + float64(i)/5
		}
		got, want := outputs(t, r.Program, session(t, r.Program, true), saved(in)), evaluate(t, g, saved(in), false)
		require.Len(t, got, 16)
		for name := range want {
			d := judge([][]float64{got[name]}, [][]float64{want[name]}).relL2
			assert.LessOrEqual(t, d, bound, "%s: %s", p, name)
			t.Logf("%s %s: %.2g", p, name, d)
		}
	}
}
