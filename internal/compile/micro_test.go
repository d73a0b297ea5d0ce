package compile

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// inBatch compiles a small model for a batch in micro-batches of a size; 0: the fastest.
func inBatch(t *testing.T, m *onnx.Model, precision string, batch, size int) *runtime.Program {
	t.Helper()
	r, err := compiled(context.Background(), m, Options{Precision: precision, Targets: []string{"sm_121"}, batching: batching{size: size}, Import: onnx.ImportOptions{Batch: batch}})
	require.NoError(t, err)
	return r.Program
}

// samplesOf are a small model's inputs for samples, as bytes of its ports.
func samplesOf(t *testing.T, m *onnx.Model, p *runtime.Program, samples int) []map[string][]byte {
	t.Helper()
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	var out []map[string][]byte
	for _, in := range calibrate.Generate(g, samples) {
		bytes := map[string][]byte{}
		for _, q := range p.Inputs {
			bytes[q.Name] = portBytes(in[q.Name], q)
		}
		out = append(out, bytes)
	}
	return out
}

// runs are what a program computes for samples, so many at a time, each time from states of zeros, in the second of two runs, which reads states
// that the first left: the outputs of each sample, in the order of ports. All checks are on.
func runs(t *testing.T, p *runtime.Program, samples []map[string][]byte, atATime int) (out [][][]byte) {
	t.Helper()
	for at := 0; at < len(samples); at += atATime {
		s := session(t, p, true)
		for range 2 {
			for _, q := range p.Inputs {
				if slices.ContainsFunc(p.States, func(st runtime.State) bool { return st.Input == q.Name }) {
					continue
				}
				var data []byte
				for _, sample := range samples[at : at+atATime] {
					data = append(data, sample[q.Name]...)
				}
				require.NoError(t, s.Set(q.Name, data))
			}
			require.NoError(t, s.Run(t.Context()))
		}
		for i := range atATime {
			var of [][]byte
			for _, q := range p.Outputs {
				all := s.Output(q.Name)
				n := len(all) / atATime
				of = append(of, slices.Clone(all[i*n:(i+1)*n]))
			}
			out = append(out, of)
		}
	}
	return out
}

// TestMicroBatchesAreRunsOneAfterTheOther: a batch of 4 in micro-batches of 2 and 1 has the bits that the programs of such batches give in 2 and 4
// runs. Slices begin wherever they fall, and states are every sample's own.
func TestMicroBatchesAreRunsOneAfterTheOther(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct {
		name, precision string
		size            int
		full            bool
	}{{"policy", "fp16", 1, false}, {"policy", "fp32", 2, false}, {"supercombo", "fp16", 2, false},
		{"policy", "fp16", 2, true}, {"policy", "fp32", 1, true}, {"supercombo", "fp16", 1, true}, {"supercombo", "fp32", 1, true}, {"supercombo", "fp32", 2, true}} {
		t.Run(fmt.Sprint(c.name, " ", c.precision, " ", c.size), func(t *testing.T) {
			if c.full && !fulltest.Runs(t.Name()) {
				t.Skip("full only: another case of three")
			}
			m := small(t, c.name)
			p, alone := inBatch(t, m, c.precision, 4, c.size), inBatch(t, m, c.precision, c.size, c.size)
			require.Equal(t, 4/c.size, p.Variants[0].Entries[0].Repeats)
			samples := samplesOf(t, m, alone, 4)
			require.Equal(t, runs(t, alone, samples, c.size), runs(t, p, samples, 4))
		})
	}
}

// TestALargeBatchIsItsSamples: a batch of 32, in four micro-batches in fp16 and in what the estimate prefers in fp32, gives each sample what the
// program for one gives.
func TestALargeBatchIsItsSamples(t *testing.T) {
	fulltest.Long(t)
	for _, name := range names {
		for precision, bound := range map[string]float64{"fp16": 2e-2, "fp32": 1e-4} {
			t.Run(name+" "+precision, func(t *testing.T) {
				batch := 32
				if full := fulltest.Runs(t.Name()); !full && name != "policy" {
					t.Skip("full only: minutes, with checks on")
				} else if !full {
					batch = 8
				}
				size := 0
				if precision == "fp16" {
					size = batch / 4
				}
				m := small(t, name)
				p, alone := inBatch(t, m, precision, batch, size), once(t, m, Options{Precision: precision, Targets: []string{"sm_121"}}).Program
				samples := samplesOf(t, m, alone, batch)
				got, want := runs(t, p, samples, batch), runs(t, alone, samples, 1)
				for k, q := range alone.Outputs {
					var miss, size float64
					for i := range samples {
						x, y := numbersOf(t, q, got[i][k]), numbersOf(t, q, want[i][k])
						for j := range y {
							d := x[j] - y[j]
							miss, size = miss+d*d, size+y[j]*y[j]
						}
					}
					t.Logf("%s: %.2g", q.Name, math.Sqrt(miss/size))
					assert.LessOrEqual(t, math.Sqrt(miss), bound*math.Sqrt(size), q.Name)
				}
			})
		}
	}
}

