package tune

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

func matmul(m, k, n int, d ir.DType) func(t *testing.T) *ir.Node {
	return func(t *testing.T) *ir.Node {
		b := kerneltest.New(t, ir.FamilyContraction)
		a := b.Cast(b.Input(ir.T(d, 1, m, k), 1, false, false), ir.Float32)
		w := b.Cast(b.Input(ir.T(d, k, n), 0.1, true, false), ir.Float32)
		return b.Finish(b.Cast(b.Add("MatMul", nil, a, w), d))
	}
}

func conv(h, w, c, co, k, group int, family string) func(t *testing.T) *ir.Node {
	return func(t *testing.T) *ir.Node {
		b := kerneltest.New(t, family)
		x := b.Cast(b.Input(ir.T(ir.Float16, 1, h, w, c), 1, false, false), ir.Float32)
		weights := b.Input(ir.T(ir.Float32, co, c/group, k, k), 1, true, false)
		if group == 1 {
			weights = b.Cast(b.Input(ir.T(ir.Float16, co, c, k, k), 1, true, false), ir.Float32)
		}
		y := b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "dilations": []int{1, 1}, "layout": "NHWC", "group": group}, x,
			weights, b.Input(ir.T(ir.Float32, co), 1, true, false))
		return b.Finish(b.Cast(y, ir.Float16))
	}
}

// TestNearTheBestOfAll counts every plan of small kernels, also those that estimates leave out (kernel.Slowest), and lets the
// search evaluate a tenth of those that they leave in: what it finds is within 3 % of the best of all.
func TestNearTheBestOfAll(t *testing.T) {
	fulltest.Long(t)
	better, leftOut := 0, 0
	for name, build := range map[string]func(t *testing.T) *ir.Node{
		"fp16": matmul(8, 48, 16, ir.Float16), "fp32": matmul(8, 32, 12, ir.Float32),
		"depthwise": conv(8, 8, 32, 32, 3, 32, ir.FamilyWindow),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "fp16" && !fulltest.Runs(t.Name()) {
				t.Skip("SPARK_FULL or a part of it runs it")
			}
			node, ctx := build(t), kerneltest.Target(t, "sm_121")
			s, err := families.New(nil).Space(node, ctx)
			require.NoError(t, err)
			slow := *ctx.Target
			slow.LaunchUS = 1e6 // so long that all plans take the same time: none is left out
			all, err := families.New(nil).Space(node, &kernel.Context{Target: &slow})
			require.NoError(t, err)
			u, k := &Tuner{Families: families.New(nil)}, newTask(s.Signature, node, node.Region.Family)
			costs := map[string]float64{}
			best := math.Inf(1)
			for _, p := range all.Candidates {
				n, err := u.counted(k, version{schedule: p.Schedule}, ctx, ctx.Target)
				require.NoError(t, err)
				costs[p.Schedule] = n.us
				best = min(best, n.us)
			}
			leftOut += len(all.Candidates) - len(s.Candidates)
			for _, p := range s.Candidates {
				require.Contains(t, costs, p.Schedule)
			}
			require.True(t, slices.ContainsFunc(s.Candidates, func(p kernel.Candidate) bool { return p.Schedule == s.Default }))
			some := max(1, len(s.Candidates)/10)
			for _, spoilt := range []bool{false, true} { // with estimates that say nothing, neighbours alone lead there
				if spoilt && some < 20 { // too few for that
					continue
				}
				of := *s
				if spoilt {
					of.Candidates = slices.Clone(s.Candidates)
					for i := range of.Candidates {
						of.Candidates[i].US = 1
					}
				}
				x := &search{
					space: &of, beam: 8, more: func(n int) bool { return n < some },
					cost: func(p kernel.Candidate) (float64, error) { return costs[p.Schedule], nil },
				}
				order, err := x.run()
				require.NoError(t, err)
				require.LessOrEqual(t, x.tried, some)
				got := x.seen[order[0]]
				t.Logf("%d of %d plans, %d with those left out: %.3f times the best, the default %.3f times, spoilt %v",
					x.tried, len(s.Candidates), len(all.Candidates), got/best, costs[s.Default]/best, spoilt)
				require.LessOrEqual(t, got, 1.03*best)
				if got < costs[s.Default] {
					better++
				}
			}
		})
	}
	require.Positive(t, better)
	require.Positive(t, leftOut)
}

