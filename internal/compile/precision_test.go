package compile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// lowPrecision compiles a model of the repository's own, on generated inputs: two, which is enough for the program to be
// what its graph is. Calibrating is most of these tests' time, so each is compiled once.
func lowPrecision(t *testing.T, name string, opt Options) *Result {
	t.Helper()
	opt.Generated = 2
	if opt.Targets == nil {
		opt.Targets = []string{"sm_121"}
	}
	return once(t, small(t, name), opt)
}

// forced compiles a model with all layers at low precision.
func forced(t *testing.T, name, precision string, targets ...string) *Result {
	t.Helper()
	return lowPrecision(t, name, Options{Precision: precision, Targets: targets})
}

// quick names the models that every run of the tests calibrates; SPARK_FULL adds the others.
func quick(name string) bool { return name == "policy" || name == "dmonitoring" }

// TestLowPrecisionIsAsAccurateAsItsGraph runs everything forced to low precision, device checks on. Sums in another order
// move a few numbers to the next code, which layers carry on, so programs and graph part as far as their rounding errors
// reach; but the program must not be further from the exact outputs than its graph is.
func TestLowPrecisionIsAsAccurateAsItsGraph(t *testing.T) {
	fulltest.Long(t)
	for _, name := range names {
		for _, in := range precision.Names() {
			low := precision.Calibrates(in)
			if in != precision.BF16 && !low || low && !quick(name) && !fulltest.Runs(t.Name()+name+in) && !(name == "vision" && in == precision.FP8) {
				continue
			}
			t.Run(name+"/"+in, func(t *testing.T) {
				// As fractions of how far the graph is from exact: at most 0.48 was measured in bf16, and 0.31 in the others.
				fromGraph := .7
				switch {
				case in == precision.FP8:
					// Weights in two terms remove errors that program and graph share, and their sums have more
					// bits than f32, so roundings diverge earlier: 0.74 in dmonitoring, whose graph is twice as
					// close to exact as with one term.
					fromGraph = .9
				case low:
					fromGraph = .5
				}
				r := forced(t, name, in, "sm_121")
				p := packaged(t, r.Program)
				run := session(t, p, true)
				got, graph, exact := map[string][][]float64{}, map[string][][]float64{}, map[string][][]float64{}
				for _, in := range unseen(r.Source) {
					o, g, e := outputs(t, p, run, in), evaluate(t, r.Graph, in, true), evaluate(t, r.Source, in, false)
					for _, q := range p.Outputs {
						got[q.Name], graph[q.Name], exact[q.Name] = append(got[q.Name], o[q.Name]), append(graph[q.Name], g[q.Name]), append(exact[q.Name], e[q.Name])
					}
				}
				for _, q := range p.Outputs {
					requireRatio(t, q.Name, 1.5, got[q.Name], graph[q.Name], exact[q.Name])
					requireRatio(t, q.Name+" against its graph", fromGraph, got[q.Name], exact[q.Name], graph[q.Name])
				}
				if !low {
					require.Nil(t, r.Accuracy)
					return
				}
				require.NotEmpty(t, r.Accuracy.Layers)
				for _, l := range r.Accuracy.Layers {
					require.NotEqual(t, "fp16", l.Precision, "%s was not forced", l.Name)
					if in != precision.NVFP4 || l.Precision != "fp8 weights" {
						require.Empty(t, l.Why)
					}
				}
			})
		}
	}
}

// unseen are two inputs of the kind that a calibration without data makes, but none of those that it makes.
func unseen(g *ir.Graph) []map[string]*npy.Array {
	var out []map[string]*npy.Array
	for _, in := range calibrate.Generate(g, calibrate.GeneratedInputs+2)[calibrate.GeneratedInputs:] {
		m := map[string]*npy.Array{}
		for name, a := range in {
			m[name] = &npy.Array{DType: a.DType.String(), Shape: a.Shape, Data: a.Tensor().Dense()}
		}
		out = append(out, m)
	}
	return out
}

