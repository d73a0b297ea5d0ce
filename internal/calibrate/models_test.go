package calibrate

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
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
	names, err := passes.Pipeline(precision.FP8)
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: precision.FP8}, g, names[:slices.Index(names, "assign-storage")], nil))
	return g
}

// finish applies a plan to a copy.
func finish(t testing.TB, g *ir.Graph, q *passes.Quantisation) *ir.Graph {
	t.Helper()
	c := g.Clone()
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: precision.FP8, AssignStorageOptions: passes.AssignStorageOptions{Quantisation: q}, Target: sm121}, c, []string{"assign-storage"}, nil))
	return c
}

// golden are inputs from..to that calibration never sees, and the outputs recorded with them.
func golden(t testing.TB, g *ir.Graph, name string, from, to int) (in []map[string]*ir.Array, want [][]float64) {
	t.Helper()
	for k := from; k <= to; k++ {
		z, err := npy.ReadZip(filepath.Join(sharedModels, "golden", fmt.Sprintf("%s_%d.npz", name, k)))
		require.NoError(t, err)
		one := map[string]*ir.Array{}
		for _, v := range g.Inputs {
			data, err := z[v.Name].As(v.Type.DType.String(), v.Type.Shape)
			require.NoError(t, err)
			x, err := ir.NewTensor(v.Type, data)
			require.NoError(t, err)
			one[v.Name] = x.Array()
		}
		w, err := z["outputs"].Float64s()
		require.NoError(t, err)
		in, want = append(in, one), append(want, w)
	}
	return in, want
}

// outputs evaluates a graph.
func outputs(t testing.TB, g *ir.Graph, in []map[string]*ir.Array, round bool) (out [][]float64) {
	t.Helper()
	for _, one := range in {
		o, err := ir.Evaluate(context.Background(), g, one, ir.EvalOptions{Round: round})
		require.NoError(t, err)
		out = append(out, o["outputs"].Floats())
	}
	return out
}

// judge compares the final graph of a plan with what is wanted.
func judge(t testing.TB, final *ir.Graph, in []map[string]*ir.Array, want [][]float64) Quality {
	t.Helper()
	q, err := Measure(Slice{Output: "outputs", Slice: runtime.Slice{Stop: len(want[0])}}, outputs(t, final, in, true), want)
	require.NoError(t, err)
	return q
}

func calibrationInputs(t testing.TB, g *ir.Graph, name string) []map[string]*ir.Array {
	t.Helper()
	in, _, err := Load([]string{filepath.Join(sharedModels, "calibration", name)}, g)
	require.NoError(t, err)
	return in
}

// layerNamed is a format of the table of precisions.
func layerNamed(t testing.TB, name string) precision.Layer {
	t.Helper()
	layers := precision.Layers()
	i := slices.IndexFunc(layers, func(l precision.Layer) bool { return l.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return layers[i]
}

// forced assigns every layer its first candidate formats, as --min-cosine 0 does.
func forced(t testing.TB, c *Calibration, name string, blocks bool) Assignment {
	a := Assignment{}
	for _, s := range c.Sites() {
		matvec := s.Anchor.Op.Name == "SegmentedMatVec"
		format := "fp8"
		if name == precision.NVFP4 && s.K >= blockWidth {
			format = "nvfp4"
		}
		if matvec || format == "nvfp4" && !blocks {
			format += " weights"
		}
		a[s.Name()] = layerNamed(t, format)
	}
	return a
}

// TestCalibration_EachTechnique prints what docs say of each technique; it takes minutes and judges nothing. Techniques are
// fitted to three quarters of the calibration inputs and compared on the others; golden inputs are for what was chosen.
func TestCalibration_EachTechnique(t *testing.T) {
	name, from, to := os.Getenv("SPARK_ABLATION"), 3, 10
	if name == "" {
		t.Skip("set SPARK_ABLATION to dmonitoring_model or driving_vision")
	}
	if name == "driving_vision" {
		from, to = 0, 2
	}
	g := regions(t, name)
	all := calibrationInputs(t, g, name)
	var fitted, held []map[string]*ir.Array
	for i, in := range all {
		if i%4 == 1 {
			held = append(held, in)
		} else {
			fitted = append(fitted, in)
		}
	}
	want := outputs(t, g, held, false)
	try := func(what, precision string, blocks bool, tech Technique, on, judgedOn []map[string]*ir.Array, want [][]float64) {
		t.Run(what, func(t *testing.T) { attempt(t, g, precision, blocks, tech, on, judgedOn, want) })
	}
	for _, e := range []struct {
		what string
		tech Technique
	}{
		{"to nearest", Technique{}},
		{"means", Technique{Bias: true}},
		{"feedback, means", Technique{Feedback: true, Bias: true}},
		{"feedback, recovery, means", Best},
		{"the same, block scales by magnitude alone", Technique{Feedback: true, Recover: true, Bias: true, BlockOnly: true}},
	} {
		if !e.tech.BlockOnly {
			try("fp8: "+e.what, precision.FP8, false, e.tech, fitted, held, want)
		}
		try("nvfp4 weights: "+e.what, precision.NVFP4, false, e.tech, fitted, held, want)
		try("nvfp4: "+e.what, precision.NVFP4, true, e.tech, fitted, held, want)
	}
	for _, alpha := range []float64{.5, .75, 1} {
		e, count := equalised(t, g, fitted, alpha)
		require.InDeltaSlice(t, want[0], outputs(t, e, held[:1], false)[0], 1e-4)
		t.Logf("%d values can be equalised", count)
		for _, c := range []struct {
			precision string
			blocks    bool
		}{{precision.FP8, false}, {precision.NVFP4, false}, {precision.NVFP4, true}} {
			t.Run(fmt.Sprintf("equalised %v: %s, blocks %v", alpha, c.precision, c.blocks), func(t *testing.T) { attempt(t, e, c.precision, c.blocks, Best, fitted, held, want) })
		}
	}
	in, recorded := golden(t, g, name, from, to)
	try("golden: fp8", precision.FP8, false, Best, all, in, recorded)
	try("golden: nvfp4 weights", precision.NVFP4, false, Best, all, in, recorded)
	try("golden: nvfp4", precision.NVFP4, true, Best, all, in, recorded)
}

// attempt fits a plan to some inputs and prints how it does on others.
func attempt(t *testing.T, g *ir.Graph, precision string, blocks bool, tech Technique, on, judgedOn []map[string]*ir.Array, want [][]float64) {
	c, err := New(g, precision, on, Reference{}, nil)
	require.NoError(t, err)
	start := time.Now()
	f, err := c.fit(context.Background(), forced(t, c, precision, blocks), tech)
	require.NoError(t, err)
	q := judge(t, finish(t, g, f.Plan), judgedOn, want)
	macs := map[string]int64{}
	for _, s := range c.Sites() {
		macs[f.Formats[s.Name()].Name] += s.MACs
	}
	var mix []string
	for _, x := range slices.Sorted(maps.Keys(macs)) {
		mix = append(mix, fmt.Sprintf("%s %.0f M", x, float64(macs[x])/1e6))
	}
	t.Logf("cosine %.5f, relative L2 %.4f, explained %.3f; %v; %.1f s", q.Cosine, q.RelL2, *q.Explained, mix, time.Since(start).Seconds())
}
