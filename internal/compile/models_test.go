package compile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// results are what Compile made in these tests, by the file and the options: none of them changes a result.
var results = struct {
	sync.Mutex
	of map[string]*Result
}{of: map[string]*Result{}}

// once compiles a model that no test has compiled in that way before.
func once(t *testing.T, m *onnx.Model, opt Options) *Result {
	t.Helper()
	results.Lock()
	defer results.Unlock()
	key := fmt.Sprint(m.Path, opt.Precision, opt.Targets, opt.Calibrate, opt.Generated, opt.MinCosine, opt.Smaller, opt.Keep, opt.F32Inputs, opt.F32Outputs, opt.Warn != nil, opt.Machine)
	if results.of[key] == nil {
		r, err := compiled(context.Background(), m, opt)
		require.NoError(t, err)
		results.of[key] = r
	}
	return results.of[key]
}

// compiled is Compile with the schedules that were chosen in other tests. TestRememberedSchedulesAreThoseThatAreChosen says that they are what Compile
// would choose, and TestCompilingTwiceGivesTheSameBytes compares programs. Machines have schedules of their own.
func compiled(ctx context.Context, m *onnx.Model, opt Options) (*Result, error) {
	if opt.Machine == nil {
		opt.chosen = remembered
	}
	return Compile(ctx, m, opt)
}

var remembered = new(kernel.Memo)

// small is a small model of the repository's own.
func small(t *testing.T, name string) *onnx.Model {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	return m
}

// generated is a small model compiled, at low precision with all its layers.
func generated(t *testing.T, name, in string, targets ...string) (*Result, *driving.Model) {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	opt := Options{Precision: in, Targets: targets}
	if precision.Calibrates(in) {
		return forced(t, name, in, targets...), src
	}
	return once(t, small(t, name), opt), src
}

var names = []string{"vision", "policy", "dmonitoring", "supercombo"}

// session puts a program on the CPU device.
func session(t *testing.T, p *runtime.Program, check bool) *runtime.Session {
	t.Helper()
	d, err := emu.Open(emu.Options{Check: check})
	require.NoError(t, err)
	s, err := runtime.Open(context.Background(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, d.Close())
	})
	return s
}

// packaged writes the program as a package and reads it back, as a user's program does.
func packaged(t *testing.T, p *runtime.Program) *runtime.Program {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	files, err := gopkg.Files("model", p, nil)
	require.NoError(t, err)
	require.NoError(t, gopkg.Write(dir, files))
	back, err := runtime.Read(os.DirFS(dir))
	require.NoError(t, err)
	return back
}

// outputs runs a session on arrays and returns its outputs in float64.
func outputs(t *testing.T, p *runtime.Program, s *runtime.Session, in map[string]*npy.Array) map[string][]float64 {
	t.Helper()
	for _, q := range p.Inputs {
		data, err := in[q.Name].As(q.DType, q.Shape)
		require.NoError(t, err, q.Name)
		require.NoError(t, s.Set(q.Name, data))
	}
	require.NoError(t, s.Run(context.Background()))
	out, err := s.Float64s()
	require.NoError(t, err)
	return out
}

// evaluate runs a graph in the reference evaluator.
func evaluate(t *testing.T, g *ir.Graph, in map[string]*npy.Array, round bool) map[string][]float64 {
	t.Helper()
	arrays := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		data, err := in[v.Name].As(v.Type.DType.String(), v.Type.Shape)
		require.NoError(t, err)
		x, err := ir.NewTensor(v.Type, data)
		require.NoError(t, err)
		arrays[v.Name] = x.Array()
	}
	res, err := ir.Evaluate(context.Background(), g, arrays, ir.EvalOptions{Round: round})
	require.NoError(t, err)
	out := map[string][]float64{}
	for name, a := range res {
		out[name] = a.Floats()
	}
	return out
}

func arrays(t *testing.T, g *ir.Graph) map[string]*npy.Array {
	t.Helper()
	return saved(Inputs(g))
}

// saved are arrays as files have them.
func saved(in map[string]*ir.Array) map[string]*npy.Array {
	out := map[string]*npy.Array{}
	for name, a := range in {
		out[name] = &npy.Array{DType: a.DType.String(), Shape: a.Shape, Data: a.Tensor().Dense()}
	}
	return out
}

