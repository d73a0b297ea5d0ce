package calibrate

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
)

// Forward computes the outputs of a graph of f32 regions on some inputs, as a calibration computes its exact values: by
// output name, [input][element].
func Forward(ctx context.Context, g *ir.Graph, inputs []map[string]*ir.Array, e Evaluator) (map[string][][]float64, error) {
	w, err := newWalk(g, inputs)
	if err != nil {
		return nil, err
	}
	l := w.lane(w.inputs)
	for i, s := range w.steps {
		in := l.all(s.node, 0, w.inputs)
		_, outs, err := evaluate(ctx, e, s, in, in)
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", s.node.Name, err)
		}
		l.put(s.node, outs)
		l.release(w.done(i))
	}
	out := map[string][][]float64{}
	for _, v := range g.Outputs {
		for _, t := range l.values[v] {
			out[v.Name] = append(out[v.Name], t.Floats())
		}
	}
	return out, nil
}
