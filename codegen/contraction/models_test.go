package contraction_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
)

// TestModelsUseTheseKernels lowers every contraction region of the full-size models: none is refused, and the large ones
// show in their main loop what a GPU wants.
func TestModelsUseTheseKernels(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no ../shared/models beside the repository")
	}
	if testing.Short() {
		t.Skip("full-size models in -short")
	}
	const large = 5_000_000 // MACs
	for _, model := range []string{"driving_policy", "dmonitoring_model", "driving_vision"} {
		for _, precision := range []string{"fp16", "fp32"} {
			t.Run(model+" "+precision, func(t *testing.T) {
				m, err := onnx.Load(filepath.Join(dir, model+".onnx"))
				require.NoError(t, err)
				r, err := compile.Compile(context.Background(), m, compile.Options{Precision: precision, Targets: []string{"sm_121"}})
				require.NoError(t, err)
				require.Empty(t, r.Fallbacks)
				tgt, err := target.Lookup("sm_121")
				require.NoError(t, err)
				for _, n := range r.Graph.Nodes {
					if n.Region.Family != "contraction" {
						continue
					}
					spec, err := contraction.Lower(n, &kernel.Context{Target: tgt})
					require.NoError(t, err)
					if spec.MACs < large {
						continue
					}
					l := contraction.Inspect(spec)
					t.Logf("%-40s %-44s %4d blocks %5.1f per load %3.0f %% wide %d stages %s", spec.Note, spec.Schedule, l.Blocks, l.PerSharedLoad(), 100*l.Wide(), l.Stages, spec.Reason)
					require.GreaterOrEqual(t, l.PerSharedLoad(), 2.0, spec.Note)
					require.GreaterOrEqual(t, l.Wide(), 0.9, spec.Note)
					require.Greater(t, l.Stages, 2, spec.Note)
					require.True(t, l.Blocks >= 48 || spec.Reason != "", spec.Note)
				}
			})
		}
	}
}
