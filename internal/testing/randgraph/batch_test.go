package randgraph

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// TestBatchesOfRandomGraphs: a graph for three samples gives each of them exactly what the graph for one gives it.
func TestBatchesOfRandomGraphs(t *testing.T) {
	const samples = 3
	ran, ops := 0, map[string]bool{}
	for seed := range uint64(1500) {
		c, _ := Generate(seed)
		if c == nil {
			continue
		}
		g, err := onnx.Import(c.Model, onnx.ImportOptions{})
		if err != nil || len(g.Inputs) == 0 {
			continue
		}
		b, err := g.Batch(samples)
		require.NoError(t, err, c.Ops)
		whole := map[string]*ir.Array{}
		var single [samples]map[string]*ir.Array
		r := rand.New(rand.NewPCG(seed, 1))
		for i := range single {
			single[i] = map[string]*ir.Array{}
			for _, v := range g.Inputs {
				a := c.Inputs[v.Name].Array()
				if i > 0 && v.Type.DType.IsFloat() { // another sample: the elements in another order
					r.Shuffle(len(a.F), func(i, j int) { a.F[i], a.F[j] = a.F[j], a.F[i] })
				} else if i > 0 && v.Type.DType == ir.Bool {
					for k := range a.I {
						a.I[k] = int64(r.IntN(2))
					}
				}
				single[i][v.Name] = a
				w := whole[v.Name]
				if w == nil {
					w = &ir.Array{}
					whole[v.Name] = w
				}
				w.F, w.I = append(w.F, a.F...), append(w.I, a.I...)
			}
		}
		for _, v := range b.Inputs {
			whole[v.Name].Type = v.Type
		}
		var want [samples]map[string]*ir.Array
		refused := false // data may be wrong for an op: an index beyond its axis
		for i := range single {
			want[i], err = ir.Evaluate(context.Background(), g, single[i], ir.EvalOptions{})
			refused = refused || err != nil
		}
		if refused {
			continue
		}
		got, err := ir.Evaluate(context.Background(), b, whole, ir.EvalOptions{})
		require.NoError(t, err, "seed %d %v", seed, c.Ops)
		for i := range single {
			for _, v := range g.Outputs {
				n := v.Type.Numel()
				y := got[v.Name]
				for k := range n {
					if v.Type.DType.IsFloat() {
						x, w := y.F[i*n+k], want[i][v.Name].F[k]
						near := x == w || x != x && w != w || (x-w)*(x-w) <= 1e-20*w*w
						require.True(t, near, "seed %d %v: sample %d of %s at %d: %v, want %v\n%s", seed, c.Ops, i, v.Name, k, x, w, b)
					} else {
						require.Equal(t, want[i][v.Name].I[k], y.I[i*n+k], "seed %d %v: sample %d of %s at %d\n%s", seed, c.Ops, i, v.Name, k, b)
					}
				}
			}
		}
		ran++
		for _, n := range g.Nodes {
			ops[n.Op.Name] = true
		}
	}
	t.Logf("%d graphs, %d ops", ran, len(ops))
	for _, op := range ir.Ops() {
		if op.Batch != nil && !ops[op.Name] {
			t.Errorf("no graph had a %s", op.Name)
		}
	}
}
