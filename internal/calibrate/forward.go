package calibrate

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
)

// Forward computes the outputs of a graph of f32 regions on some inputs, as a calibration computes its exact values: by
// output name, [input][element]. It calls see, unless that is nil, with what every region but views yields for each input.
func Forward(ctx context.Context, g *ir.Graph, inputs []map[string]*ir.Array, e Evaluator, see func(v *ir.Value, on []*ir.Tensor)) (map[string][][]float64, error) {
	w, err := newWalk(g, inputs)
	if err != nil {
		return nil, err
	}
	l, pool := w.lane(w.inputs), &BufferPool{}
	for i, s := range w.steps {
		in := l.all(s.node, 0, w.inputs)
		outs, err := evaluate(ctx, e, s, in, in, pool)
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", s.node.Name, err)
		}
		l.put(s.node, outs)
		if see != nil && !s.node.IsFamily(ir.FamilyView) {
			for _, v := range s.node.Outputs {
				see(v, l.values[v])
			}
		}
		l.release(w, i, 0, pool)
		pool.next()
	}
	return l.outputs(g, w.inputs), nil
}

// outputs are those of a graph on the first inputs: by name, [input][element].
func (l *lane) outputs(g *ir.Graph, inputs int) map[string][][]float64 {
	out := map[string][][]float64{}
	for _, v := range g.Outputs {
		for at := range inputs {
			t := v.Const
			if t == nil {
				t = l.values[v][at]
			}
			out[v.Name] = append(out[v.Name], t.Floats())
		}
	}
	return out
}
