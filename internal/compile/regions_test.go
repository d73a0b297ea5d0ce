package compile

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestEveryKernelOfAQuantisedModelComputesItsRegion runs each kernel alone on the values that the reference evaluator has
// at its inputs. End to end one code that falls the other way decorrelates what follows; here nothing follows.
func TestEveryKernelOfAQuantisedModelComputesItsRegion(t *testing.T) {
	for _, c := range []struct{ model, precision string }{
		{"dmonitoring", "fp16"}, {"dmonitoring", "fp8"}, {"dmonitoring", "nvfp4"}, {"policy", "fp8"}, {"policy", "nvfp4"},
	} {
		t.Run(c.model+"/"+c.precision, func(t *testing.T) {
			src, err := driving.Make(c.model, driving.Small)
			require.NoError(t, err)
			m, err := onnx.Decode(c.model+".onnx", src.ONNX)
			require.NoError(t, err)
			zero := 0.0
			opt := Options{Precision: c.precision, Targets: []string{"sm_121"}}
			if c.precision != "fp16" {
				opt.MinCosine = zero
			}
			r, err := Compile(context.Background(), m, opt)
			require.NoError(t, err)
			checkRegions(t, r.Graph, src)
		})
	}
}

func checkRegions(t *testing.T, g *ir.Graph, src *driving.Model) {
	t.Helper()
	in := map[string]*ir.Array{}
	for _, q := range src.Inputs {
		in[q.Name] = q.Draw(5).Array()
	}
	seen := map[*ir.Value]*ir.Tensor{}
	for _, v := range g.Inputs {
		seen[v] = in[v.Name].Tensor()
	}
	_, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{Round: true, Observe: func(v *ir.Value, a *ir.Array) { seen[v] = a.Tensor() }})
	require.NoError(t, err)
	tg, err := target.Lookup("sm_121")
	require.NoError(t, err)
	kernels := 0
	for _, n := range g.Nodes {
		var spec *kernel.Spec
		ctx := &kernel.Context{Target: tg}
		switch n.Attrs.String("family", "") {
		case ir.FamilyView:
			continue
		case ir.FamilyContraction:
			spec, err = contraction.Lower(n, ctx)
		case ir.FamilyWindow:
			spec, err = window.Lower(n, ctx)
		default:
			spec, err = loop.Lower(n, ctx)
		}
		require.NoError(t, err, n.Name)
		kernels++
		for v, got := range kerneltest.Run(t, spec, tg, seen) {
			compareRegion(t, n.Name, got, seen[v])
		}
	}
	require.Positive(t, kernels)
}

// compareRegion compares what a kernel wrote with what the evaluator has there.
func compareRegion(t *testing.T, name string, got, want *ir.Tensor) {
	t.Helper()
	if got.DType == ir.Float8E4M3FN {
		compareCodes(t, name, got.Array().F, want.Array().F)
		return
	}
	// A factor rounded to e4m3 on its way into the products can fall the other way, since the evaluator does not round the
	// product before it to f32; it moves its row and no other.
	bound := map[ir.DType]float64{ir.Float32: 2e-6, ir.Float16: 1e-3}[got.DType] // attention also rounds its probabilities
	width := got.Shape[len(got.Shape)-1]
	a, b := got.Array().F, want.Array().F
	rows, moved := len(a)/width, 0
	for r := range rows {
		var d, n float64
		for i := r * width; i < (r+1)*width; i++ {
			d += (a[i] - b[i]) * (a[i] - b[i])
			n += b[i] * b[i]
		}
		if d > bound*bound*math.Max(n, 1e-6) {
			moved++
		}
	}
	require.LessOrEqual(t, float64(moved), 0.05*float64(rows), "%s: rows of %v off by more than rounding", name, got.Type)
	require.LessOrEqual(t, kerneltest.RelL2(got, want.Array()), 1e-2, "%s: %v", name, got.Type)
}

// compareCodes allows neighbouring codes, or what rounding of the sums before costs where they nearly cancel, in one of a
// hundred elements.
func compareCodes(t *testing.T, name string, got, want []float64) {
	t.Helper()
	flips, largest := 0, 0.0
	for _, x := range want {
		largest = math.Max(largest, math.Abs(x))
	}
	for i, x := range got {
		step := math.Max(math.Abs(want[i]), math.Abs(x)) / 8 // codes of a binade are an eighth of its lower end apart
		require.LessOrEqual(t, math.Abs(x-want[i]), math.Max(step, 1e-3*largest), "%s: element %d: %v, want %v", name, i, x, want[i])
		if x != want[i] {
			flips++
		}
	}
	require.LessOrEqual(t, float64(flips), math.Max(1, 0.01*float64(len(got))), "%s: codes that fell the other way", name)
}
