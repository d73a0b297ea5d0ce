package calibrate

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

const sharedModels = "../../../shared/models"

// regions imports a shared model and runs the passes up to narrow.
func regions(t testing.TB, name string) *ir.Graph {
	t.Helper()
	path := filepath.Join(sharedModels, name+".onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s beside the checkout", path)
	}
	m, err := onnx.Load(path)
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	names, err := passes.Pipeline(passes.PrecisionFP8)
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: passes.PrecisionFP8}, g, names[:len(names)-1], nil))
	return g
}

// finish applies a plan to a copy.
func finish(t testing.TB, g *ir.Graph, q *passes.Quantisation) *ir.Graph {
	t.Helper()
	c := g.Clone()
	require.NoError(t, passes.Run(&passes.Context{Precision: passes.PrecisionFP8, Quantisation: q}, c, []string{"narrow"}, nil))
	return c
}

type judged struct {
	cosMin, cosMean, relL2, explained float64
	per                               []float64
}

// judge evaluates the final graph on golden inputs from..to.
func judge(t testing.TB, g *ir.Graph, name string, from, to int) judged {
	t.Helper()
	var got, want [][]float64
	for k := from; k <= to; k++ {
		z, err := npy.ReadZip(filepath.Join(sharedModels, "golden", fmt.Sprintf("%s_%d.npz", name, k)))
		require.NoError(t, err)
		in := map[string]*ir.Array{}
		for _, v := range g.Inputs {
			data, err := z[v.Name].As(v.Type.DType.String(), v.Type.Shape)
			require.NoError(t, err)
			x, err := ir.NewTensor(v.Type, data)
			require.NoError(t, err)
			in[v.Name] = x.Array()
		}
		out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{Round: true})
		require.NoError(t, err)
		w, err := z["outputs"].Float64s()
		require.NoError(t, err)
		got, want = append(got, out["outputs"].Floats()), append(want, w)
	}
	j := judged{cosMin: 1}
	mean := make([]float64, len(want[0]))
	for _, w := range want {
		for i, x := range w {
			mean[i] += x / float64(len(want))
		}
	}
	var miss, vary float64
	for k := range want {
		var gg, ww, gw, dd float64
		for i, w := range want[k] {
			g := got[k][i]
			gg, ww, gw, dd = gg+g*g, ww+w*w, gw+g*w, dd+(g-w)*(g-w)
			vary += (w - mean[i]) * (w - mean[i])
		}
		miss += dd
		cos := gw / math.Sqrt(gg*ww)
		j.cosMin = min(j.cosMin, cos)
		j.cosMean += cos / float64(len(want))
		j.relL2 += math.Sqrt(dd/ww) / float64(len(want))
		j.per = append(j.per, math.Sqrt(dd/ww))
	}
	j.explained = 1 - miss/vary
	return j
}

func calibrationInputs(t testing.TB, g *ir.Graph, name string) []map[string]*ir.Array {
	t.Helper()
	in, err := Load([]string{filepath.Join(sharedModels, "calibration", name)}, g)
	require.NoError(t, err)
	return in
}

// TestWhatEachTechniqueBrings prints what docs say of rounding to nearest, correction of means, feedback and recovery; it
// takes minutes and judges nothing.
func TestWhatEachTechniqueBrings(t *testing.T) {
	name, from, to := os.Getenv("SPARK_ABLATION"), 3, 10
	if name == "" {
		t.Skip("set SPARK_ABLATION to dmonitoring_model or driving_vision")
	}
	if name == "driving_vision" {
		from, to = 0, 2
	}
	g := regions(t, name)
	in := calibrationInputs(t, g, name)
	c, err := New(g, in, nil)
	require.NoError(t, err)
	for _, s := range c.Sites() {
		t.Logf("%-40s %9d MACs N %d K %d ×%d", s.Name(), s.MACs, s.N, s.K, s.Members)
	}
	for _, e := range []struct {
		f    Format
		k    int
		tech Technique
	}{
		{FP8, 0, Technique{Feedback: true, Recover: true, Bias: true}},
		{FP8, 0, Technique{Feedback: true, Bias: true}},
		{FP8, 0, Technique{Bias: true}},
		{FP8, 0, Technique{}},
	} {
		all := Assignment{}
		for _, s := range c.Sites() {
			if s.Anchor.Op.Name != "SegmentedMatVec" && s.K >= e.k {
				all[s.Name()] = e.f
			}
		}
		start := time.Now()
		f, err := c.fit(context.Background(), all, e.tech)
		require.NoError(t, err)
		took := time.Since(start)
		final := finish(t, g, f.Plan)
		t.Logf("%v %+v %v: golden %+v", e.f, e.tech, took, judge(t, final, name, from, to))
	}
}
