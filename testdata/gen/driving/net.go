package driving

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// net is a model under construction.
type net struct {
	b       *onnx.Builder
	r       random
	d       ir.DType // of weights and activations
	samples int
	macs    int64

	shared     map[string]string   // constant vectors by content: the initializer that the first use made
	identities []*onnxpb.NodeProto // nodes that give such an initializer a second name; they come first in the file
	anonymous  int                 // number of the last initializer named as PyTorch names folded ones
}

func newNet(name string, opset int64, d ir.DType, samples int, seed uint64) *net {
	n := &net{b: onnx.NewBuilder(name, opset), r: newRandom(seed), d: d, samples: samples, shared: map[string]string{}}
	n.b.Producer("pytorch", "2.9.0")
	n.anonymous = 2000
	return n
}

// value is a tensor of the graph with its samples.
type value struct {
	name  string
	shape []int
	x     samples
}

// size is the number of elements.
func (v value) size() int { return ir.Type{Shape: v.shape}.Numel() }

// made is the value of a name, with its samples and their shape.
func (n *net) made(name string, x samples, shape ...int) value {
	v := value{name, shape, x}
	if len(x[0]) != v.size() {
		panic(fmt.Sprintf("%s: %d elements in a sample of shape %v", name, len(x[0]), shape))
	}
	return v
}

// op adds a node of one output under a scope's path and returns the output's name, both as PyTorch names them.
func (n *net) op(path, op string, inputs []string, attrs ...onnx.Attr) string {
	return n.ops(path, op, 1, inputs, attrs...)[0]
}

func (n *net) ops(path, op string, outputs int, inputs []string, attrs ...onnx.Attr) []string {
	name := n.b.Name(path + "/" + op)
	var out []string
	for i := range outputs {
		out = append(out, fmt.Sprintf("%s_output_%d", name, i))
	}
	n.b.Node(op, inputs, out, attrs...).Name = proto.String(name)
	return out
}

// tensor encodes numbers as elements of type d.
func tensor(d ir.DType, data []float32, shape ...int) *ir.Tensor {
	xs := make([]float64, len(data))
	for i, v := range data {
		xs[i] = float64(v)
	}
	return ir.FromFloats(ir.T(d, shape...), xs)
}

// scalar is a Constant node of the net's element type.
func (n *net) scalar(path string, v float32) string {
	return n.op(path, "Constant", nil, onnx.A("value", tensor(n.d, []float32{v})))
}

// ints is a Constant node that holds a vector of int64 elements.
func (n *net) ints(path string, v ...int) string {
	return n.op(path, "Constant", nil, onnx.A("value", ir.Vector(v...)))
}

// weight adds an initializer.
func (n *net) weight(name string, data []float32, shape ...int) string {
	return n.b.Initializer(name, tensor(n.d, data, shape...))
}

// folded adds an initializer that an exporter computed and named by a number.
func (n *net) folded(op string, data []float32, shape ...int) string {
	n.anonymous++
	return n.weight(fmt.Sprintf("onnx::%s_%d", op, n.anonymous), data, shape...)
}

// filled is a vector of equal numbers. Exporters merge equal parameters: all but the first become an Identity of the first.
func (n *net) filled(name string, v float32, size int) string {
	key := fmt.Sprint(v, size)
	first, ok := n.shared[key]
	if !ok {
		n.shared[key] = n.weight(name, slices.Repeat([]float32{v}, size), size)
		return name
	}
	n.identities = append(n.identities, &onnxpb.NodeProto{
		OpType: proto.String("Identity"), Name: proto.String(fmt.Sprintf("Identity_%d", len(n.identities))),
		Input: []string{first}, Output: []string{name}})
	return name
}

// rename gives the last node's output the name of a graph output.
func (n *net) rename(v value, output string) value {
	nodes := n.b.Graph().Node
	last := nodes[len(nodes)-1]
	if len(last.Output) != 1 || last.Output[0] != v.name {
		panic(v.name + " is not the last value")
	}
	last.Output[0] = output
	v.name = output
	return v
}

// finish encodes the model.
func (n *net) finish() []byte {
	g := n.b.Graph()
	g.Node = append(n.identities, g.Node...)
	m, err := n.b.Model()
	if err == nil {
		var data []byte
		if data, err = m.Marshal(); err == nil {
			return data
		}
	}
	panic(err) // a mistake in this package
}

// anys are dimensions as the Builder takes them.
func anys(shape []int) []any {
	dims := make([]any, len(shape))
	for i, d := range shape {
		dims[i] = d
	}
	return dims
}

// output declares a value, which has its output's name, to be a graph output.
func (n *net) output(v value) {
	n.b.Output(v.name, n.d, anys(v.shape)...)
}
