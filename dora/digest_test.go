package dora

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/programdigest"
)

var record = flag.Bool("update", false, "record the digests of training steps anew")

// TestTrainingStepsStayTheSame byte for byte, unless a commit records their digests anew and says why.
func TestTrainingStepsStayTheSame(t *testing.T) {
	fulltest.Long(t)
	recorded := programdigest.Open(t, "testdata/programs.txt", *record)
	for _, c := range []struct{ model, in string }{{"policy", "bf16"}, {"policy", "fp32"}, {"dmonitoring", "bf16"}} {
		m := small(t, c.model)
		a, err := Init(m, InitOptions{Rank: 2})
		require.NoError(t, err)
		s, err := NewStep(t.Context(), m, a, StepOptions{Precision: c.in, Targets: []string{"sm_121"}, MicroBatches: 2, Evaluate: true})
		require.NoError(t, err)
		recorded.Compare(c.model+" "+c.in, s.Program)
	}
}
