package driving

import (
	"fmt"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// Size of a model: as large as the published models, or with the same structure but small enough for tests.
type Size string

// Sizes.
const (
	Full  Size = "full"  // as large as openpilot's
	Small Size = "small" // at most 60 million multiply-adds
)

// Model is an encoded model.
type Model struct {
	Name   string // vision, policy, dmonitoring, supercombo
	ONNX   []byte
	MACs   int64 // multiply-adds of a run
	Inputs []Input
}

// Models makes all models of a size.
func Models(size Size) []*Model {
	return []*Model{Vision(size), Policy(size), DMonitoring(size), Supercombo(size)}
}

// Make returns the model with a name: vision, policy, dmonitoring or supercombo.
func Make(name string, size Size) (*Model, error) {
	makers := map[string]func(Size) *Model{"vision": Vision, "policy": Policy, "dmonitoring": DMonitoring, "supercombo": Supercombo}
	make := makers[name]
	if make == nil {
		return nil, fmt.Errorf("there is no model %q; the models are vision, policy, dmonitoring and supercombo", name)
	}
	if size != Full && size != Small {
		return nil, fmt.Errorf("there is no size %q; the sizes are full and small", size)
	}
	return make(size), nil
}

// Input is an input of a model and its distribution.
type Input struct {
	Name string
	Type ir.Type
	kind kind
}

// kind is a distribution.
type kind int

const (
	frame  kind = iota // camera planes, as bytes
	pixels             // camera planes, as numbers from 0 to 1
	normal             // features and state
	pulse              // mostly zeros, now and then a one-hot row
	choice             // one-hot
)

// Draw returns a tensor for the input; the same seed gives the same tensor.
func (in Input) Draw(seed uint64) *ir.Tensor {
	r := newRandom(seed)
	for _, c := range in.Name { // inputs of one seed differ
		r = newRandom(r.pcg.Uint64() ^ uint64(c))
	}
	t := &ir.Tensor{Type: in.Type}
	if in.kind == frame {
		t.Data = r.frames(in.Type.Shape[1], in.Type.Shape[2], in.Type.Shape[3])
		return t
	}
	return tensor(in.Type.DType, r.draw(in), in.Type.Shape...)
}

// draw is an input's elements as numbers.
func (r random) draw(in Input) []float32 {
	n, width := in.Type.Numel(), in.Type.Shape[in.Type.Rank()-1]
	out := make([]float32, n)
	switch in.kind {
	case frame, pixels:
		for i, b := range r.frames(in.Type.Shape[1], in.Type.Shape[2], in.Type.Shape[3]) {
			out[i] = float32(b)
			if in.kind == pixels {
				out[i] /= 255
			}
		}
	case normal:
		return r.normals(n, 1)
	case pulse:
		for row := range n / width {
			if r.uniform() < .15 {
				out[row*width+int(r.uniform()*float32(width))] = 1
			}
		}
	case choice:
		out[int(r.uniform()*float32(n))] = 1
	}
	return out
}

// input declares an input and draws its samples.
func (n *net) input(in Input) value {
	x := make(samples, n.samples)
	for i := range x {
		x[i] = n.r.draw(in)
	}
	return n.made(n.b.Input(in.Name, in.Type.DType, anys(in.Type.Shape)...), x, in.Type.Shape...)
}

// model encodes what was built, with openpilot's metadata.
func (n *net) model(name string, slices []onnx.Slice, inputs ...Input) *Model {
	if slices != nil {
		n.b.Metadata("output_slices", onnx.EncodeOutputSlices(slices))
		n.b.Metadata("model_checkpoint", "generated, random weights")
	}
	return &Model{Name: name, ONNX: n.finish(), MACs: n.macs, Inputs: inputs}
}
