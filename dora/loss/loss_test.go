package loss

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// generations are models whose outputs together have all parts: hypotheses of plan and lead, and neither.
var generations = []string{"supercombo097", "driving_supercombo"}

func model(t testing.TB, name string) *onnx.Model {
	t.Helper()
	src, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
	require.NoError(t, err)
	file, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	return file
}

// allOf are all terms of a model.
func allOf(t testing.TB, file *onnx.Model) Terms {
	t.Helper()
	g, err := imported(file)
	require.NoError(t, err)
	all, err := termsOf(file, g)
	require.NoError(t, err)
	return all
}

// everything is all terms of a model, each of weight 1.
func everything(t testing.TB, name string) Terms {
	t.Helper()
	all := allOf(t, model(t, name))
	for i := range all {
		all[i].Weight = 1
	}
	return all
}

// only are the terms of some names.
func (t Terms) only(names ...string) Terms {
	return slices.DeleteFunc(slices.Clone(t), func(m Term) bool { return !slices.Contains(names, m.Name) })
}

// graphOf is a loss of an output that is given: inputs y [samples, numbers], target:outputs and truth:plan; outputs loss, then terms.
func graphOf(t testing.TB, terms Terms, samples int) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("loss")
	y := g.AddInput("y", ir.T(ir.Float32, samples, terms[0].length))
	require.NoError(t, g.Build("loss", func(x *ir.Expansion) {
		loss := terms.Build(x, g, map[string]*ir.Value{"outputs": y})
		loss.Name = "loss"
		g.Outputs = append(g.Outputs, loss)
	}))
	require.NoError(t, g.Verify())
	return g
}

// data are what the graph reads.
type data struct{ y, t, truth *ir.Array }

// drawn are slightly different outputs of a student and a teacher, with log scales that are mostly moderate, and a
// partly unknown path.
func drawn(length, samples int, seed uint64) data {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := data{ir.NewArray(ir.T(ir.Float32, samples, length)), ir.NewArray(ir.T(ir.Float32, samples, length)), ir.NewArray(ir.T(ir.Float32, samples, modeld.Points, modeld.PlanColumns))}
	f32 := func(x float64) float64 { return float64(float32(x)) }
	for i := range d.y.F {
		d.t.F[i] = f32(1.5 * rng.NormFloat64())
		d.y.F[i] = f32(d.t.F[i] + 0.7*rng.NormFloat64())
	}
	for i := range d.truth.F {
		d.truth.F[i] = f32(rng.NormFloat64())
		if rng.IntN(3) == 0 {
			d.truth.F[i] = math.NaN()
		}
	}
	return d
}

func (d data) inputs(g *ir.Graph) map[string]*ir.Array {
	all := map[string]*ir.Array{"y": d.y, dora.Target("outputs"): d.t, Truth("plan"): d.truth}
	out := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		out[v.Name] = all[v.Name]
	}
	return out
}

// evaluate is what a loss gives in float64: of its terms by name, and as a whole as "loss".
func evaluate(t testing.TB, terms Terms, d data) map[string]float64 {
	t.Helper()
	g := graphOf(t, terms, d.y.Shape[0])
	out, err := ir.Evaluate(context.Background(), g, d.inputs(g), ir.EvalOptions{})
	require.NoError(t, err)
	values := map[string]float64{}
	for name, a := range out {
		values[strings.TrimPrefix(name, "term:")] = a.F[0]
	}
	return values
}

// numpy is a Python with NumPy.
func numpy(t testing.TB) string {
	t.Helper()
	path, err := toolchain.FindPython()
	if err == nil {
		_, err = toolchain.PythonPackageVersion(context.Background(), path, "numpy")
	}
	if err != nil {
		t.Skip("no Python with NumPy: ", err)
	}
	return path
}

// twin is what NumPy makes of the same.
func twin(t testing.TB, name string, d data, softmaxed bool) map[string]float64 {
	t.Helper()
	interpreter := numpy(t)
	file := model(t, name)
	list, err := file.OutputSlices(d.y.Shape[1])
	require.NoError(t, err)
	spec := map[string]any{"softmaxed": softmaxed}
	var cuts [][]any
	for _, s := range list {
		cuts = append(cuts, []any{s.Name, s.Start, s.End})
	}
	spec["slices"] = cuts
	in, err := json.Marshal(spec)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "data.npz")
	arrays := map[string]*npy.Array{}
	for name, a := range map[string]*ir.Array{"y": d.y, "t": d.t, "truth": d.truth} {
		arrays[name] = &npy.Array{DType: "f32", Shape: a.Shape, Data: a.Tensor().Dense()}
	}
	require.NoError(t, npy.WriteZip(path, arrays))
	cmd := exec.Command(interpreter, filepath.Join("testdata", "twin.py"), path)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var values map[string]float64
	require.NoError(t, json.Unmarshal(out, &values))
	return values
}

// TestTermsAreThoseOfNumPy: all terms of models with and without hypotheses, in float64, to 1e-6 of their size.
func TestTermsAreThoseOfNumPy(t *testing.T) {
	for _, name := range generations {
		terms := everything(t, name)
		d := drawn(terms[0].length, 3, 7)
		got, want := evaluate(t, terms, d), twin(t, name, d, false)
		sum := 0.0
		for _, m := range terms {
			require.Contains(t, want, m.Name)
			assert.InEpsilon(t, want[m.Name], got[m.Name], 1e-6, "%s of %s", m.Name, name)
			sum += want[m.Name]
		}
		assert.Len(t, want, len(terms), name)
		assert.InEpsilon(t, sum, got["loss"], 1e-6, name)
	}
}