// model is a small model of the repository's own.
func model(t *testing.T, name string) *onnx.Model {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	return m
}

// tuner is one that keeps what it finds in a file.
func tuner(path string, evaluations int) *Tuner {
	return &Tuner{Beam: 4, Evaluations: evaluations, Families: families.New(nil), Path: path,
		Table: &tunefile.Table{File: tunefile.File{Format: tunefile.Format, Target: "sm_121"}, Paths: []string{path}}}
}

func compiled(t *testing.T, name string, opt compile.Options) *compile.Result {
	t.Helper()
	opt.Precision, opt.Targets = "fp16", []string{"sm_121"}
	r, err := compile.Compile(t.Context(), model(t, name), opt)
	require.NoError(t, err)
	return r
}

func loaded(t *testing.T, path string) *tunefile.Table {
	t.Helper()
	table, err := tunefile.Load([]string{path}, []string{"sm_121"}, "")
	require.NoError(t, err)
	return table
}

// TestATunedModel: the same budget in evaluations finds the same bytes; the file makes the same program without a search; that is predicted to be no slower
// than by default, computes the same within the same bounds, with all checks on, and ptxas spills nothing.
func TestATunedModel(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"policy", "dmonitoring", "vision"} {
		t.Run(name, func(t *testing.T) {
			if name == "vision" && !fulltest.Runs(t.Name()) {
				t.Skip("SPARK_FULL or a part of it runs it")
			}
			dir := t.TempDir()
			var files, traces [2]string
			var results [2]*compile.Result
			for i := range files {
				u := tuner(filepath.Join(dir, string(rune('a'+i))), 250)
				var err error
				u.Trace, err = OpenTrace(TracePath(u.Path))
				require.NoError(t, err)
				results[i] = compiled(t, name, compile.Options{Tuning: u.Table, Tune: u.Tune})
				raw, err := os.ReadFile(u.Path)
				require.NoError(t, err)
				files[i] = string(raw)
				raw, err = os.ReadFile(TracePath(u.Path))
				require.NoError(t, err)
				traces[i] = string(raw)
				require.Equal(t, u.tried, strings.Count(traces[i], "\nkernel,"))
				require.Len(t, u.Found, 2)
				t.Log(u.Found)
				require.LessOrEqual(t, u.tried, 250)
			}
			require.Equal(t, files[0], files[1])
			require.Equal(t, traces[0], traces[1])
			table := loaded(t, filepath.Join(dir, "a"))
			var warnings []string
			applied := compiled(t, name, compile.Options{Tuning: table, Warn: func(s string) { warnings = append(warnings, s) }})
			require.Empty(t, warnings)
			require.Equal(t, results[0].Program, applied.Program)
			require.Equal(t, results[0].Program, results[1].Program)
			usual := compiled(t, name, compile.Options{})
			require.NotEqual(t, usual.Program.Variants[0].PTX, applied.Program.Variants[0].PTX)
			found := table.Programs[0]
			for _, c := range []struct {
				*compile.Result
				us, cold float64
			}{{applied, found.US, found.ColdUS}, {usual, found.DefaultUS, found.DefaultColdUS}} {
				p, err := profile.Run(t.Context(), c.Program, &c.Program.Variants[0], "run", nil)
				require.NoError(t, err)
				require.InDelta(t, p.Total.US, c.us, 0.01*c.us, "what the file says, kernel by kernel, and what the whole program is predicted to take")
				require.InDelta(t, p.Total.ColdUS, c.cold, 0.01*c.cold)
			}
			require.Less(t, found.US+found.ColdUS, found.DefaultUS+found.DefaultColdUS)

			golden, err := applied.Golden(t.Context())
			require.NoError(t, err)
			d, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			defer d.Close()
			s, err := runtime.Open(t.Context(), applied.Program, d, runtime.ModelOptions{})
			require.NoError(t, err)
			defer s.Close()
			for in, data := range golden.Inputs {
				require.NoError(t, s.Set(in, data))
			}
			require.NoError(t, s.Run(t.Context()))
			got, err := s.Float64s()
			require.NoError(t, err)
			for out, want := range golden.Outputs {
				m, err := runtime.Compare(got[out], want, 0, 0)
				require.NoError(t, err)
				require.GreaterOrEqual(t, m.Cosine, golden.Bounds[out].MinCosine, out)
				require.LessOrEqual(t, m.RelL2, golden.Bounds[out].RelL2, out)
			}

			tool, err := toolchain.FindPtxas(t.Context())
			if errors.Is(err, toolchain.ErrNoPtxas) {
				t.Log("not assembled: ", err)
				return
			}
			require.NoError(t, err)
			v := &applied.Program.Variants[0]
			res, err := tool.Assemble(t.Context(), v.PTX, v.Target)
			require.NoError(t, err)
			for _, k := range res.Usage {
				require.Zero(t, k.Spills, k.Kernel)
			}
		})
	}
}

