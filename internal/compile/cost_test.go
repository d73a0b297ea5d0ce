package compile

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// plannedTerms are what a schedule was chosen by and a run counts: the factor by which the two may differ for kernels of a
// family (contraction, window and chain, loop; of a chain of loops a loop's), either way.
var plannedTerms = []struct {
	name    string
	of      func(w *cost.Work) float64
	factors map[string]float64
}{
	{"time", func(w *cost.Work) float64 { return cost.Of(target.Default()).Estimate(w).US }, each(1.2, 1.1, 1.5)},
	{"multiply-adds", macs, each(1, 1, 1)},
	{"instructions", func(w *cost.Work) float64 { return w.Issued }, each(1.3, 1.4, 1.05)},
	{"wavefronts", func(w *cost.Work) float64 { return w.Wavefronts }, each(1.4, 1.2, 7)},
	{"bytes of L2", func(w *cost.Work) float64 { return w.L2Read + w.L2Written }, each(1.2, 1.1, 4)},
	{"bytes read from L2", func(w *cost.Work) float64 { return w.L2Read }, each(1.2, 1.1, 4.2)},
	{"bytes written to L2", func(w *cost.Work) float64 { return w.L2Written }, each(1.5, 1.3, 4)},
	{"bytes of DRAM", func(w *cost.Work) float64 { return w.DRAMBytes }, each(2, 1.1, 1.1)},
	{"copies waited for", func(w *cost.Work) float64 { return w.Trips }, each(1, 1, 1)},
	{"copies ahead", func(w *cost.Work) float64 { return w.Streamed }, each(1, 1, 1)},
	{"atomics", func(w *cost.Work) float64 { return w.Atomics }, each(1, 1, 1)},
	{"barriers", func(w *cost.Work) float64 { return w.Barriers }, each(1, 1, 1)},
}

func each(contraction, window, loop float64) map[string]float64 {
	return map[string]float64{ir.FamilyContraction: contraction, ir.FamilyWindow: window, ir.FamilyFused: max(contraction, window), ir.FamilyLoop: loop}
}

func macs(w *cost.Work) (n float64) {
	for _, p := range w.Products {
		n += p.MACs
	}
	return n
}

// TestSchedulesAreThePrograms: without packing weights and writing kernels, launches compute the same regions by the same schedules, and
// read as many bytes of constants.
func TestSchedulesAreThePrograms(t *testing.T) {
	for name, in := range map[string]string{"vision": "fp16", "policy": "fp32"} {
		g, err := onnx.Import(small(t, name), onnx.ImportOptions{})
		require.NoError(t, err)
		c := passes.Context{Target: target.Default(), Precision: in}
		list, err := passes.Pipeline(in)
		require.NoError(t, err)
		require.NoError(t, passes.Run(&c, g, list, nil))
		program, err := codegen.Generate(entries(g), c.Target, families.New(nil), codegen.NewWeights())
		require.NoError(t, err)
		s, err := codegen.Schedule(entries(g)[0], c.Target, families.New(nil))
		require.NoError(t, err)
		require.Equal(t, program.Works[0], s.Works)
		require.Len(t, s.Regions, len(program.Regions[0]))
		for i, n := range s.Regions {
			require.Same(t, program.Regions[0][i], n)
		}
		constants := 0
		for _, b := range program.Variant.Buffers {
			if b.Kind == runtime.ConstantBuffer {
				constants += b.Bytes
			}
		}
		require.Equal(t, constants, s.ConstantBytes)
	}
}

// TestSchedulesAreChosenByWhatTheyDo compares what each launch's schedule was chosen by with what a run of it counts, so that choosing and
// predicting cannot disagree unseen. SPARK_FULL adds the other precisions of
// each model.
func TestSchedulesAreChosenByWhatTheyDo(t *testing.T) {
	fulltest.Long(t)
	ctx := &kernel.Context{Target: target.Default()}
	worst := map[string]float64{}
	for m, name := range []string{"vision", "policy", "dmonitoring"} {
		for i, in := range []string{"fp16", "nvfp4", "fp32"} {
			if i != m && !(name == "policy" && in == "fp16") && !fulltest.Runs(t.Name()+name+in) {
				continue
			}
			r, _ := generated(t, name, in, ctx.Target.Name)
			plansAgree(t, r, name+" "+in, worst)
		}
	}
	for _, family := range []string{ir.FamilyContraction, ir.FamilyWindow, ir.FamilyFused, ir.FamilyLoop} {
		for _, term := range plannedTerms {
			t.Logf("%s, %s: within a factor of %.2f", family, term.name, max(1, worst[family+" "+term.name]))
		}
	}
}

