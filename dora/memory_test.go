package dora

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/fulltest"
)

// TestAStepFitsItsMemory: what is computed again has the same bits, in every precision, from all the memory that a step takes
// down to the least.
func TestAStepFitsItsMemory(t *testing.T) {
	for _, name := range models {
		for _, in := range []string{"fp32", "fp16", "bf16"} {
			if (name == "policy") == (in == "fp16") || name != "policy" && !fulltest.Runs(t.Name()) {
				continue
			}
			m := small(t, name)
			train := func(memory int) (arena int, state []byte, losses []float64, again []compile.Recomputed, err error) {
				a := trained(t, m, InitOptions{Rank: 2})
				s, err := NewStep(context.Background(), m, a, StepOptions{Precision: in, Memory: memory, ClipNorm: 10})
				if err != nil {
					return 0, nil, nil, nil, err
				}
				tr := trainer(t, s, name == "policy")
				for i := range 2 {
					feed(t, m, tr.Session(), i)
					r, err := tr.Step(context.Background(), 1e-3)
					require.NoError(t, err)
					losses = append(losses, r.Loss, r.Norm)
				}
				state, err = tr.Session().State(keptAdapter)
				require.NoError(t, err)
				return s.Program.Variants[0].ArenaBytes, state, losses, s.Compile.Recomputed, nil
			}
			most, want, wantLosses, none, err := train(0)
			require.NoError(t, err)
			require.Empty(t, none)
			_, _, _, _, err = train(1)
			var over *compile.MemoryError
			require.True(t, errors.As(err, &over), "%v", err)
			assert.Less(t, over.Least, most/2, "%s %s", name, in)
			for _, memory := range []int{most, most * 3 / 4, most / 2, over.Least} {
				arena, got, losses, again, err := train(memory)
				require.NoError(t, err, "%s %s in %d bytes of %d", name, in, memory, most)
				assert.LessOrEqual(t, arena, memory, "%s %s", name, in)
				assert.Equal(t, memory < most, len(again) > 0)
				assert.Equal(t, wantLosses, losses, "%s %s in %d bytes of %d", name, in, memory, most)
				assert.Equal(t, want, got, "%s %s in %d bytes of %d", name, in, memory, most)
				times, macs := 0, int64(0)
				for _, c := range again {
					times, macs = times+c.Times, macs+c.MACs
				}
				t.Logf("%s %s: %d bytes of %d, %d allowed, %d launches again, %d MACs", name, in, arena, most, memory, times, macs)
			}
		}
	}
}
