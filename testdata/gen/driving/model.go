package driving

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// Size of a model: as large as the published models, or with the same structure but small enough for tests.
type Size string

// Sizes.
const (
	Full  Size = "full"  // as large as openpilot's
	Small Size = "small" // at most 60 million multiply-adds
	Tiny  Size = "tiny"  // each kind of layer about once, for loops of hundreds of runs on the reference evaluator
)

// Model is an encoded model.
type Model struct {
	Name   string
	ONNX   []byte
	MACs   int64 // multiply-adds of a run
	Inputs []Input
}

// Models makes the models of a size that are measured: vision, policy, dmonitoring and supercombo.
func Models(size Size) []*Model {
	return []*Model{Vision(size), Policy(size), DMonitoring(size), Supercombo(size)}
}

// Names are those that Make knows.
func Names() []string {
	return append([]string{"vision", "policy", "dmonitoring", "supercombo"}, ContractNames()...)
}

// Make returns the model with a name, one of Names, in the element type that its generation has: fp16, and fp32 for dmonitoring.
func Make(name string, size Size) (*Model, error) { return MakeIn(name, size, ir.Float16) }

// Made is what Make returns, made once in a process: for tests, which share it and leave it as it is.
func Made(name string, size Size) (*Model, error) {
	f, _ := made.LoadOrStore(name+" "+string(size), sync.OnceValues(func() (*Model, error) { return Make(name, size) }))
	return f.(func() (*Model, error))()
}

var made sync.Map // of functions, by name and size

// MakeIn is Make with weights and activations, and what is not bytes of inputs and outputs, in fp16 or fp32. dmonitoring is in
// fp32 always.
func MakeIn(name string, size Size, d ir.DType) (*Model, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("there is no model %q; the models are %s", name, strings.Join(Names(), ", "))
	}
	if size != Full && size != Small && size != Tiny {
		return nil, fmt.Errorf("there is no size %q; the sizes are full, small and tiny", size)
	}
	if d != ir.Float16 && d != ir.Float32 {
		return nil, fmt.Errorf("%s: models are made in fp16 or fp32, not in %s", name, d)
	}
	switch name {
	case "vision":
		return visionOf(size, d), nil
	case "policy":
		return policyOf(size, d), nil
	case "dmonitoring":
		return DMonitoring(size), nil
	case "supercombo":
		return supercomboOf(size, d), nil
	case "dmonitoring_luma":
		return monitoringLuma(size, d), nil
	}
	return contracts[name].build(name, size, d), nil
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
	levels             // camera planes, as numbers from 0 to 255
	luma               // a flat picture, 3 wide by 2 high, as bytes
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
	if in.kind == frame || in.kind == luma {
		t.Data = r.frames(in.planes())
		return t
	}
	return tensor(in.Type.DType, r.draw(in), in.Type.Shape...)
}

// planes are an input's number of planes, and their height and width.
func (in Input) planes() (count, h, w int) {
	shape := in.Type.Shape
	if in.kind == luma {
		h = int(math.Round(math.Sqrt(float64(shape[1]) * 2 / 3)))
		return 1, h, shape[1] / h
	}
	h, w = shape[len(shape)-2], shape[len(shape)-1]
	return in.Type.Numel() / h / w, h, w
}

// draw is an input's elements as numbers.
func (r random) draw(in Input) []float32 {
	n, width := in.Type.Numel(), in.Type.Shape[in.Type.Rank()-1]
	out := make([]float32, n)
	switch in.kind {
	case frame, luma, levels, pixels:
		for i, b := range r.frames(in.planes()) {
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

func (n *net) inputs(list []Input) []value {
	var out []value
	for _, in := range list {
		out = append(out, n.input(in))
	}
	return out
}

// model encodes what was built, with openpilot's metadata.
func (n *net) model(name string, slices []onnx.Slice, inputs ...Input) *Model {
	if slices != nil {
		n.b.Metadata("output_slices", onnx.EncodeOutputSlices(slices))
		n.b.Metadata("model_checkpoint", "generated, random weights")
	}
	return &Model{Name: name, ONNX: n.finish(), MACs: n.macs, Inputs: inputs}
}
