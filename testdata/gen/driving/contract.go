package driving

import (
	"hash/fnv"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// contract is what the models of one generation take and give. Sources: metadata of openpilot's releases, and its modeld.
type contract struct {
	images    []string // names of the road and the wide camera's; none: features come from outside
	levels    bool     // images are numbers from 0 to 255, not bytes
	rows      int      // of history; 0: no policy
	past      bool     // histories of features end with the run before; the graph appends the current features
	desire    string
	params    string // traffic_convention aside, the vector of two numbers of the control; "": none
	curvature bool   // takes a history of its own desired curvatures
	history   bool   // the graph itself shifts the queues of images, desires and features, one step a run
	outputs   []head // in their order; hidden_state has the size of the features
	pad       int    // zeros at the end
}

// Outputs of older and newer vision models: the older have two hypotheses of leads.
var (
	hidden      = head{"hidden_state", 0}
	visionOlder = append(slices.Clone(visionHeads[:8]), head{"lead", 102}, head{"lead_prob", 3}, hidden)
	visionNewer = append(slices.Clone(visionHeads), hidden)
	combined    = append(slices.Clone(visionNewer), head{"plan", 990}, head{"desire_state", 8}, head{"action", 2})
	combined097 = []head{{"plan", 4955}, {"lane_lines", 528}, {"lane_lines_prob", 8}, {"road_edges", 264}, {"lead", 102}, {"lead_prob", 3},
		{"desire_state", 8}, {"meta", 55}, {"desire_pred", 32}, {"pose", 12}, {"wide_from_device_euler", 6}, {"road_transform", 12},
		{"desired_curvature", 2}, hidden}
)

var (
	imagesOlder = []string{"input_imgs", "big_input_imgs"}
	imagesNewer = []string{"img", "big_img"}
)

// What a policy computes; all else but the hidden state is of the vision model.
var policyOutputs = []string{"plan", "desire_state", "desired_curvature", "action"}

// The contracts by name.
var contracts = map[string]contract{
	"supercombo096": {images: imagesOlder, levels: true, rows: 100, past: true, desire: "desire", params: "lateral_control_params",
		curvature: true, outputs: combined097, pad: 1},
	"supercombo097": {images: imagesOlder, levels: true, rows: 25, past: true, desire: "desire", params: "lateral_control_params",
		curvature: true, outputs: combined097, pad: 1},
	"vision010": {images: imagesOlder, outputs: visionOlder, pad: 2},
	"policy010": {rows: 25, desire: "desire", params: "lateral_control_params", curvature: true,
		outputs: []head{{"plan", 4955}, {"desire_state", 8}, {"desired_curvature", 2}}, pad: 3},
	"driving_supercombo": {images: imagesNewer, rows: 25, past: true, desire: "desire_pulse", params: "action_t", outputs: combined, pad: 2},
	"supercombo_history": {images: imagesNewer, rows: 25, past: true, desire: "desire", params: "action_t", history: true, outputs: combined,
		pad: 2},
}

// ContractNames are the models of other generations of openpilot, in fp16 unless made otherwise.
//
//	vision010, policy010  0.10.0: plans of 5 hypotheses, leads of 2; the policy is fed its desired_curvature
//	supercombo097         0.9.7: both in one file; images are numbers from 0 to 255
//	supercombo096         before: histories of every step, 100 rows
//	driving_supercombo    2026: one file again, with action
//	supercombo_history    the same with its queues in the graph: state_* are fed from next_state_* of the run before
//	dmonitoring_luma      driver monitoring of luma and calibration
func ContractNames() []string {
	return append(slices.Sorted(maps.Keys(contracts)), "dmonitoring_luma")
}

// seedOf makes the random numbers of a model those of its name.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// build makes a model of the contract.
func (c contract) build(name string, size Size, d ir.DType) *Model {
	v, p := visionSizes[size], policySizes[size]
	n := newNet("main_graph", 17, d, v.samples, seedOf(name))
	inputs := c.inputs(v, d)
	in := map[string]value{}
	for i, x := range n.inputs(inputs) {
		in[inputs[i].Name] = x
	}
	var next []value
	if c.history {
		next = n.queues(in)
	}
	parts := map[string]value{}
	if c.images != nil {
		parts[hidden.name] = n.vision(v, []value{in[c.images[0]], in[c.images[1]]})
		var own []head
		for _, h := range c.outputs {
			if h != hidden && !slices.Contains(policyOutputs, h.name) {
				own = append(own, h)
			}
		}
		for i, x := range n.heads(parts[hidden.name], own, v.hidden) {
			parts[own[i].name] = x
		}
	}
	last := parts[hidden.name]
	if c.rows > 0 {
		last = n.transformer("", c.steps(n, in, parts[hidden.name]), p)
		for _, h := range c.outputs {
			if slices.Contains(policyOutputs, h.name) {
				parts[h.name] = n.policyHead("/policy", last, h, p)
			}
		}
	}
	var heads []head
	var all []value
	for _, h := range c.outputs {
		all = append(all, parts[h.name])
		heads = append(heads, head{h.name, parts[h.name].size()})
	}
	out := n.rename(n.concat("", 1, append(all, n.zeros("", last, c.pad))...), "outputs")
	n.output(out)
	if c.history {
		next = append(next, n.copied("next_state_prev_feat", parts[hidden.name]))
	}
	for _, x := range next {
		if len(x.shape) == 4 { // pictures
			n.b.Output(x.name, ir.Uint8, anys(x.shape)...)
			continue
		}
		n.output(x)
	}
	return n.model(name, append(layout(heads), onnx.Slice{Name: "pad", Start: out.size() - c.pad, End: out.size()}), inputs...)
}

// inputs of the contract.
func (c contract) inputs(s visionSize, d ir.DType) []Input {
	if c.history {
		queue := ir.T(ir.Uint8, ring, 6, s.height, s.width)
		return []Input{{"warped", ir.T(ir.Uint8, 2, 6, s.height, s.width), frame}, {c.desire, ir.T(d, desires), pulse},
			{"traffic_convention", ir.T(d, 1, 2), choice}, {c.params, ir.T(d, 1, 2), normal},
			{"state_img_q", queue, frame}, {"state_big_img_q", queue, frame}, {"state_desire_q", ir.T(d, skip*steps, 1, desires), pulse},
			{"state_feat_q", ir.T(d, skip*(steps-1), 1, s.features), normal}, {"state_prev_feat", ir.T(d, 1, s.features), normal}}
	}
	var in []Input
	for _, name := range c.images {
		if c.levels {
			in = append(in, Input{name, ir.T(d, 1, 12, s.height, s.width), levels})
			continue
		}
		in = append(in, Input{name, ir.T(ir.Uint8, 1, 12, s.height, s.width), frame})
	}
	if c.rows == 0 {
		return in
	}
	in = append(in, Input{c.desire, ir.T(d, 1, c.rows, desires), pulse}, Input{"traffic_convention", ir.T(d, 1, 2), choice},
		Input{c.params, ir.T(d, 1, 2), normal})
	if c.curvature {
		in = append(in, Input{"prev_desired_curv", ir.T(d, 1, c.rows, 1), normal})
	}
	features := c.rows
	if c.past {
		features--
	}
	return append(in, Input{"features_buffer", ir.T(d, 1, features, s.features), normal})
}

// steps lays what the policy sees of each time side by side: [1, rows, …].
func (c contract) steps(n *net, in map[string]value, hidden value) value {
	features := in["features_buffer"]
	if c.past {
		features = n.pushed("/history", features, hidden)
	}
	list := []value{features, in[c.desire], n.expand("/convention", in["traffic_convention"], c.rows),
		n.expand("/params", in[c.params], c.rows)}
	if c.curvature {
		list = append(list, in["prev_desired_curv"])
	}
	return n.concat("", 2, list...)
}

// Histories of models that run at 5 Hz of 20: of every picture, and of which steps the policy sees one.
const (
	ring = 5
	skip = 4
)

// queues shifts the queues of a graph that keeps its histories, replaces inputs by what the networks see of them, and returns the
// queues of the next run.
func (n *net) queues(in map[string]value) []value {
	var next []value
	shift := func(queue string, x value) value {
		q := in["state_"+queue]
		q = n.joined("/"+queue, n.rows("/"+queue, q, 1, q.shape[0], 1), x)
		q = n.rename(q, "next_state_"+queue)
		next = append(next, q)
		return q
	}
	for i, name := range imagesNewer {
		path := "/" + name + "_q"
		q := shift(name+"_q", n.rows(path, in["warped"], i, i+1, 1))
		both := n.rows(path, q, 0, ring, ring-1)
		in[name] = n.reshaped(path, both, 1, 12, q.shape[2], q.shape[3])
	}
	desire := shift("desire_q", n.reshaped("/desire_q", in["desire"], 1, 1, desires))
	desire = n.reshaped("/desire_q", desire, 1, steps, skip, desires)
	in["desire"] = n.largest("/desire_q", desire)
	features := shift("feat_q", n.reshaped("/feat_q", in["state_prev_feat"], 1, 1, in["state_prev_feat"].shape[1]))
	features = n.rows("/feat_q", features, 0, features.shape[0], skip)
	in["features_buffer"] = n.reshaped("/feat_q", features, 1, features.shape[0], features.shape[2])
	return next
}

// rows are every step'th of the rows from up to to of the first dimension.
func (n *net) rows(path string, x value, from, to, step int) value {
	row := x.size() / x.shape[0]
	y := x.x.each(func(_ int, x []float32) (out []float32) {
		for r := from; r < to; r += step {
			out = append(out, x[r*row:(r+1)*row]...)
		}
		return out
	})
	count := len(y[0]) / row
	name := n.op(path, "Slice", []string{x.name, n.ints(path, from), n.ints(path, to), n.ints(path, 0), n.ints(path, step)})
	return n.made(name, y, append([]int{count}, x.shape[1:]...)...)
}

// joined puts the rows of y after those of x.
func (n *net) joined(path string, x, y value) value {
	both := x.x.each(func(i int, x []float32) []float32 { return slices.Concat(x, y.x[i]) })
	name := n.op(path, "Concat", []string{x.name, y.name}, onnx.A("axis", 0))
	return n.made(name, both, append([]int{x.shape[0] + y.shape[0]}, x.shape[1:]...)...)
}

func (n *net) reshaped(path string, x value, shape ...int) value {
	return n.made(n.op(path, "Reshape", []string{x.name, n.ints(path, shape...)}, onnx.A("allowzero", 0)), x.x, shape...)
}

// largest is the maximum over the third of four dimensions.
func (n *net) largest(path string, x value) value {
	count, d := x.shape[2], x.shape[3]
	y := x.x.each(func(_ int, x []float32) (out []float32) {
		for group := range slices.Chunk(x, count*d) {
			row := slices.Clone(group[:d])
			for i, v := range group {
				row[i%d] = max(row[i%d], v)
			}
			out = append(out, row...)
		}
		return out
	})
	name := n.op(path, "ReduceMax", []string{x.name}, onnx.A("axes", []int{2}), onnx.A("keepdims", 0))
	return n.made(name, y, 1, x.shape[1], d)
}

// copied is a graph output of x's elements.
func (n *net) copied(output string, x value) value {
	return n.rename(n.made(n.op("", "Identity", []string{x.name}), x.x, x.shape...), output)
}
