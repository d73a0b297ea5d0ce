package compile

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/testdata/gen/quantised"
)

// networks are the repository's own quantised files.
var networks = []struct {
	name   string
	values int      // that file and program both store as codes, and the output; 0: weights alone are quantised
	stored ir.DType // what the weights become at fp16
	onnxRT bool     // ONNX Runtime 1.31 runs it
}{
	{"int8-tensor", 6, ir.Float16, true}, {"int8-channel", 6, ir.Float16, true}, {"uint8-zero", 6, ir.Float16, true},
	{"fp8", 6, ir.Float8E4M3FN, true},
	{"int8-blocks", 0, ir.Float16, true}, {"int4-blocks", 0, ir.Float16, true}, {"e2m1-blocks", 0, ir.Float16, false},
	{"mxfp4", 0, ir.Float4E2M1, false}, {"nvfp4", 0, ir.Float4E2M1, false},
}

// TestQuantisedNetworks compiles small networks in every form in which quantisers write them. Kernels of quantised layers
// are held layer by layer against the file, evaluated and as ONNX Runtime runs it; the others end to end, where f16 rounds
// weights that are not on a grid, and activations.
func TestQuantisedNetworks(t *testing.T) {
	for _, c := range networks {
		for _, precision := range []string{"fp16", "bf16"} {
			t.Run(c.name+"/"+precision, func(t *testing.T) {
				m, r := compiledNetwork(t, c.name, precision)
				x := m.Draw(3)
				in := map[string]*npy.Array{"x": {DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}}
				if c.values > 0 {
					requireNoArithmetic(t, r.Graph)
					l := compareLayers(t, r, everyEvaluated(t, r.Source, x))
					t.Logf("the file evaluated: %d codes, %d differ, %d lie at a tie", l.codes, l.differ, l.open)
					require.Equal(t, c.values, l.values)
				}
				bound := map[string]float64{"fp16": 1e-3, "bf16": 8e-3}[precision] // a few roundings of 2^-11 and 2^-8
				if c.values > 0 {
					bound = 2e-2 // codes at ties
				}
				got := [][]float64{outputs(t, r.Program, session(t, r.Program, true), in)["y"]}
				require.LessOrEqual(t, judge(got, [][]float64{evaluate(t, r.Source, in, false)["y"]}).relL2, bound)
				for _, s := range passes.Sites(r.Graph) {
					d := s.Weights().Type.DType
					require.True(t, d == c.stored || d == ir.BFloat16 && c.stored == ir.Float16 && precision == "bf16", "%s has weights in %v", s.Name(), d)
				}
			})
		}
	}
}

// TestQuantisedNetworksAgreeWithONNXRuntime is TestQuantisedNetworks with ONNX Runtime's values.
func TestQuantisedNetworksAgreeWithONNXRuntime(t *testing.T) {
	fulltest.Long(t)
	python(t)
	for _, c := range networks {
		if !c.onnxRT {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			m, r := compiledNetwork(t, c.name, "fp16")
			x := m.Draw(3)
			in := map[string]*npy.Array{"x": {DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}}
			dir := t.TempDir()
			model, inputs := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "x.npz")
			require.NoError(t, os.WriteFile(model, m.ONNX, 0o644))
			require.NoError(t, npy.WriteZip(inputs, in))
			run := runEverything(t, model, inputs)
			if c.values > 0 {
				l := compareLayers(t, r, run)
				t.Logf("%d codes, %d differ, %d lie at a tie", l.codes, l.differ, l.open)
				require.Equal(t, c.values, l.values)
				return
			}
			want, err := run["y"].Float64s()
			require.NoError(t, err)
			got := outputs(t, r.Program, session(t, r.Program, false), in)["y"]
			require.LessOrEqual(t, judge([][]float64{got}, [][]float64{want}).relL2, 1e-3)
		})
	}
}