// TestPartsOfAFusedRegionCanBeUnfused: a schedule says so, and the program is the one whose windows never were a chain.
func TestPartsOfAFusedRegionCanBeUnfused(t *testing.T) {
	fulltest.Long(t)
	u := tuner("", 1<<20)
	u.Path, u.Beam = "", 1
	u.Measure = func(context.Context, *kernel.Spec, *target.Target) (float64, error) { return 1, nil }
	usual := compiled(t, "vision", compile.Options{Tuning: u.Table, Tune: u.Tune})
	var names []string
	for _, n := range usual.Graph.Nodes {
		if n.IsFamily(ir.FamilyFused) && n.LastPart().IsFamily(ir.FamilyWindow) {
			names = append(names, n.Name)
		}
	}
	require.NotEmpty(t, names)
	fused := 0
	for i, k := range u.Table.Kernels {
		if strings.Contains(k.Name, "dwconv3x3_dwconv7x7") {
			u.Table.Kernels[i].Schedule = kernel.Unfused
			fused++
		}
	}
	require.Positive(t, fused)
	u.Table.Programs = nil
	got := compiled(t, "vision", compile.Options{Tuning: u.Table})
	want := compiled(t, "vision", compile.Options{Unfused: names})
	require.Len(t, got.Program.Variants[0].Entries[0].Launches, len(usual.Program.Variants[0].Entries[0].Launches)+len(names))
	require.Equal(t, want.Program.Variants[0].PTX, got.Program.Variants[0].PTX)
}

// TestPinnedDefaultsChangeNothing: a file that says of every kernel what the cost model chooses makes the program that there is without it, but for
// the reasons of few blocks.
func TestPinnedDefaultsChangeNothing(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"policy", "dmonitoring", "vision"} {
		u := tuner(filepath.Join(t.TempDir(), "t"), 0)
		u.Beam = 1
		u.Measure = func(context.Context, *kernel.Spec, *target.Target) (float64, error) { return 1, nil } // so none is better than the first, the default
		compiled(t, name, compile.Options{Tuning: u.Table, Tune: u.Tune})
		for _, k := range u.Table.Kernels {
			require.Equal(t, k.Default, k.Schedule)
		}
		u.Table.Programs = nil
		program := func(table *tunefile.Table) *runtime.Program {
			p := compiled(t, name, compile.Options{Tuning: table}).Program
			for i := range p.Variants[0].Kernels {
				p.Variants[0].Kernels[i].Reason = ""
			}
			return p
		}
		require.Equal(t, program(nil), program(u.Table))
	}
}

