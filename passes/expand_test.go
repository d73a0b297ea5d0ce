package passes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

func TestRecurrentLayersUnroll(t *testing.T) {
	const steps, batch, in, hidden = 4, 3, 5, 2
	lengths := func(b *graphBuilder) *ir.Value {
		return b.g.Constant("lengths", ir.FromInts(ir.T(ir.Int32, batch), []int64{4, 2, 0}))
	}
	cases := []struct {
		name    string
		op      string
		attrs   ir.Attrs
		lengths bool // sequences of different lengths
		bare    bool // no bias, no initial state
	}{
		{"GRU", "GRU", nil, false, false},
		{"GRU without bias and state", "GRU", nil, false, true},
		{"GRU with the linear layer before the reset", "GRU", ir.Attrs{"linear_before_reset": true}, false, false},
		{"GRU in reverse with lengths", "GRU", ir.Attrs{"direction": "reverse"}, true, false},
		{"GRU both ways with lengths", "GRU", ir.Attrs{"direction": "bidirectional"}, true, false},
		{"LSTM", "LSTM", nil, false, false},
		{"LSTM both ways with lengths", "LSTM", ir.Attrs{"direction": "bidirectional"}, true, false},
		{"LSTM with coupled gates and a clip", "LSTM", ir.Attrs{"input_forget": true, "clip": 0.3}, false, false},
		{"RNN", "RNN", nil, false, false},
		{"RNN in reverse, bare", "RNN", ir.Attrs{"direction": "reverse"}, false, true},
		{"GRU with other activations", "GRU", ir.Attrs{"activations": []string{"HardSigmoid", "Softsign"}, "alpha": []float64{0.3}, "beta": []float64{0.4}}, false, false},
		{"LSTM with other activations", "LSTM", ir.Attrs{"activations": []string{"Sigmoid", "Elu", "ScaledTanh"}, "alpha": []float64{0, 0.7, 1.5}, "beta": []float64{0, 0, 0.5}}, false, false},
		{"RNN with leaky ReLU", "RNN", ir.Attrs{"activations": []string{"LeakyRelu"}}, false, false},
		{"RNN with thresholded ReLU", "RNN", ir.Attrs{"activations": []string{"ThresholdedRelu"}, "alpha": []float64{0.1}}, false, false},
		{"RNN with softplus", "RNN", ir.Attrs{"activations": []string{"Softplus"}}, false, false},
		{"RNN with an affine map", "RNN", ir.Attrs{"activations": []string{"Affine"}, "alpha": []float64{0.5}, "beta": []float64{0.1}}, false, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			b := newGraphBuilder(t, ir.Float32)
			gates := map[string]int{"GRU": 3, "LSTM": 4, "RNN": 1}[tc.op]
			dirs := 1
			if tc.attrs.String("direction", "") == "bidirectional" {
				dirs = 2
			}
			inputs := []*ir.Value{b.input("x", ir.Float32, steps, batch, in),
				b.weight(0, .5, dirs, gates*hidden, in), b.weight(0, .5, dirs, gates*hidden, hidden)}
			if !tc.bare {
				inputs = append(inputs, b.weight(0, .5, dirs, 2*gates*hidden), nil, b.input("h0", ir.Float32, dirs, batch, hidden))
				if tc.lengths {
					inputs[4] = lengths(b)
				}
				if tc.op == "LSTM" {
					inputs = append(inputs, b.input("c0", ir.Float32, dirs, batch, hidden), b.weight(0, .5, dirs, 3*hidden))
				}
			}
			n, err := b.g.Add(tc.op, "layer", tc.attrs, inputs...)
			require.NoError(t, err)
			g := b.output(n.Outputs...)
			before := g.Clone()
			require.NoError(t, Run(&Context{}, g, []string{"expand", "fold", "simplify", "cse", "dce"}, nil))
			require.Zero(t, opCounts(g)[tc.op])
			requireSameOutputs(t, before, g, 1e-7)
			products := opCounts(g)["MatMul"]
			recurrent := map[string]int{"GRU": 2, "LSTM": 1, "RNN": 1}[tc.op] * steps * dirs
			require.LessOrEqual(t, products, dirs+recurrent, "the inputs are multiplied once for all steps")
		})
	}
}

func TestLongSequencesStayLayers(t *testing.T) {
	for steps, stays := range map[int]bool{maxSteps: false, maxSteps + 1: true} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			b := newGraphBuilder(t, ir.Float32)
			n, err := b.g.Add("RNN", "layer", nil, b.input("x", ir.Float32, steps, 1, 1), b.weight(0, 1, 1, 1, 1), b.weight(0, 1, 1, 1, 1))
			require.NoError(t, err)
			g := b.output(n.Outputs[1])
			require.NoError(t, Run(&Context{}, g, []string{"expand"}, nil))
			require.Equal(t, stays, opCounts(g)["RNN"] == 1)
		})
	}
}

// TestLongScansGoByBlocks: a kernel takes as many steps for an element of a scan as the row has elements.
func TestLongScansGoByBlocks(t *testing.T) {
	for _, op := range []string{"CumSum", "CumProd"} {
		for k, size := range []int{longestScan, longestScan + 1, 512, 40001} {
			for variant := range 4 {
				attrs := ir.Attrs{"axis": 1, "exclusive": variant&1 != 0, "reverse": variant&2 != 0}
				d := []ir.DType{ir.Float32, ir.Float16, ir.Int32, ir.Float64}[(k+variant)%4]
				t.Run(fmt.Sprint(op, size, attrs, d), func(t *testing.T) {
					b := newGraphBuilder(t, ir.Float32)
					n, err := b.g.Add(op, "scan", attrs, b.input("x", d, 2, size, 3))
					require.NoError(t, err)
					g := b.output(n.Outputs...)
					before := g.Clone()
					require.NoError(t, Run(&Context{}, g, []string{"expand", "simplify", "dce"}, nil))
					for _, m := range g.Nodes {
						if m.Op.Name == op {
							require.LessOrEqual(t, m.Inputs[0].Type.Shape[m.Attrs.Int("axis", 0)], longestScan)
						}
					}
					requireSameOutputs(t, before, g, 1e-9)
				})
			}
		}
	}
}
