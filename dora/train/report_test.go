package train

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
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