// plansAgree compares the plans of a program's launches with what a run of them counts, and notes the greatest factors between the two.
func plansAgree(t *testing.T, r *Result, what string, worst map[string]float64) {
	t.Helper()
	ctx := &kernel.Context{Target: target.Default()}
	// Schedules know nothing of what their launches bring into L2 for others.
	e, w, p := entries(r.Graph)[0], codegen.NewWeights(), *r.Program
	e.Prefetch.Off = true
	out, err := codegen.Generate([]codegen.Entry{e}, ctx.Target, families.New(nil), w)
	require.NoError(t, err)
	p.Variants, p.Weights = []runtime.Variant{out.Variant}, w.Bytes()
	prof, err := profile.Run(context.Background(), &p, &p.Variants[0], "run", nil)
	require.NoError(t, err)
	for i, l := range prof.Launches {
		if r.regions[i] == nil {
			continue
		}
		spec, err := families.New(nil).Lower(r.regions[i], ctx)
		require.NoError(t, err)
		require.Equal(t, l.Grid, spec.Grid)
		did := *l.Cold
		if slices.ContainsFunc(p.Variants[0].Entries[0].Launches[i].Reads, func(a runtime.Access) bool { return p.Variants[0].Buffers[a.Buffer].Kind == runtime.InputBuffer }) {
			did.DRAMBytes = float64(l.Constants) // schedules take inputs to be where values of launches are
		}
		for _, term := range plannedTerms {
			planned, counted := term.of(spec.Work), term.of(&did)
			if planned == counted {
				continue
			}
			factor := max(planned/counted, counted/planned)
			worst[l.Family+" "+term.name] = max(worst[l.Family+" "+term.name], factor)
			family := l.Family
			if r.regions[i].LastPart().IsFamily(ir.FamilyLoop) {
				family = ir.FamilyLoop
			}
			if factor > term.factors[family]+1e-9 {
				t.Errorf("%s: launch %d, %s [%s]: %s planned %.4g, counted %.4g", what, i, l.Kernel, spec.Schedule, term.name, planned, counted)
			}
		}
	}
}

// TestAMachineFileChoosesKernels: where launches cost next to nothing and barriers much, schedules are others than those of the table's row.
func TestAMachineFileChoosesKernels(t *testing.T) {
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	at := func(f *cost.File) *Result {
		r, err := Compile(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Machine: f})
		require.NoError(t, err)
		return r
	}
	row := at(nil)
	same := func(a, b *Result) bool {
		return reflect.DeepEqual(a.Program.Variants[0].Kernels, b.Program.Variants[0].Kernels)
	}
	one := func(x float64) cost.Figure { return cost.Figure{Low: x, Middle: x, High: x} }
	f := &cost.File{Format: cost.FileFormat, Target: "sm_121", Device: "GPU", Figures: map[string]cost.Figure{"launch_us": one(0.58)}}
	require.True(t, same(row, at(f)), "the row's own figure")
	f.Figures = map[string]cost.Figure{"barrier_clocks": one(3000), "atomic_us": one(0.01)}
	other := at(f)
	require.False(t, same(row, other))
	p, err := row.Profile(t.Context())
	require.NoError(t, err)
	q, err := other.Profile(t.Context())
	require.NoError(t, err)
	require.Greater(t, q.Total.US, 1.5*p.Total.US, "predicted by the same figures")
	f.DryRun = "dry"
	_, err = Compile(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Machine: f})
	require.ErrorContains(t, err, "describes no GPU: dry")
}
