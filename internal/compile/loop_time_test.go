package compile

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestOneGraphTakesNoLongerThanItsModels: the step of modeld (warp, histories, vision, policy), predicted, against both models alone. With cold weights it takes 5 µs
// more at most, and again and again 5 µs more than the models that run in turn. Of predictions by themselves each has all of L2.
func TestOneGraphTakesNoLongerThanItsModels(t *testing.T) {
	fulltest.Long(t)
	const more = 5
	run := func(t *testing.T, loop openpilot.Options, models []*onnx.Model) (sum, one *profile.Sum, turns float64) {
		opt := Options{Precision: "fp16", Targets: []string{"sm_121"}}
		sum = &profile.Sum{}
		predict := func(p *runtime.Program) *profile.Sum {
			prof, err := profile.Run(t.Context(), p, &p.Variants[0], "run", nil)
			require.NoError(t, err)
			return &prof.Total
		}
		var programs []*runtime.Program
		for _, m := range models {
			r, err := Compile(t.Context(), m, opt)
			require.NoError(t, err)
			programs = append(programs, r.Program)
			p := predict(r.Program)
			sum.US, sum.ColdUS, sum.Launches = sum.US+p.US, sum.ColdUS+p.ColdUS, sum.Launches+p.Launches
		}
		r, err := Loop(t.Context(), models, loop, opt)
		require.NoError(t, err)
		one = predict(r.Program)
		turns, err = profile.InTurn(t.Context(), programs, target.Default())
		require.NoError(t, err)
		t.Logf("models %.1f µs, %.1f cold, %.1f in turn, in %d launches; one graph %.1f, %.1f in %d", sum.US, sum.ColdUS, turns, sum.Launches, one.US, one.ColdUS, one.Launches)
		return sum, one, turns
	}
	t.Run("small", func(t *testing.T) {
		sum, one, turns := run(t, openpilot.Options{Largest: generation.VisionIPC(482, 302)}, []*onnx.Model{small(t, "vision"), small(t, "policy")})
		require.LessOrEqual(t, one.US, sum.US+more, "they find room in L2")
		require.LessOrEqual(t, one.US, turns+more)
		require.LessOrEqual(t, one.ColdUS, sum.ColdUS+more)
	})
	t.Run("full", func(t *testing.T) {
		if !fulltest.Runs(t.Name()) {
			t.Skip("compiles full-size models: set SPARK_FULL=1")
		}
		var models []*onnx.Model
		for _, name := range []string{"driving_vision", "driving_policy"} {
			path := "../../../shared/models/" + name + ".onnx"
			m, err := onnx.Load(path)
			if os.IsNotExist(err) {
				src, err := driving.Make(map[string]string{"driving_vision": "vision", "driving_policy": "policy"}[name], driving.Full)
				require.NoError(t, err)
				t.Logf("%s is missing: the generator's %s stands in", path, name)
				m, err = onnx.Decode(name+".onnx", src.ONNX)
				require.NoError(t, err)
			}
			require.NoError(t, err)
			models = append(models, m)
		}
		sum, one, turns := run(t, openpilot.Options{}, models)
		require.LessOrEqual(t, one.ColdUS, sum.ColdUS+more)
		require.LessOrEqual(t, one.US, turns+more)
	})
}
