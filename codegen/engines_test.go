package codegen_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestBlocksOnEveryEngine: a program whose activations travel as NVFP4, from every family of kernels, is native code
// throughout and gives the interpreter's bits.
func TestBlocksOnEveryEngine(t *testing.T) {
	if _, err := emu.Open(emu.Options{Engine: emu.JIT}); err != nil {
		t.Skip(err)
	}
	ctx := context.Background()
	n, _ := blockNetwork(t)
	p, _ := n.Program(families.New(nil), target.Default())
	x := n.Data[n.Inputs[0]]
	outputs := map[emu.Engine]map[string][]byte{}
	for _, engine := range []emu.Engine{emu.Specification, emu.JIT, emu.AVX2} {
		d, err := emu.Open(emu.Options{Engine: engine})
		require.NoError(t, err)
		m, err := runtime.NewModel(ctx, p, d, runtime.ModelOptions{})
		require.NoError(t, err)
		s, err := m.NewSession(ctx, runtime.SessionOptions{})
		require.NoError(t, err)
		copy(s.Input(p.Inputs[0].Name), x.Data)
		require.NoError(t, s.Run(ctx))
		outputs[engine] = map[string][]byte{}
		for _, o := range p.Outputs {
			outputs[engine][o.Name] = append([]byte(nil), s.Output(o.Name)...)
		}
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
		stats := d.EngineStats()
		require.Empty(t, stats.Left, engine)
		require.Zero(t, stats.Refused, engine)
	}
	require.Equal(t, outputs[emu.Specification], outputs[emu.JIT])
	require.Equal(t, outputs[emu.Specification], outputs[emu.AVX2])
}