// numbersOf are the elements of an output.
func numbersOf(t *testing.T, q runtime.Port, data []byte) []float64 {
	t.Helper()
	d, err := ir.ParseDType(q.DType)
	require.NoError(t, err)
	v, err := ir.NewTensor(ir.T(d, q.Shape...), data)
	require.NoError(t, err)
	a := v.Array()
	if a.F == nil {
		for _, x := range a.I {
			a.F = append(a.F, float64(x))
		}
	}
	return a.F
}

// TestMicroBatches_NeedSamplesOfTheirOwn: a batch runs as one where samples may mix, or where its whole graph is calibrated or traced.
func TestMicroBatches_NeedSamplesOfTheirOwn(t *testing.T) {
	sample := ir.NewGraph("g")
	require.True(t, (&Options{Precision: "fp16", Sample: sample}).cuttable())
	for _, opt := range []Options{{Precision: "fp16"}, {Precision: "fp8", Sample: sample}, {Precision: "fp16", Sample: sample, Trace: true},
		{Precision: "fp16", Sample: sample, GraphOnly: true}} {
		require.False(t, opt.cuttable(), "%+v", opt)
	}
}

// TestTheEstimateFindsMicroBatches: driver monitoring at full size with a batch of 16 does not fit L2 as one, so its first layers run in parts; the
// small model does.
func TestTheEstimateFindsMicroBatches(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("full only: a model of full size")
	}
	for size, parts := range map[driving.Size]bool{driving.Small: false, driving.Full: true} {
		src, err := driving.Make("dmonitoring", size)
		require.NoError(t, err)
		m, err := onnx.Decode("dmonitoring.onnx", src.ONNX)
		require.NoError(t, err)
		p := inBatch(t, m, "fp16", 16, 0)
		launches := p.Variants[0].Entries[0].Launches
		firsts := slices.DeleteFunc(slices.Clone(launches), func(l runtime.Launch) bool { return l.Note != launches[0].Note })
		require.Equal(t, parts, len(firsts) > 1, fmt.Sprint(size))
		require.Equal(t, parts, p.Variants[0].ArenaBytes < inBatch(t, m, "fp16", 16, 16).Variants[0].ArenaBytes)
	}
}

// TestTimesOfBatches prints docs/measurements/batches.csv for the models that SPARK_BATCHES names, in the
// directory next to the repository.
func TestTimesOfBatches(t *testing.T) {
	list := os.Getenv("SPARK_BATCHES")
	if list == "" {
		t.Skip("set SPARK_BATCHES to models, as dmonitoring_model,driving_policy,driving_vision")
	}
	t.Log("model,batch,micro-batches,batches of the first layers,time a frame (µs),arena (MB),read (MB),written (MB),tensor-core rate (% of 91 TFLOPS),launches")
	for _, name := range strings.Split(list, ",") {
		m, err := onnx.Load(filepath.Join("..", "..", "..", "shared", "models", name+".onnx"))
		require.NoError(t, err)
		for _, batch := range []int{1, 2, 4, 8, 16, 32, 64} {
			r, err := compiled(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Import: onnx.ImportOptions{Batch: batch}})
			require.NoError(t, err)
			p, err := r.Profile(t.Context())
			require.NoError(t, err)
			v := &r.Program.Variants[0]
			e := v.Entry("run")
			var read, written int
			for _, l := range e.Launches {
				for _, a := range l.Reads {
					read += a.Bytes
				}
				for _, a := range l.Writes {
					written += a.Bytes
				}
			}
			macs := map[string]int64{} // of a launch
			for _, k := range v.Kernels {
				macs[k.Name] = k.MACs
			}
			var done, us float64 // by launches that multiply on tensor cores
			for _, l := range p.Launches {
				if l.MACs > 0 {
					done, us = done+float64(macs[l.Kernel]), us+l.Time.US
				}
			}
			t.Logf("%s,%d,%d,%d,%.1f,%.1f,%.1f,%.1f,%.1f,%d", name, batch, max(1, e.Repeats), max(1, e.Fronts), p.Total.US/float64(batch), float64(v.ArenaBytes)/1e6,
				float64(read)/1e6, float64(written)/1e6, 100*2*done/(us*1e-6)/91e12, p.Total.Launches)
		}
	}
}