// TestTheBudgetIsMet asks for more and more, and that what stays is named with a reason.
func TestTheBudgetIsMet(t *testing.T) {
	fulltest.Long(t)
	kept := -1
	for _, budget := range []float64{0, .99, .9999} {
		r := lowPrecision(t, "policy", Options{Precision: "fp8", MinCosine: budget})
		count := 0
		for _, l := range r.Accuracy.Layers {
			if l.Precision == "fp16" {
				count++
				require.NotEmpty(t, l.Why, l.Name)
			}
		}
		for _, s := range r.Accuracy.Slices {
			require.GreaterOrEqual(t, s.Cosine, budget, "%s", s.Name)
		}
		require.GreaterOrEqual(t, count, kept)
		kept = count
	}
	require.Positive(t, kept)

	_, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "fp8", MinCosine: .999999999999, Generated: 2, Targets: []string{"sm_121"}})
	require.ErrorContains(t, err, "cannot be reached")
	require.ErrorContains(t, err, "the layers that hurt most alone")
}

func TestKeptLayersStay(t *testing.T) {
	first := forced(t, "policy", "fp8", "sm_121")
	name := first.Accuracy.Layers[1].Name
	r := lowPrecision(t, "policy", Options{Precision: "fp8", Keep: []string{name}})
	require.Equal(t, "fp16", r.Accuracy.Layers[1].Precision)
	require.Equal(t, "--keep", r.Accuracy.Layers[1].Why)
	require.Contains(t, []string{"fp8", "fp8 twice", "fp8 split weights", "fp8 twice split weights"}, r.Accuracy.Layers[2].Precision, "others go down")
}

func TestQuantisedProgramsAreTheSameTwice(t *testing.T) {
	fulltest.Long(t)
	a := forced(t, "policy", "nvfp4", "sm_121")
	b, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "nvfp4", Generated: 2, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.Equal(t, a.Program.Weights, b.Program.Weights)
	require.Equal(t, a.Program.Variants[0].PTX, b.Program.Variants[0].PTX)
	require.Equal(t, a.Accuracy.Slices, b.Accuracy.Slices)
}

// TestTheReportsFiguresAreTheProgramsOwn runs the program again, in the interpreter, and compares with the file in float64.
func TestTheReportsFiguresAreTheProgramsOwn(t *testing.T) {
	r := lowPrecision(t, "policy", Options{Precision: "fp8", MinCosine: .99})
	s := session(t, packaged(t, r.Program), true)
	got, want := map[string][][]float64{}, map[string][][]float64{}
	for _, in := range calibrate.Generate(r.Source, r.Accuracy.Sets[0].Inputs) {
		arrays := map[string]*npy.Array{}
		for name, a := range in {
			arrays[name] = &npy.Array{DType: a.DType.String(), Shape: a.Shape, Data: a.Tensor().Dense()}
		}
		o, e := outputs(t, r.Program, s, arrays), evaluate(t, r.Source, arrays, false)
		for name := range o {
			got[name], want[name] = append(got[name], o[name]), append(want[name], e[name])
		}
	}
	again, err := calibrate.MeasureAll(calibrate.SlicesOf(r.Program), got, want)
	require.NoError(t, err)
	require.Equal(t, again, r.Accuracy.Sets[0].Slices)
	require.Greater(t, len(again), len(r.Program.Outputs))
}

// TestEveryTargetRunsLowPrecision holds each variant to the file, and says what a target cannot do.
func TestEveryTargetRunsLowPrecision(t *testing.T) {
	fulltest.Long(t)
	for precision, refused := range map[string][]string{"fp8": {"sm_80"}, "nvfp4": {"sm_90", "sm_80"}} {
		var warned []string
		r := lowPrecision(t, "policy", Options{Precision: precision, Targets: target.Names(), Warn: func(text string) { warned = append(warned, text) }})
		require.Len(t, r.Accuracy.Others, 2)
		for i, o := range r.Accuracy.Others {
			require.Equal(t, target.Names()[1+i], o.Target)
			for k, q := range o.Slices {
				require.Greater(t, q.Cosine, 0.97, "%s of %s for %s", q.Name, precision, o.Target)
				least := 0.8
				if precision == "nvfp4" { // without an mma of blocks, activations keep 16 bits
					least = 0
				}
				first := r.Accuracy.Slices[k].RelL2
				require.True(t, least*first <= q.RelL2 && q.RelL2 <= 1.25*first, "%s of %s: relative L2 %g for %s, %g for %s", q.Name, precision, q.RelL2, o.Target, first, r.Accuracy.Measured.Target)
			}
		}
		for _, name := range refused {
			require.True(t, slices.ContainsFunc(warned, func(text string) bool { return strings.HasPrefix(text, name+" has no") }), "%s: %v", name, warned)
		}
	}
}

