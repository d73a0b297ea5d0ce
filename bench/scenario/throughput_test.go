package scenario

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	spark "github.com/spark-compile/spark-compile/runtime"
)

// subject is what a tier's throughput is measured of.
type subject struct {
	tier       Tier
	controller *Controller
	list       []Scenario
	step       func(t *twin, number uint64) // of the twin
}

func subjects(tb testing.TB) []subject {
	pid, err := BuiltIn("pid")
	require.NoError(tb, err)
	list := []subject{
		{Controls, Asked, asking(rand.New(rand.NewPCG(7, 8)), 1024), func(t *twin, _ uint64) { t.stepControls() }},
		{Planner, pid, drawn(rand.New(rand.NewPCG(7, 8)), 1024), func(t *twin, number uint64) { t.step(1, number) }},
	}
	for _, s := range list {
		for i := range s.list {
			s.list[i].Values[paramRow("duration")] = 600
		}
	}
	return list
}

func (s *subject) design(loops int) *design {
	return &design{loops: loops, float: ir.Float32, tier: s.tier, controller: s.controller}
}

// BenchmarkStep gives scenario steps a second of each tier without pictures: of batches on the CPU device, ten steps an
// entry, and of the twin in plain Go.
func BenchmarkStep(b *testing.B) {
	d, err := emu.Open(emu.Options{})
	require.NoError(b, err)
	defer d.Close()
	for _, subject := range subjects(b) {
		for _, loops := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("%v/device/loops=%d", subject.tier, loops), func(b *testing.B) {
				design := subject.design(loops)
				program, err := design.compiled(b.Context(), nil)
				require.NoError(b, err)
				s, err := spark.Open(b.Context(), program.Program, d, spark.ModelOptions{})
				require.NoError(b, err)
				defer s.Close()
				x := &batch{design: design, session: s, size: loops, list: subject.list[:loops], numbers: make([]uint64, loops)}
				require.NoError(b, x.begin())
				for b.Loop() {
					require.NoError(b, s.RunEntry(b.Context(), entrySteps))
				}
				b.ReportMetric(stepsAtOnce*float64(loops)*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		}
		for _, cores := range slices.Compact([]int{1, runtime.NumCPU()}) {
			b.Run(fmt.Sprintf("%v/twin/cores=%d", subject.tier, cores), func(b *testing.B) {
				twins := make([]*twin, len(subject.list))
				for i := range twins {
					twins[i] = newTwin(subject.list[i])
				}
				for b.Loop() {
					stepAll(twins, cores, subject.step)
				}
				b.ReportMetric(float64(len(twins))*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		}
	}
}

// machines are GB10 with the constants of the cost model, and with conservative ones.
func machines(tb testing.TB) (published, conservative *target.Target) {
	published, err := target.Lookup("sm_121")
	require.NoError(tb, err)
	slow := *published
	slow.Measured = map[string]target.Figure{}
	for name, x := range map[string]float64{"launch_us": 1, "l2_read_gbps": 1000, "memory_gbps": 218, "exposed": 0.25} {
		slow.Measured[name] = target.Figure{Low: x, Middle: x, High: x}
	}
	return published, &slow
}

// predicted are the steps a second of so many loops on a machine.
func predicted(tb testing.TB, program *spark.Program, on *target.Target, loops int) float64 {
	p, err := profile.Run(tb.Context(), program, &program.Variants[0], entrySteps, on)
	require.NoError(tb, err)
	return stepsAtOnce * float64(loops) / p.Waited.Middle * 1e6
}

// BenchmarkPredictedStep gives predicted scenario steps a second on GB10, ten steps an entry, with what it costs to start
// one and to wait for it: with the constants of the cost model (internal/cost), and with conservative ones.
func BenchmarkPredictedStep(b *testing.B) {
	published, conservative := machines(b)
	for _, subject := range subjects(b) {
		for _, loops := range []int{1, 64, 1024, 4096, 16384} {
			b.Run(fmt.Sprintf("%v/loops=%d", subject.tier, loops), func(b *testing.B) {
				r, err := subject.design(loops).compiled(b.Context(), []string{published.Name})
				require.NoError(b, err)
				for b.Loop() {
					b.ReportMetric(predicted(b, r.Program, published, loops), "steps/s")
					b.ReportMetric(predicted(b, r.Program, conservative, loops), "conservative-steps/s")
				}
			})
		}
	}
}

// TestPredictedStep_IsWhatTheDocumentSays at 1,024 loops, to 1 %.
func TestPredictedStep_IsWhatTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulation.md")
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.TrimSpace(cells[1]) == "1,024" {
			rows = append(rows, cells)
		}
	}
	published, conservative := machines(t)
	list := subjects(t)
	require.Len(t, rows, len(list))
	for i := range list {
		r, err := list[i].design(1024).compiled(t.Context(), []string{published.Name})
		require.NoError(t, err)
		for column, on := range map[int]*target.Target{3: published, 4: conservative} {
			want, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(rows[i][column]), ",", ""), 64)
			require.NoError(t, err)
			require.InEpsilon(t, want, predicted(t, r.Program, on, 1024)/1e3, 0.01, "%v, column %d", list[i].tier, column)
		}
	}
}

// BenchmarkModels gives scenario steps a second with full-size models in the loop, in fp16: on the CPU device, and
// predicted on GB10 as BenchmarkPredictedStep does. A step is an entry.
func BenchmarkModels(b *testing.B) {
	m := &Models{Name: "models", Precision: "fp16"}
	for _, name := range []string{"driving_vision", "driving_policy"} {
		path := "../../../shared/models/" + name + ".onnx"
		file, err := onnx.Load(path)
		if os.IsNotExist(err) {
			b.Skip("needs ", path)
		}
		require.NoError(b, err)
		m.ONNX = append(m.ONNX, file)
	}
	published, conservative := machines(b)
	b.Run("predicted", func(b *testing.B) {
		l, err := m.load(modelLoops)
		require.NoError(b, err)
		d := &design{loops: modelLoops, float: ir.Float32, models: l, view: l.view}
		r, err := d.compiled(b.Context(), []string{published.Name})
		require.NoError(b, err)
		for b.Loop() {
			for unit, on := range map[string]*target.Target{"steps/s": published, "conservative-steps/s": conservative} {
				p, err := profile.Run(b.Context(), r.Program, &r.Program.Variants[0], "run", on)
				require.NoError(b, err)
				b.ReportMetric(modelLoops/p.Waited.Middle*1e6, unit)
				b.ReportMetric(float64(p.Total.Launches), "launches")
			}
		}
	})
	b.Run("device", func(b *testing.B) {
		d, err := emu.Open(emu.Options{})
		require.NoError(b, err)
		defer d.Close()
		x := modelLoop(b, d, m, roads(rand.New(rand.NewPCG(1, 2)), modelLoops), make([]uint64, modelLoops))
		for b.Loop() {
			require.NoError(b, x.step(b.Context(), 0))
		}
		b.ReportMetric(modelLoops*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
	})
}
