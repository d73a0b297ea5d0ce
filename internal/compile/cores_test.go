package compile

import (
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestCompile_SameBytesOnAnyNumberOfCores calibrates a generated model within a budget, searches and judges on 1, 2, 8 and
// 20 cores. Fewer are here in earnest, but workers and tiles are as many.
func TestCompile_SameBytesOnAnyNumberOfCores(t *testing.T) {
	fulltest.Long(t)
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(0))
	for _, model := range []string{"policy", "dmonitoring"} {
		var want map[string][]byte
		for _, cores := range []int{1, 2, 8, 20} {
			goruntime.GOMAXPROCS(cores)
			r, err := compiled(t.Context(), small(t, model), Options{Precision: "fp8", Targets: []string{"sm_121"}, MinCosine: 0.999})
			require.NoError(t, err)
			files, err := r.Program.Files()
			require.NoError(t, err)
			if want == nil {
				want = files
			}
			require.Equal(t, len(want), len(files))
			for name, data := range files {
				require.True(t, string(want[name]) == string(data), "%s: %s differs on %d cores", model, name, cores)
			}
		}
	}
}