// TestWeightsOnDisk weighs what the weights file holds of the quantised layers, packed and padded, with all scales: in sum,
// and each layer whose K needs no padding to a tile.
func TestWeightsOnDisk(t *testing.T) {
	for _, c := range []struct {
		precision string
		smaller   bool
		bound     float64
	}{{"fp8", false, 1.2 * .55}, {"fp8", true, .55}, {"fp6", false, .42}, {"nvfp4", true, .32}, {"nvfp4", false, 1.2 * .32}} {
		r := lowPrecision(t, "policy", Options{Precision: c.precision, Smaller: c.smaller})
		bound := c.bound
		half, err := r.Half(context.Background())
		require.NoError(t, err)
		var bytes, of int
		for i, w := range r.LayerWeights(half, r.Accuracy.Layers) {
			l := r.Accuracy.Layers[i]
			require.NotEqual(t, "fp16", l.Precision, l.Name)
			require.GreaterOrEqual(t, w.HalfBytes, 2*l.Weights, l.Name)
			limit := bound
			if l.Precision == "fp8 weights" { // of precisions that have no shorter ones for it, or few weights where size is not all
				limit = .55
				require.False(t, c.smaller && c.precision == "nvfp4" && l.K >= 64, l.Name)
			}
			if at := slices.IndexFunc(precision.Layers(), func(f precision.Layer) bool { return f.Name == l.Precision }); at >= 0 && precision.Layers()[at].Weights.HiLo { // few weights, where size is not all
				limit = 1.1
				require.False(t, c.smaller, l.Name)
			}
			if bytes, of = bytes+w.Bytes, of+w.HalfBytes; l.K%64 == 0 {
				require.LessOrEqual(t, float64(w.Bytes), limit*float64(w.HalfBytes), "%s of %d×%d", l.Name, l.Weights/l.K, l.K)
			}
		}
		t.Logf("%s: %.3f of fp16", c.precision, float64(bytes)/float64(of))
		require.LessOrEqual(t, float64(bytes), bound*float64(of))
		// What the layers weigh less, the file weighs less, to a buffer's padding and the scales of weights.
		saved := len(half.Program.Weights) - len(r.Program.Weights)
		for _, n := range r.regions {
			if n != nil {
				saved += biases(n)
			}
		}
		for _, n := range half.regions {
			if n != nil {
				saved -= biases(n)
			}
		}
		require.InDelta(t, of-bytes, saved, 256*float64(len(r.Program.Variants[0].Buffers)), "%s", c.precision)
	}
}

// TestTheGoldenRunOfAQuantisedPackage is the program's own, to the bit, and shows a weight that is wrong.
func TestTheGoldenRunOfAQuantisedPackage(t *testing.T) {
	r := forced(t, "policy", "fp8", "sm_121")
	g, err := r.Golden(context.Background())
	require.NoError(t, err)
	want, _, _ := raw(t, r.Program, arrays(t, r.Source), emu.Specification)
	require.Equal(t, want, g.Program)
	broken := *r.Program
	broken.Weights = bytes.Clone(r.Program.Weights)
	broken.Weights[len(broken.Weights)/2] ^= 0x20
	got, _, _ := raw(t, &broken, arrays(t, r.Source), emu.Specification)
	require.NotEqual(t, got, g.Program)
}

// judged is how outputs compare with recorded ones over several inputs.
type judged struct{ relL2, explained float64 }

func judge(got, want [][]float64) judged {
	mean := make([]float64, len(want[0]))
	for _, w := range want {
		for i, x := range w {
			mean[i] += x / float64(len(want))
		}
	}
	var j judged
	var miss, vary float64
	for k, w := range want {
		var d, n float64
		for i, x := range w {
			d += (got[k][i] - x) * (got[k][i] - x)
			n += x * x
			vary += (x - mean[i]) * (x - mean[i])
		}
		j.relL2 += math.Sqrt(d/n) / float64(len(want))
		miss += d
	}
	j.explained = 1 - miss/vary
	return j
}

