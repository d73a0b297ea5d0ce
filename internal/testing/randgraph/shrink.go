package randgraph

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Shrink makes a failing case smaller as long as it fails: it drops outputs, makes inner values outputs and inputs, takes nodes out,
// drops attributes, shortens dimensions and simplifies numbers.
func Shrink(c *Case, fails func(*Case) bool) *Case {
	s := &shrinker{c, fails, 500}
	for again := true; again; {
		again = s.outputs() || s.promote() || s.cut() || s.bypass() || s.attributes() || s.dimensions()
	}
	s.numbers()
	return s.c
}

type shrinker struct {
	c     *Case
	fails func(*Case) bool
	left  int // tries
}

// try keeps a changed case if it is a model and fails.
func (s *shrinker) try(change func(g *onnxpb.GraphProto, data map[string]*ir.Tensor) bool) bool {
	p := proto.CloneOf(s.c.Model.Proto)
	data := map[string]*ir.Tensor{}
	for name, t := range s.c.Inputs {
		data[name] = t
	}
	if !change(p.Graph, data) {
		return false
	}
	c, err := tidied(p, data)
	if err != nil {
		return false
	}
	if s.left--; s.left < 0 || !s.fails(c) {
		return false
	}
	s.c = c
	return true
}

// tidied drops what no output needs, and declares outputs anew.
func tidied(p *onnxpb.ModelProto, data map[string]*ir.Tensor) (*Case, error) {
	need := map[string]bool{}
	for _, o := range p.Graph.Output {
		need[o.GetName()] = true
	}
	var visit func(n *onnxpb.NodeProto)
	visit = func(n *onnxpb.NodeProto) {
		for _, in := range n.Input {
			need[in] = true
		}
		for _, a := range n.Attribute {
			for _, inner := range a.GetG().GetNode() {
				visit(inner)
			}
		}
	}
	var nodes []*onnxpb.NodeProto
	for _, n := range slices.Backward(p.Graph.Node) {
		if slices.ContainsFunc(n.Output, func(o string) bool { return need[o] }) {
			nodes = append(nodes, n)
			visit(n)
		}
	}
	slices.Reverse(nodes)
	p.Graph.Node = nodes
	p.Graph.Input = slices.DeleteFunc(p.Graph.Input, func(v *onnxpb.ValueInfoProto) bool { return !need[v.GetName()] })
	p.Graph.Initializer = slices.DeleteFunc(p.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return !need[t.GetName()] })
	for name := range data {
		if !need[name] {
			delete(data, name)
		}
	}
	for _, o := range p.Graph.Output {
		o.Type = nil
	}
	m, err := modelOf(p)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: "shrunk", Model: m, Inputs: data}
	for _, n := range nodes {
		op := n.GetOpType()
		if n.GetDomain() != "" {
			op = n.GetDomain() + "." + op
		}
		c.Ops = append(c.Ops, op)
	}
	g, err := c.importIt()
	if err != nil {
		return c, nil // which may be the fault
	}
	b := onnx.NewBuilder("", onnx.MaxOpset)
	for _, v := range g.Outputs {
		b.Output(v.Name, v.Type.DType, dims(v.Type.Shape)...)
	}
	m.Proto.Graph.Output = b.Graph().Output
	return c, nil
}

func (s *shrinker) outputs() (any bool) {
	for i := len(s.c.Model.Proto.Graph.Output) - 1; i >= 0; i-- {
		any = s.try(func(g *onnxpb.GraphProto, _ map[string]*ir.Tensor) bool {
			if len(g.Output) < 2 {
				return false
			}
			g.Output = slices.Delete(g.Output, i, i+1)
			return true
		}) || any
	}
	return any
}

// promote makes an inner value the only output.
func (s *shrinker) promote() bool {
	for _, n := range s.c.Model.Proto.Graph.Node {
		for _, o := range n.Output {
			if o != "" && s.try(func(g *onnxpb.GraphProto, _ map[string]*ir.Tensor) bool {
				if len(g.Output) == 1 && g.Output[0].GetName() == o || len(g.Node) == 1 {
					return false
				}
				if slices.Contains(g.Node[len(g.Node)-1].Output, o) {
					return false
				}
				g.Output = []*onnxpb.ValueInfoProto{{Name: proto.String(o)}}
				return true
			}) {
				return true
			}
		}
	}
	return false
}

