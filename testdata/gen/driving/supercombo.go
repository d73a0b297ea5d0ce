package driving

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// Supercombo is vision and policy in one file, with state: inputs state_* are fed from the outputs next_state_* of the run
// before. The features' history shifts by one step; a GRU, in fp32 as autocast leaves it, keeps a memory.
func Supercombo(size Size) *Model {
	return supercomboOf(size, ir.Float16)
}

func supercomboOf(size Size, d ir.DType) *Model {
	v, p := visionSizes[size], policySizes[size]
	n := newNet("main_graph", 17, d, v.samples, 0x5eed0004)
	memory := p.width
	inputs := append(frameInputs(v),
		Input{"desire_pulse", ir.T(n.d, 1, steps, desires), pulse},
		Input{"traffic_convention", ir.T(n.d, 1, 2), choice},
		Input{"action_t", ir.T(n.d, 1, 2), normal},
		Input{"state_features", ir.T(n.d, 1, steps-1, v.features), normal},
		Input{"state_memory", ir.T(n.d, 1, memory), normal})
	hidden := n.vision(v, n.inputs(frameInputs(v)))
	desire, convention, action := n.input(inputs[2]), n.input(inputs[3]), n.input(inputs[4])
	history, state := n.input(inputs[5]), n.input(inputs[6])
	vision := n.heads(hidden, visionHeads, v.hidden)

	all := n.pushed("/history", history, hidden)
	next := n.tail("/history", all)
	x := n.concat("", 2, all, desire, n.expand("/convention", convention, steps), n.expand("/action", action, steps))
	x = n.gru("/gru", n.transformer("", x, p), state)
	nextMemory := n.copied("next_state_memory", x)
	plan := n.policyOut("/policy", x, p)
	out := n.rename(n.concat("", 1, append(vision, hidden, plan)...), "outputs")
	n.output(out)
	n.output(next)
	n.output(nextMemory)

	heads := append(append([]head{}, visionHeads...), head{"hidden_state", v.features})
	slices := layout(append(heads, policyHeads...))
	return n.model("supercombo", append(slices, onnx.Slice{Name: "pad", Start: -2, End: out.size()}), inputs...)
}

// pushed appends a vector [1, d] to a history [1, t, d].
func (n *net) pushed(path string, history, x value) value {
	t, d := history.shape[1], history.shape[2]
	row := n.op(path, "Unsqueeze", []string{x.name, n.ints(path, 1)})
	y := x.x.each(func(i int, x []float32) []float32 { return slices.Concat(history.x[i], x) })
	return n.made(n.op(path, "Concat", []string{history.name, row}, onnx.A("axis", 1)), y, 1, t+1, d)
}

// tail drops the oldest step of a history: the state of the next run.
func (n *net) tail(path string, all value) value {
	t, d := all.shape[1], all.shape[2]
	from, to, axis := n.ints(path, 1), n.ints(path, math.MaxInt64), n.ints(path, 1)
	name := n.op(path, "Slice", []string{all.name, from, to, axis})
	y := all.x.each(func(_ int, x []float32) []float32 { return x[d:] })
	return n.rename(n.made(name, y, 1, t-1, d), "next_state_features")
}

// gru is one step of a GRU in fp32: x and state are [1, d] of the net's type, and so is the new state.
func (n *net) gru(path string, x, state value) value {
	d, k := state.shape[1], x.shape[1]
	n.macs += int64(3 * d * (d + k))
	w, r := n.r.normals(3*d*k, float32(1/math.Sqrt(float64(k)))), n.r.normals(3*d*d, float32(1/math.Sqrt(float64(d))))
	bias := n.r.normals(6*d, .05)
	f32 := func(v value) string {
		y := n.op(path, "Cast", []string{v.name}, onnx.A("to", ir.Float32))
		return n.op(path, "Unsqueeze", []string{y, n.ints(path, 0)}) // one step, or one direction
	}
	in := []string{f32(x),
		n.b.Initializer("gru.W", tensor(ir.Float32, w, 1, 3*d, k)),
		n.b.Initializer("gru.R", tensor(ir.Float32, r, 1, 3*d, d)),
		n.b.Initializer("gru.B", tensor(ir.Float32, bias, 1, 6*d)),
		"", f32(state)}
	out := n.ops(path, "GRU", 2, in, onnx.A("hidden_size", d), onnx.A("linear_before_reset", 1))
	y := n.op(path, "Squeeze", []string{out[1], n.ints(path, 0)})
	y = n.op(path, "Cast", []string{y}, onnx.A("to", n.d))
	return n.made(y, gruStep(x.x.rows(w, k, 3*d), state.x.rows(r, d, 3*d), state.x, bias, d), 1, d)
}

// gruStep is the new state, gates in ONNX's order: update, reset, hidden.
func gruStep(wx, rh, state samples, bias []float32, d int) samples {
	return state.elements(func(i, j int, old float32) float32 {
		gate := func(g int) (x, h float32) {
			return wx[i][g*d+j] + bias[g*d+j], rh[i][g*d+j] + bias[(3+g)*d+j]
		}
		x, h := gate(0)
		z := sigmoid(x + h)
		x, h = gate(1)
		reset := sigmoid(x + h)
		x, h = gate(2)
		candidate := float32(2*sigmoid(2*(x+float32(reset*h)))) - 1 // tanh
		return float32((1-z)*candidate) + float32(z*old)
	})
}