// TestSmallModelsAgreeWithTheEvaluator holds the whole way, device checks on, against the imported graph in float64.
func TestSmallModelsAgreeWithTheEvaluator(t *testing.T) {
	for _, name := range names {
		for _, row := range precision.All() {
			if row.Calibrates() || row.Name == precision.BF16 {
				continue
			}
			t.Run(name+"/"+row.Name, func(t *testing.T) {
				if name != "policy" && row.Name != precision.FP16 {
					fulltest.Long(t)
				}
				// Outputs of f16 would hide what a program in fp32 does wrong.
				wide := row.Name == precision.FP32
				r := once(t, small(t, name), Options{Precision: row.Name, Targets: []string{"sm_121"}, F32Inputs: wide, F32Outputs: wide})
				p := packaged(t, r.Program)
				s := session(t, p, true)
				in := arrays(t, r.Source)
				got, want := outputs(t, p, s, in), evaluate(t, r.Source, in, false)
				for _, q := range p.Outputs {
					m, err := runtime.Compare(got[q.Name], want[q.Name], 0, 0)
					require.NoError(t, err)
					require.GreaterOrEqual(t, m.Cosine, row.MinCosine, "%s: %+v", q.Name, m)
					require.LessOrEqual(t, m.RelL2, row.RelL2, "%s: %+v", q.Name, m)
				}
				v := &p.Variants[0]
				require.LessOrEqual(t, float64(v.ArenaBytes), 1.1*float64(v.LiveBytes), "arena against live bytes")
				require.Empty(t, r.Fallbacks)
			})
		}
	}
}

// TestFP16IsAsAccurateAsItsGraph bounds the kernels' own error: against float64, a run may be at most 1.5 times as far off
// as the reference evaluator on the final graph, which rounds wherever the program stores or casts.
func TestFP16IsAsAccurateAsItsGraph(t *testing.T) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r, src := generated(t, name, "fp16", "sm_121")
			s := session(t, r.Program, false)
			got, final, exact := map[string][][]float64{}, map[string][][]float64{}, map[string][][]float64{}
			for seed := range uint64(3) {
				in := map[string]*npy.Array{}
				for _, q := range src.Inputs {
					x := q.Draw(seed)
					in[q.Name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
				}
				pool := func(into map[string][][]float64, out map[string][]float64) {
					for name, x := range out {
						into[name] = append(into[name], x)
					}
				}
				pool(got, outputs(t, r.Program, s, in))
				pool(final, evaluate(t, r.Graph, in, true))
				pool(exact, evaluate(t, r.Source, in, false))
			}
			for _, q := range r.Program.Outputs {
				for _, part := range parts(q) {
					requireRatio(t, q.Name+"."+part.Name, 1.5, cut(got[q.Name], part), cut(final[q.Name], part), cut(exact[q.Name], part))
				}
			}
		})
	}
}

// parts are the whole output and its named slices of 32 elements or more.
func parts(q runtime.Port) []runtime.Slice {
	n := 1
	for _, d := range q.Shape {
		n *= d
	}
	out := []runtime.Slice{{Name: "all", Start: 0, Stop: n}}
	for _, s := range q.Slices {
		if s.Stop-s.Start >= 32 {
			out = append(out, s)
		}
	}
	return out
}

// requireRatio pools the squared errors of several runs, bounds got's by a multiple of reference's and returns their ratio.
func requireRatio(t *testing.T, what string, limit float64, got, reference, exact [][]float64) float64 {
	t.Helper()
	var g, r, n float64
	for k := range exact {
		for i, x := range exact[k] {
			g += (got[k][i] - x) * (got[k][i] - x)
			r += (reference[k][i] - x) * (reference[k][i] - x)
			n += x * x
		}
	}
	t.Logf("%-40s relative L2² %.3g, the graph's %.3g", what, g/n, r/n)
	require.LessOrEqual(t, g, limit*limit*r, what)
	return g / r
}

// TestCompilingTwiceGivesTheSameBytes covers every file of a package.
func TestCompilingTwiceGivesTheSameBytes(t *testing.T) {
	for _, name := range names {
		if name != "policy" && !fulltest.Some() {
			continue
		}
		a, _ := generated(t, name, "fp16", "sm_121", "sm_90")
		b, err := Compile(t.Context(), small(t, name), Options{Precision: "fp16", Targets: []string{"sm_121", "sm_90"}})
		require.NoError(t, err)
		fa, err := gopkg.Files("m", a.Program, nil)
		require.NoError(t, err)
		fb, err := gopkg.Files("m", b.Program, nil)
		require.NoError(t, err)
		require.Equal(t, len(fa), len(fb))
		for k := range fa {
			require.True(t, string(fa[k]) == string(fb[k]), "%s of %s differs", k, name)
		}
	}
}

// TestEveryTargetRunsTheSame holds the variants against each other: schedules differ, results hardly.
func TestEveryTargetRunsTheSame(t *testing.T) {
	r, _ := generated(t, "policy", "fp16", target.Names()...)
	in := arrays(t, r.Source)
	want := evaluate(t, r.Source, in, false)
	for _, v := range r.Program.Variants {
		p := *r.Program
		p.Variants = []runtime.Variant{v}
		got := outputs(t, &p, session(t, &p, true), in)
		for name := range want {
			m, err := runtime.Compare(got[name], want[name], 0, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, m.Cosine, 0.99999, "%s on %s", name, v.Target)
		}
		for _, l := range v.Entries[0].Launches {
			require.False(t, l.Dependent && v.Target == "sm_80")
		}
	}
}

