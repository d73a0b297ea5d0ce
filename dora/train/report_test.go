package train

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/internal/testing/browser"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

func TestReport_WarnsWhereTrainingMadeTheModelWorse(t *testing.T) {
	page := func(best float64) string {
		r := &run{opt: Options{Model: "m.onnx", Output: t.TempDir()}, adapter: &dora.Adapter{}, pos: position{
			Base: &Evaluation{Loss: 0.5}, Best: &Evaluation{Loss: best}, BestAt: 7}}
		require.NoError(t, r.report())
		raw, err := os.ReadFile(filepath.Join(r.opt.Output, reportFile))
		require.NoError(t, err)
		return string(raw)
	}
	require.Contains(t, page(40), `<p class="warn">Warning: validation loss rose from 0.5 without the adapter to 40 at best, after update 7;`)
	require.Contains(t, page(0.25), "<p>validation loss 0.5 without the adapter, 0.25 at best, after update 7.</p>")
}

// TestReport_LooksRight in a browser, with many terms and settings.
func TestReport_LooksRight(t *testing.T) {
	fulltest.Long(t)
	terms := func(x float64) map[string]float64 {
		return map[string]float64{"desired_curvature": x, "lane_lines_prob": x / 3, "lead": 2 * x, "plan": x / 20, "road_edges": x / 2}
	}
	r := &run{opt: Options{Model: "driving_policy.onnx", Teacher: "teacher.onnx", Data: "routes", Output: t.TempDir(), Epochs: 4}, each: 50,
		adapter: &dora.Adapter{}, pos: position{Base: &Evaluation{0.5, terms(.1)}, Best: &Evaluation{0.6, terms(.12)}, BestAt: 100, Update: 200,
			Settings: map[string]string{"loss": "distil", "data": strings.Repeat("a/long/path/", 12), "lr": "0.01"}}}
	for i := range 200 {
		x := math.Exp(-float64(i)/40) + .1*math.Abs(math.Sin(float64(i)))
		r.records = append(r.records, Record{Update: i + 1, Loss: x, Terms: terms(x), Rate: 1e-3 * math.Cos(float64(i)/150), Norm: 30 * x,
			Samples: 12 + math.Sin(float64(i)), Waited: .01})
		if i%50 == 49 {
			r.records = append(r.records, Record{Update: i + 1, Validation: &Evaluation{Loss: .5 + x}})
		}
	}
	require.NoError(t, r.report())
	browser.Check(t, "spark-dora-train", "file://"+filepath.Join(r.opt.Output, reportFile))
}
