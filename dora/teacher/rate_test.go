package teacher

import (
	"context"
	"fmt"
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
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// least are the rates of issue 17 that teachers in fp8 are to have on GB10, in inferences a second.
var least = map[string]float64{"policy": 3000, "vision": 2000}

// TestPredictedRates prints docs/measurements/teacher.csv: what the cost model predicts of teachers of full-size
// models on GB10. Every layer is quantised, by one batch of generated inputs. SPARK_TEACHER_RATES names batches, all
// of the table if it is 1,4,8,16.
func TestPredictedRates(t *testing.T) {
	if !fulltest.Runs(t.Name()) && os.Getenv("SPARK_TEACHER_RATES") == "" {
		t.Skip("a long test: set SPARK_TEACHER_RATES to batches, as 1,4,8,16")
	}
	batches := []string{"1"}
	if list := os.Getenv("SPARK_TEACHER_RATES"); list != "" {
		batches = strings.Split(list, ",")
	}
	t.Log("model,precision,batch,launches,time a run (µs),time a sample (µs),inferences/s")
	for _, name := range []string{"policy", "vision", "dmonitoring"} {
		src, err := driving.Make(name, driving.Full)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), name+".onnx")
		require.NoError(t, os.WriteFile(path, src.ONNX, 0o666))
		file, err := onnx.Load(path)
		require.NoError(t, err)
		g, err := onnx.Import(file, onnx.ImportOptions{})
		require.NoError(t, err)
		for _, text := range batches {
			var batch int
			_, err := fmt.Sscan(text, &batch)
			require.NoError(t, err)
			for _, precision := range []string{"fp16", "fp8"} {
				opt := Options{Precision: precision, Batch: batch, MinCosine: -1}
				if precision == "fp8" {
					opt.Calibrate = calibrate.Bytes(calibrate.Generate(g, batch))
				}
				opt.defaults()
				r, err := compiled(context.Background(), file, &opt)
				require.NoError(t, err)
				p, err := r.Profile(context.Background())
				require.NoError(t, err)
				rate := 1e6 * float64(batch) / p.Total.US
				t.Logf("%s,%s,%d,%d,%.1f,%.1f,%.0f", name, precision, batch, p.Total.Launches, p.Total.US, p.Total.US/float64(batch), rate)
				if precision == "fp8" {
					assert.GreaterOrEqual(t, rate, least[name], "%s, %d samples at a time", name, batch)
				}
			}
		}
	}
}

// BenchmarkTeacher is the rate on the CPU device, of small models: inferences a second, computed and from the cache.
func BenchmarkTeacher(b *testing.B) {
	for _, name := range []string{"policy", "vision", "dmonitoring"} {
		file := model(b, name, driving.Small)
		keys, inputs := samples(b, file, 8)
		for _, batch := range []int{1, 8} {
			for _, kept := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/batch=%d/kept=%t", name, batch, kept), func(b *testing.B) {
					opt := Options{Precision: "fp16", Batch: batch}
					if kept {
						opt.CacheDir = b.TempDir()
					}
					teacher := open(b, file, opt)
					values(b, teacher, keys, inputs)
					for b.Loop() {
						values(b, teacher, slices.Clone(keys), inputs)
					}
					b.ReportMetric(float64(len(keys)*b.N)/b.Elapsed().Seconds(), "inferences/s")
				})
			}
		}
	}
}
