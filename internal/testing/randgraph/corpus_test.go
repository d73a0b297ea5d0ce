package randgraph

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/backendtest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestCorpus runs the small files of faults that were found: expected outputs are ONNX Runtime's.
func TestCorpus(t *testing.T) {
	dirs, err := backendtest.List("testdata/corpus")
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{Check: true, Workers: 1})
	require.NoError(t, err)
	defer d.Close()
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			n, err := backendtest.Load(dir)
			require.NoError(t, err)
			c := &Case{Name: n.Name, Model: n.Model, Inputs: n.Inputs(n.Sets[0])}
			v := &Verdict{By: "ort", Outputs: map[string]*ir.Tensor{}}
			for i, o := range n.Model.Proto.Graph.Output {
				v.Outputs[o.GetName()] = n.Sets[0].Outputs[i]
			}
			if f := c.Compare(v); f != nil {
				t.Error(f)
			}
			if _, f := c.Check(context.Background(), d, Precisions); f != nil {
				t.Error(f)
			}
		})
	}
}