// TestPtxasTakesEveryKernel assembles the small models, each for one target and with SPARK_FULL for all, in low precisions for
// GB10 alone what other tests have compiled: no refusal, no spills, constants loaded before the wait. The full-size models are
// assembled for all targets in any case.
func TestPtxasTakesEveryKernel(t *testing.T) {
	fulltest.Long(t)
	tool := kerneltest.Assembler(t)
	for i, name := range names {
		for k, in := range []string{precision.FP16, precision.FP32, precision.FP8, precision.NVFP4} {
			targets := target.Names()
			switch full := fulltest.Runs(t.Name()); {
			case precision.Calibrates(in) && full:
				targets = []string{"sm_121", "sm_90"}
			case precision.Calibrates(in) && !quick(name):
				continue
			case precision.Calibrates(in):
				targets = []string{"sm_121"}
			case !full:
				targets = targets[(i+k)%len(targets):][:1]
			}
			r, _ := generated(t, name, in, targets...)
			kerneltest.Assembled(t, tool, r.Program)
		}
	}
}

// full describes what the issue asks of a full-size model, where the files are at hand.
type full struct {
	model    string
	golden   int
	launches map[string]int
	bounds   map[string]gopkg.Bounds
}

var fulls = []full{
	{"dmonitoring_model", 11, map[string]int{"fp32": 23, "fp16": 16}, map[string]gopkg.Bounds{"fp32": {MinCosine: .9999999, RelL2: 1e-5}, "fp16": {MinCosine: .99999, RelL2: 2.5e-3}}},
	{"driving_policy", 3, map[string]int{"fp32": 19, "fp16": 16}, map[string]gopkg.Bounds{"fp32": {MinCosine: .9999999, RelL2: 1e-5}, "fp16": {MinCosine: .999999, RelL2: 1e-2}}},
	{"driving_vision", 3, map[string]int{"fp32": 58, "fp16": 54}, map[string]gopkg.Bounds{"fp32": {MinCosine: .9999999, RelL2: 1e-5}, "fp16": {MinCosine: .99998, RelL2: 1e-2}}},
}

// TestFullModelsAgainstGoldenOutputs runs the published and stand-in models of ../shared/models, where they are, and
// logs docs/measurements/accuracy.csv (make measure-accuracy).
func TestFullModelsAgainstGoldenOutputs(t *testing.T) {
	fulltest.Long(t)
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no full-size models beside the repository: ", err)
	}
	t.Log("model,precision,golden inputs,worst 1 - cosine,worst relative L2,squared error / that of its graph,least of a slice,most of a slice,launches,arena (bytes),live (bytes)")
	for _, f := range fulls {
		for _, precision := range []string{"fp32", "fp16"} {
			t.Run(f.model+"/"+precision, func(t *testing.T) { f.check(t, dir, precision) })
		}
	}
}

func (f full) check(t *testing.T, dir, precision string) {
	m, err := onnx.Load(filepath.Join(dir, f.model+".onnx"))
	require.NoError(t, err)
	r := once(t, m, Options{Precision: precision, Targets: []string{"sm_121"}, F32Outputs: precision == "fp32"})
	require.Empty(t, r.Fallbacks)
	requireFastContractions(t, &r.Program.Variants[0])
	v := &r.Program.Variants[0]
	require.Equal(t, f.launches[precision], len(v.Entries[0].Launches), "launches")
	require.LessOrEqual(t, float64(v.ArenaBytes), 1.1*float64(v.LiveBytes))
	p := packaged(t, r.Program)
	s := session(t, p, false)
	q := p.Outputs[0]
	var got, final, exact [][]float64
	difference, far := 0.0, 0.0
	for k := range f.golden {
		z, err := npy.ReadZip(filepath.Join(dir, "golden", fmt.Sprintf("%s_%d.npz", f.model, k)))
		require.NoError(t, err)
		out := outputs(t, p, s, z)[q.Name]
		want, err := z[q.Name].Float64s()
		require.NoError(t, err)
		c, err := runtime.Compare(out, want, 0, 0)
		require.NoError(t, err)
		bound := f.bounds[precision]
		difference, far = max(difference, 1-c.Cosine), max(far, c.RelL2)
		require.GreaterOrEqual(t, c.Cosine, bound.MinCosine)
		require.LessOrEqual(t, c.RelL2, bound.RelL2)
		if k < 3 && precision == "fp16" {
			got, exact = append(got, out), append(exact, want)
			final = append(final, evaluate(t, r.Graph, z, true)[q.Name])
		}
	}
	ofGraph := ",,"
	if precision == "fp16" {
		requireWeightsOnce(t, r.Program)
		var ratios []float64
		for _, part := range parts(q) {
			ratios = append(ratios, requireRatio(t, part.Name, 1.5, cut(got, part), cut(final, part), cut(exact, part)))
		}
		ofGraph = fmt.Sprintf("%.2f,%.2f,%.2f", ratios[0], slices.Min(ratios), slices.Max(ratios))
	}
	t.Logf("%s,%s,%d,%.2g,%.2g,%s,%d,%d,%d", f.model, precision, f.golden, difference, far, ofGraph, len(v.Entries[0].Launches), v.ArenaBytes, v.LiveBytes)
}