func shared(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared", "models"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skip("no full-size models beside the repository: ", err)
	}
	return path
}

// TestTrainedNetworkAtLowPrecision judges the driver-monitoring network on inputs that calibration never sees, against
// what NVIDIA ModelOpt 0.47 reaches: fp8 relative L2 0.0507 and 0.74 of the variation explained, int8 0.090 and 0.08. In
// nvfp4 it is weights that are 4 bits wide: of its channels, which are no multiples of 64, block-scaled products would gain
// nothing, and with 4-bit activations wherever values can be stored so it would be 0.050 and 0.73.
func TestTrainedNetworkAtLowPrecision(t *testing.T) {
	for _, c := range []struct {
		precision        string
		relL2, explained float64
		share            float64 // of contraction multiplications
		counts           func(l calibrate.LayerChoice) bool
		bytes            float64 // of fp16
		smaller          bool    // as --prefer size: 4 bits wherever they fit, not only where they save bytes or time
	}{
		{"bf16", .01, .98, 0, nil, 1, false},
		{"fp8", .03, .9, .8, func(l calibrate.LayerChoice) bool { return true }, .55, false},
		{"fp6", .03, .9, .8, func(l calibrate.LayerChoice) bool { return true }, .42, false},
		{"nvfp4", .04, .88, .9, func(l calibrate.LayerChoice) bool { return l.K >= 64 }, .32, true},
		{"nvfp4", .03, .93, .4, func(l calibrate.LayerChoice) bool { return l.K >= 64 }, .32, false},
	} {
		t.Run(fmt.Sprint(c.precision, c.smaller), func(t *testing.T) {
			if c.precision != "bf16" && !fulltest.Runs(t.Name()) {
				t.Skip("calibrates a full-size model: set SPARK_FULL=1")
			}
			m, err := onnx.Load(shared(t, "dmonitoring_model.onnx"))
			require.NoError(t, err)
			r, err := compiled(context.Background(), m, Options{Precision: c.precision, Smaller: c.smaller, Targets: []string{"sm_121"}, Calibrate: []string{shared(t, "calibration", "dmonitoring_model")}})
			require.NoError(t, err)
			var got, want [][]float64
			run := session(t, r.Program, false)
			for k := 3; k <= 10; k++ {
				z, err := npy.ReadZip(shared(t, "golden", fmt.Sprintf("dmonitoring_model_%d.npz", k)))
				require.NoError(t, err)
				x, err := z["outputs"].Float64s()
				require.NoError(t, err)
				got, want = append(got, outputs(t, r.Program, run, z)["outputs"]), append(want, x)
			}
			j := judge(got, want)
			t.Logf("%+v", j)
			require.LessOrEqual(t, j.relL2, c.relL2)
			require.GreaterOrEqual(t, j.explained, c.explained)
			if r.Accuracy == nil {
				return
			}
			var low, all int64
			bytes, half := 0, 0
			var names []string
			for _, l := range r.Accuracy.Layers {
				names = append(names, l.Name)
			}
			// Layers have a launch of their own, as most of them in low precision: tiles of chains pad fp16 less.
			fp16, err := compiled(context.Background(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Unfused: names})
			require.NoError(t, err)
			for i, w := range r.LayerWeights(fp16, r.Accuracy.Layers) {
				l := r.Accuracy.Layers[i]
				if l.Op == "SegmentedMatVec" || !c.counts(l) {
					continue
				}
				all += l.MACs
				if strings.HasPrefix(l.Precision, c.precision) {
					low += l.MACs
					bytes, half = bytes+w.Bytes, half+w.HalfBytes
				}
			}
			t.Logf("%.3f of the multiplications, weights %.3f of fp16", float64(low)/float64(all), float64(bytes)/float64(half))
			require.GreaterOrEqual(t, float64(low)/float64(all), c.share)
			require.LessOrEqual(t, float64(bytes)/float64(half), c.bytes)
		})
	}
}