// TestAnInterruptedSearchGoesOn: what was found is in the file, whole, and is not searched again; the end is as without the interruption.
func TestAnInterruptedSearchGoesOn(t *testing.T) {
	fulltest.Long(t)
	dir := t.TempDir()
	all := tuner(filepath.Join(dir, "all"), 0)
	compiled(t, "policy", compile.Options{Tuning: all.Table, Tune: all.Tune})

	ctx, cancel := context.WithCancel(t.Context())
	first := tuner(filepath.Join(dir, "parts"), 0)
	first.done = func(i int) {
		if i == 2 {
			cancel()
		}
	}
	_, err := compile.Compile(ctx, model(t, "policy"), compile.Options{Precision: "fp16", Targets: []string{"sm_121"}, Tuning: first.Table, Tune: first.Tune})
	require.ErrorIs(t, err, context.Canceled)
	table := loaded(t, first.Path)
	require.Len(t, table.Kernels, 3)
	require.Empty(t, table.Programs)

	second := tuner(first.Path, 0)
	second.Table = table
	compiled(t, "policy", compile.Options{Tuning: table, Tune: second.Tune})
	require.Equal(t, all.tried, first.tried+second.tried)
	require.Equal(t, all.Table.Kernels, loaded(t, first.Path).Kernels)
	tried := second.tried

	compiled(t, "policy", compile.Options{Tuning: table, Tune: second.Tune})
	require.Equal(t, tried, second.tried)
	require.Contains(t, strings.Join(second.Found, "; "), "tuned already")
}

// TestBudgets: they end a search, and the rest is left for the next run.
func TestBudgets(t *testing.T) {
	fulltest.Long(t)
	u := tuner(filepath.Join(t.TempDir(), "t"), 3)
	compiled(t, "policy", compile.Options{Tuning: u.Table, Tune: u.Tune})
	require.Equal(t, 3, u.tried)
	require.Len(t, u.Table.Kernels, 3)
	require.Contains(t, strings.Join(u.Found, "; "), "the budget ended before")

	u = tuner(filepath.Join(t.TempDir(), "t"), 0)
	at := time.Unix(0, 0)
	u.Budget, u.now = time.Minute, func() time.Time { at = at.Add(time.Second); return at }
	compiled(t, "policy", compile.Options{Tuning: u.Table, Tune: u.Tune})
	require.Contains(t, strings.Join(u.Found, "; "), "evaluations")
	require.Less(t, u.tried, 60)
}

// TestBadPlansAreRememberedAndLeftOut: a schedule that fails is in the file and not tried again; another error ends the search.
func TestBadPlansAreRememberedAndLeftOut(t *testing.T) {
	at := func(i int) kernel.Candidate {
		return kernel.Candidate{Schedule: string(rune('a' + i)), At: []int{i}, US: float64(i)}
	}
	space := &kernel.Space{Default: "c", Candidates: []kernel.Candidate{at(0), at(1), at(2), at(3), at(4)}}
	var tried []string
	s := &search{space: space, beam: 2, bad: []tunefile.Bad{{Schedule: "d", Why: "known"}}, more: func(int) bool { return true }, cost: func(p kernel.Candidate) (float64, error) {
		tried = append(tried, p.Schedule)
		if p.Schedule == "a" {
			return 0, &FailedError{"it hung"}
		}
		return 10 - p.US, nil
	}}
	order, err := s.run()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "b", "c"}, tried, "e lies behind d, which is bad")
	require.Equal(t, "c", space.Candidates[order[0]].Schedule)
	require.Equal(t, []tunefile.Bad{{Schedule: "d", Why: "known"}, {Schedule: "a", Why: "it hung"}}, s.bad)
	s = &search{space: space, beam: 2, more: func(int) bool { return true }, cost: func(kernel.Candidate) (float64, error) { return 0, errors.New("no memory") }}
	_, err = s.run()
	require.ErrorContains(t, err, "no memory")
}