// requireWeightsOnce bounds what DRAM serves in a run with cold weights, by the model of L2, to little more than
// weights, inputs and outputs: prefetched bytes are still there when they are read, and values between launches
// never leave L2.
func requireWeightsOnce(t *testing.T, p *runtime.Program) {
	t.Helper()
	prof, err := profile.Run(context.Background(), p, &p.Variants[0], "run", nil)
	require.NoError(t, err)
	least := prof.Total.Constants
	for _, b := range p.Variants[0].Buffers {
		if b.Kind == runtime.InputBuffer || b.Kind == runtime.OutputBuffer {
			least += int64(b.Bytes)
		}
	}
	require.LessOrEqual(t, float64(prof.Total.ColdDRAM), 1.1*float64(least))
	require.Greater(t, float64(prof.Total.Prefetched), 0.6*float64(prof.Total.Constants))
}

// requireFastContractions checks every kernel with a product of 5 MMAC or more: operands are used at least twice a
// shared-memory load, move 16 bytes at a time before they are needed, and fill the machine, or the schedule gives
// the reason. A fused region that ends with a product may compute a window in the same loop. Its loads then serve
// both, and the product alone may have one for each mma, since blocks are small where windows dominate. Fused
// windows have no such loop.
func requireFastContractions(t *testing.T, v *runtime.Variant) {
	t.Helper()
	const large = 5_000_000 // MACs
	mod, err := ptx.Parse(v.PTX)
	require.NoError(t, err)
	grids := map[string][3]int{}
	for _, l := range v.Entries[0].Launches {
		grids[l.Kernel] = l.Grid
	}
	for i, k := range v.Kernels {
		if k.Family != ir.FamilyContraction && k.Family != ir.FamilyFused || k.MACs < large {
			continue
		}
		l := kerneltest.InspectKernel(mod.Kernels[i], grids[k.Name])
		if k.Family == ir.FamilyFused && l.Stages == 0 {
			continue
		}
		uses := l.PerSharedLoad()
		if k.Family == ir.FamilyFused {
			uses = l.AllPerSharedLoad()
		}
		require.GreaterOrEqual(t, uses, 2.0, k.Name)
		require.GreaterOrEqual(t, l.Wide(), 0.9, k.Name)
		require.Greater(t, l.Stages, 2, k.Name)
		require.True(t, l.Blocks >= target.Default().SMs || k.Reason != "", k.Name)
	}
}

func cut(x [][]float64, s runtime.Slice) [][]float64 {
	var out [][]float64
	for _, v := range x {
		out = append(out, v[s.Start:s.Stop])
	}
	return out
}

// TestFullModelsCheckedAndAssembled runs one golden input a model with every check of the device on, and assembles all
// kernels for every target.
func TestFullModelsCheckedAndAssembled(t *testing.T) {
	fulltest.Long(t)
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no full-size models beside the repository: ", err)
	}
	for _, f := range fulls {
		t.Run(f.model, func(t *testing.T) {
			if f.model != "driving_policy" && !fulltest.Runs(t.Name()) {
				t.Skip("a long test: make test-full")
			}
			m, err := onnx.Load(filepath.Join(dir, f.model+".onnx"))
			require.NoError(t, err)
			r, err := Compile(context.Background(), m, Options{Precision: "fp16", Targets: target.Names()})
			require.NoError(t, err)
			z, err := npy.ReadZip(filepath.Join(dir, "golden", f.model+"_0.npz"))
			require.NoError(t, err)
			q := r.Program.Outputs[0]
			out := outputs(t, r.Program, session(t, r.Program, true), z)[q.Name]
			want, err := z[q.Name].Float64s()
			require.NoError(t, err)
			c, err := runtime.Compare(out, want, 0, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, c.Cosine, f.bounds["fp16"].MinCosine)
			kerneltest.Assembled(t, kerneltest.Assembler(t), r.Program)
		})
	}
}
