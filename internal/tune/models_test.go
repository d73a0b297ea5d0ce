package tune

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestTheFilesOfBenchStillApply: of the models of ../shared/models the file in bench/tuning knows the program and all of its kernels, and no schedule is
// refused.
func TestTheFilesOfBenchStillApply(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"driving_policy", "dmonitoring_model", "driving_vision"} {
		t.Run(name, func(t *testing.T) {
			model := "../../../shared/models/" + name + ".onnx"
			if _, err := os.Stat(model); errors.Is(err, fs.ErrNotExist) {
				t.Skip(err)
			}
			table := loaded(t, "../../bench/tuning/"+name+".fp16.json")
			m, err := onnx.Load(model)
			require.NoError(t, err)
			var warnings []string
			r, err := compile.Compile(t.Context(), m, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}, Tuning: table, Warn: func(s string) { warnings = append(warnings, s) }})
			require.NoError(t, err)
			require.Empty(t, warnings)
			require.Len(t, table.Programs, 1)
			applied := map[string]bool{}
			for _, k := range r.Program.Variants[0].Kernels {
				applied[k.Schedule] = true
			}
			for kernelName, schedule := range table.Programs[0].Kernels {
				if schedule == kernel.Unfused { // its windows are kernels of their own
					require.False(t, applied[table.Kernel(kernelName).Default], kernelName)
					continue
				}
				require.True(t, applied[schedule] || applied[schedule+" unroll=true"] || applied[schedule+" unroll=false"], "%s: %s", kernelName, schedule)
			}
		})
	}
}

// TestNoOtherKernelTakesThePlaceOfOneThatCannotBe: a contraction with an impossible schedule does not become a loop.
func TestNoOtherKernelTakesThePlaceOfOneThatCannotBe(t *testing.T) {
	u := tuner("t.json", 1<<20)
	u.Path, u.Beam = "", 1
	u.Measure = func(context.Context, *kernel.Spec, *target.Target) (float64, error) { return 1, nil }
	compiled(t, "policy", compile.Options{Tuning: u.Table, Tune: u.Tune})
	spoilt := 0
	for i, k := range u.Table.Kernels {
		if strings.HasPrefix(k.Name, "matmul") {
			u.Table.Kernels[i].Schedule = "wrong"
			spoilt++
		}
	}
	require.Positive(t, spoilt)
	_, err := compile.Compile(t.Context(), model(t, "policy"), compile.Options{Precision: "fp16", Targets: []string{"sm_121"}, Tuning: u.Table})
	var bad *kernel.ScheduleError
	require.ErrorAs(t, err, &bad)
}