// values are those of all nodes' outputs.
func (s *shrinker) values() map[string]*ir.Array {
	p := proto.CloneOf(s.c.Model.Proto)
	p.Graph.Output = nil
	for _, n := range p.Graph.Node {
		for _, o := range n.Output {
			if o != "" {
				p.Graph.Output = append(p.Graph.Output, &onnxpb.ValueInfoProto{Name: proto.String(o)})
			}
		}
	}
	m, err := modelOf(p)
	if err != nil {
		return nil
	}
	c := &Case{Model: m, Inputs: s.c.Inputs}
	g, err := c.importIt()
	if err != nil {
		return nil
	}
	out, err := c.evaluate(g)
	if err != nil {
		return nil
	}
	return out
}

// cut makes inputs, or constants, of what nodes compute.
func (s *shrinker) cut() (any bool) {
	values := s.values()
	read := map[string]bool{}
	for _, n := range s.c.Model.Proto.Graph.Node {
		for _, in := range n.Input {
			read[in] = true
		}
	}
	for _, n := range slices.Backward(s.c.Model.Proto.Graph.Node) {
		for _, o := range n.Output {
			a := values[o]
			if a == nil || !read[o] {
				continue
			}
			for _, constant := range []bool{false, true} {
				if s.try(func(g *onnxpb.GraphProto, data map[string]*ir.Tensor) bool {
					if slices.ContainsFunc(g.Output, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == o }) {
						return false
					}
					at := slices.IndexFunc(g.Node, func(m *onnxpb.NodeProto) bool { return slices.Contains(m.Output, o) })
					if at < 0 {
						return false
					}
					m := g.Node[at]
					m.Output[slices.Index(m.Output, o)] = o + "_"
					b := onnx.NewBuilder("", onnx.MaxOpset)
					if constant {
						b.Initializer(o, a.Tensor())
						g.Initializer = append(g.Initializer, b.Graph().Initializer...)
					} else {
						b.Input(o, a.DType, dims(a.Shape)...)
						g.Input = append(g.Input, b.Graph().Input...)
						data[o] = a.Tensor()
					}
					return true
				}) {
					any = true
					break
				}
			}
		}
	}
	return any
}

// bypass lets readers of a node's first output read one of its inputs.
func (s *shrinker) bypass() bool {
	for i := range s.c.Model.Proto.Graph.Node {
		for k := range s.c.Model.Proto.Graph.Node[i].Input {
			if s.try(func(g *onnxpb.GraphProto, _ map[string]*ir.Tensor) bool {
				n := g.Node[i]
				if len(n.Output) == 0 || slices.ContainsFunc(g.Output, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == n.Output[0] }) {
					return false
				}
				found := false
				for _, m := range g.Node {
					for at, in := range m.Input {
						if in == n.Output[0] {
							m.Input[at] = n.Input[k]
							found = true
						}
					}
				}
				return found && n.Input[k] != ""
			}) {
				return true
			}
		}
	}
	return false
}

func (s *shrinker) attributes() (any bool) {
	for i, n := range s.c.Model.Proto.Graph.Node {
		for k := len(n.Attribute) - 1; k >= 0; k-- {
			any = s.try(func(g *onnxpb.GraphProto, _ map[string]*ir.Tensor) bool {
				g.Node[i].Attribute = slices.Delete(g.Node[i].Attribute, k, k+1)
				return true
			}) || any
		}
	}
	for i := range s.c.Model.Proto.Graph.Node {
		for k := len(s.c.Model.Proto.Graph.Node[i].Input) - 1; k > 0; k-- {
			any = s.try(func(g *onnxpb.GraphProto, _ map[string]*ir.Tensor) bool {
				if k >= len(g.Node[i].Input) || g.Node[i].Input[k] == "" {
					return false
				}
				if k == len(g.Node[i].Input)-1 {
					g.Node[i].Input = g.Node[i].Input[:k]
				} else {
					g.Node[i].Input[k] = ""
				}
				return true
			}) || any
		}
	}
	return any
}

// dimensions shortens all dimensions of one size, or one of one tensor.
func (s *shrinker) dimensions() bool {
	sizes := map[int]bool{}
	var names []string
	for name, t := range s.tensors() {
		names = append(names, name)
		for _, d := range t.Shape {
			if d > 1 {
				sizes[d] = true
			}
		}
	}
	slices.Sort(names)
	for _, d := range slices.Sorted(maps.Keys(sizes)) {
		for _, to := range smaller(d) {
			if s.resized(func(_ string, _, size int) int {
				if size == d {
					return to
				}
				return size
			}) {
				return true
			}
		}
	}
	for _, name := range names {
		t := s.tensors()[name]
		for axis, d := range t.Shape {
			for _, to := range smaller(d) {
				if s.resized(func(n string, ax, size int) int {
					if n == name && ax == axis {
						return to
					}
					return size
				}) {
					return true
				}
			}
		}
	}
	return false
}

