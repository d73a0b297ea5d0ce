//go:build linux

package compile

import (
	"bytes"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/parallel"
)

// BenchmarkSerialShare measures the share of a compile's CPU time that no second core could take over (parallel.Recording),
// calibrating and the golden run included. With -v it lists the loops.
func BenchmarkSerialShare(b *testing.B) {
	models := filepath.Join("..", "..", "..", "..", "shared", "models")
	for _, name := range []string{"driving_vision", "driving_policy", "dmonitoring_model"} {
		b.Run(name, func(b *testing.B) {
			model := filepath.Join(models, name+".onnx")
			if matches, _ := filepath.Glob(model); matches == nil {
				b.Skip("the shared models are missing")
			}
			var work, span float64
			for range b.N {
				var out bytes.Buffer
				r := parallel.Record(processTime, func() {
					require.Zero(b, Main("spark-compile", []string{model, "--precision", "fp8", "--calibrate", filepath.Join(models, "calibration", name), "--quiet",
						"-o", filepath.Join(b.TempDir(), "network")}, &out, &out), out.String())
				})
				work, span = work+r.Work.Seconds(), span+r.Span.Seconds()
				b.Log(r)
			}
			b.ReportMetric(work/float64(b.N), "cpu-s/op")
			b.ReportMetric(100*span/work, "serial-%")
		})
	}
}

// processTime is the CPU time of all threads.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