// TestLayersThatAFileHasQuantisedAreListed, whatever the precision, and stay as they are.
func TestLayersThatAFileHasQuantisedAreListed(t *testing.T) {
	for name, want := range map[string]struct{ file, stored string }{
		"int8-channel": {"i8 (file)", "f16 holds its numbers exactly"}, "fp8": {"e4m3 (file)", "stored as there"}, "nvfp4": {"e2m1 (file)", "stored as there"},
	} {
		t.Run(name, func(t *testing.T) {
			src, err := quantised.Make(name)
			require.NoError(t, err)
			m, err := onnx.Decode(name+".onnx", src.ONNX)
			require.NoError(t, err)
			half, err := compiled(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			require.Greater(t, len(half.File), 2)
			var warned []string
			low, err := compiled(t.Context(), m, Options{Precision: "fp8", MinCosine: .9, Generated: 2, Targets: []string{"sm_121"}, Warn: func(text string) { warned = append(warned, text) }})
			require.NoError(t, err)
			require.Equal(t, half.Program, low.Program)
			require.Contains(t, warned, "fp8 changes nothing: no layer is left that could be stored in fewer bits")
			_, err = compiled(t.Context(), m, Options{Precision: "fp8", MinCosine: 1 - 1e-15, Generated: 2, Targets: []string{"sm_121"}})
			require.ErrorContains(t, err, "no layer could go down, so 16 bits cost that, and codes of layers that the file has quantised")
			require.ErrorContains(t, err, "or a lower --min-cosine")
			for _, layers := range [][]calibrate.LayerChoice{half.File, low.Accuracy.Layers} {
				for _, l := range layers {
					require.Equal(t, want.file, l.Precision)
					require.True(t, l.File)
					require.Contains(t, l.Why, want.stored)
				}
			}
		})
	}
}

// TestBlockedWeightsAreTheFiles: what the program multiplies are the file's numbers to the precision of f32, in a third of
// the bytes of f16.
func TestBlockedWeightsAreTheFiles(t *testing.T) {
	for _, name := range []string{"mxfp4", "nvfp4"} {
		m, r := compiledNetwork(t, name, "fp16")
		bytes, half, layers := 0, 0, 0
		for _, n := range partsOf(r.Graph) {
			if !n.IsFamily(ir.FamilyContraction) {
				continue
			}
			layers++
			codes, blocks, scales := weightOperands(n)
			require.NotNil(t, codes, "%s: no e2m1 weights", n.Name)
			want := m.Weights[n.Name]
			require.Len(t, want, codes.Numel(), n.Name)
			k := codes.Shape[1]
			for i, x := range codes.Array().F {
				y := x * blocks.FloatAt(i/k*(k/ir.BlockSize)+i%k/ir.BlockSize) * scales.FloatAt(i/k)
				require.InEpsilon(t, want[i]+1e-30, y+1e-30, 1e-6, "%s: weight %d", n.Name, i)
			}
			bytes, half = bytes+codes.Bytes()+blocks.Bytes()+4*scales.Numel(), half+2*codes.Numel()
		}
		require.Equal(t, 3, layers)
		require.Less(t, float64(bytes)/float64(half), 0.32)
	}
}

// weightOperands are the e2m1 weights of a contraction, their block scales and those of the channels.
func weightOperands(n *ir.Node) (codes, blocks, scales *ir.Tensor) {
	for i, o := range n.Region.Operands {
		if o.Block > 0 {
			codes, blocks = n.Inputs[i].Const, n.BlockScales(i).Const
		}
	}
	if _, i := scaledWeights(n); i >= 0 {
		scales = n.Inputs[i].Const
	}
	return codes, blocks, scales
}

func compiledNetwork(t *testing.T, name, precision string) (*quantised.Model, *Result) {
	t.Helper()
	m, err := quantised.Make(name)
	require.NoError(t, err)
	d, err := onnx.Decode(name+".onnx", m.ONNX)
	require.NoError(t, err)
	r, err := compiled(context.Background(), d, Options{Precision: precision, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.Empty(t, r.Fallbacks)
	return m, r
}

// everyEvaluated returns every floating-point value of a graph's evaluation, rounded to its type.
func everyEvaluated(t *testing.T, g *ir.Graph, x *ir.Tensor) map[string]*npy.Array {
	t.Helper()
	run := map[string]*npy.Array{}
	_, err := ir.Evaluate(context.Background(), g, map[string]*ir.Array{"x": x.Array()}, ir.EvalOptions{Round: true, Observe: func(v *ir.Value, a *ir.Array) {
		if v.Type.DType == ir.Float32 {
			run[v.Name] = &npy.Array{DType: "f32", Shape: v.Type.Shape, Data: a.Tensor().Dense()}
		}
	}})
	require.NoError(t, err)
	return run
}