func smaller(d int) []int {
	var out []int
	for _, x := range []int{1, 2, d / 2, d - 1} {
		if x > 0 && x < d && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// tensors are inputs and constants.
func (s *shrinker) tensors() map[string]*ir.Tensor {
	out := map[string]*ir.Tensor{}
	for name, t := range s.c.Inputs {
		out[name] = t
	}
	for _, p := range s.c.Model.Proto.Graph.Initializer {
		if t, err := s.c.Model.Tensor(p); err == nil {
			out[p.GetName()] = t
		}
	}
	return out
}

// resized crops inputs and constants.
func (s *shrinker) resized(size func(name string, axis, size int) int) bool {
	return s.replaced(func(name string, t *ir.Tensor) *ir.Tensor {
		shape := slices.Clone(t.Shape)
		for i, d := range shape {
			shape[i] = size(name, i, d)
		}
		if slices.Equal(shape, t.Shape) {
			return t
		}
		from, to := t.Array(), ir.NewArray(ir.T(t.DType, shape...))
		for i := range to.Numel() {
			at, rest, stride := 0, i, 1
			for k := len(shape) - 1; k >= 0; k-- {
				at += rest % shape[k] * stride
				rest /= shape[k]
				stride *= t.Shape[k]
			}
			if to.F != nil {
				to.F[i] = from.F[at]
			} else {
				to.I[i] = from.I[at]
			}
		}
		return to.Tensor()
	})
}

// replaced changes inputs and constants.
func (s *shrinker) replaced(f func(name string, t *ir.Tensor) *ir.Tensor) bool {
	return s.try(func(g *onnxpb.GraphProto, data map[string]*ir.Tensor) bool {
		changed := false
		for i, v := range g.Input {
			t := data[v.GetName()]
			if t == nil {
				continue
			}
			n := f(v.GetName(), t)
			changed = changed || n != t
			data[v.GetName()] = n
			b := onnx.NewBuilder("", onnx.MaxOpset)
			b.Input(v.GetName(), n.DType, dims(n.Shape)...)
			g.Input[i] = b.Graph().Input[0]
		}
		for i, p := range g.Initializer {
			t, err := s.c.Model.Tensor(p)
			if err != nil {
				return false
			}
			n := f(p.GetName(), t)
			changed = changed || n != t
			b := onnx.NewBuilder("", onnx.MaxOpset)
			b.Initializer(p.GetName(), n)
			g.Initializer[i] = b.Graph().Initializer[0]
		}
		return changed
	})
}

// numbers makes floats small whole numbers, or halves, tensor by tensor.
func (s *shrinker) numbers() {
	for name, t := range s.tensors() {
		if !t.DType.IsFloat() {
			continue
		}
		for _, step := range []float64{1, .125} {
			if s.replaced(func(n string, t *ir.Tensor) *ir.Tensor {
				if n != name {
					return t
				}
				a := ir.NewArray(t.Type)
				for i, x := range t.Floats() {
					a.F[i] = math.Round(x/step) * step
				}
				return a.Tensor()
			}) {
				break
			}
		}
	}
}

// Save writes a case as a test-case directory with expected outputs.
func (c *Case) Save(dir string, outputs map[string]*ir.Tensor) error {
	set := filepath.Join(dir, "test_data_set_0")
	if err := os.MkdirAll(set, 0o755); err != nil {
		return err
	}
	i := 0
	for _, in := range c.Model.Proto.Graph.Input {
		if !c.isInput(in.GetName()) {
			continue
		}
		if err := saveTensor(filepath.Join(set, fmt.Sprintf("input_%d.pb", i)), in.GetName(), c.Inputs[in.GetName()]); err != nil {
			return err
		}
		i++
	}
	for i, o := range c.Model.Proto.Graph.Output {
		if t := outputs[o.GetName()]; t != nil {
			if err := saveTensor(filepath.Join(set, fmt.Sprintf("output_%d.pb", i)), o.GetName(), t); err != nil {
				return err
			}
		}
	}
	return c.Model.Save(filepath.Join(dir, "model.onnx"))
}

func saveTensor(path, name string, t *ir.Tensor) error {
	data, err := onnx.TensorFile(name, t)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
