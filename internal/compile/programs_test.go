package compile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/programdigest"
)

var update = flag.Bool("update", false, "record the programs' digests anew")

// TestProgramsStayTheSame compares compiled programs with recorded digests: a change that is to leave programs alone
// leaves them alone, byte for byte. A change that is meant to alter them records them anew with -update, and its commit
// says why. Without SPARK_FULL, policy is compared in every precision and the other generated models in fp16. SPARK_FULL=1
// adds what takes long to calibrate: the full-size models and supercombo in precisions that calibrate, vision for several targets. What they add is size and a recurrent state, which fp16 has as well.
func TestProgramsStayTheSame(t *testing.T) {
	recorded := programdigest.Open(t, "testdata/programs.txt", *update)
	add := func(name, in string, r *Result) {
		var targets []string
		for _, v := range r.Program.Variants {
			targets = append(targets, v.Target)
		}
		recorded.Compare(fmt.Sprintf("%s %s %s", name, in, strings.Join(targets, ",")), r.Program)
	}
	everything := fulltest.Runs(t.Name())
	for _, name := range names {
		for _, row := range precision.All() {
			in := row.Name
			if row.Calibrates() && name == "supercombo" && !everything || in != precision.FP16 && name != "policy" && !fulltest.Some() {
				continue
			}
			r, _ := generated(t, name, in, "sm_121")
			add(name, in, r)
		}
	}
	if !fulltest.Some() {
		return
	}
	several := []string{"policy"}
	if everything {
		several = append(several, "vision")
	}
	for _, name := range several {
		r, _ := generated(t, name, "fp8", target.Names()...)
		add(name, "fp8", r)
	}
	for _, name := range []string{"dmonitoring_model", "driving_policy", "driving_vision"} {
		path := "../../../shared/models/" + name + ".onnx"
		if _, err := os.Stat(path); err != nil {
			t.Logf("%s is missing: %s is not compared", path, name)
			continue
		}
		for _, row := range precision.All() {
			in := row.Name
			if row.Calibrates() && !everything {
				continue
			}
			m, err := onnx.Load(path)
			require.NoError(t, err)
			opt := Options{Precision: in, Targets: []string{"sm_121"}}
			if precision.Calibrates(in) {
				files, err := filepath.Glob("../../../shared/models/calibration/" + name + "/*.npz")
				require.NoError(t, err)
				opt.Calibrate = files[:2]
			}
			add(name, in, once(t, m, opt))
		}
	}
	for _, c := range quantisedFiles {
		path := "../../../shared/models/quantised/" + c.name + ".onnx"
		if _, err := os.Stat(path); err != nil {
			t.Logf("%s is missing: it is not compared", path)
			continue
		}
		add(c.name, "fp16", compiledFile(t, path, "fp16"))
	}
}
