package randgraph

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// one adds a node with one output.
func (b *build) one(op string, in []*value, attrs ...onnx.Attr) *value {
	return b.node(op, in, 1, attrs...)[0]
}

// node adds a node, and redraws if it is useless.
func (b *build) node(op string, in []*value, outs int, attrs ...onnx.Attr) []*value {
	return b.nodeIn(op, in, nil, outs, attrs...)
}

// nodeIn is node for one whose graphs read other values too.
func (b *build) nodeIn(op string, in, captured []*value, outs int, attrs ...onnx.Attr) []*value {
	var names, results []string
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	for _, v := range in {
		if v == nil {
			names = append(names, "")
			continue
		}
		names = append(names, v.name)
	}
	for range outs {
		b.count++
		results = append(results, fmt.Sprint("v", b.count))
	}
	alone := onnx.NewBuilder("node", b.opset)
	at := strings.LastIndexByte(op, '.')
	p := alone.Node(op[at+1:], names, results, attrs...)
	if at > 0 {
		p.Domain = proto.String(op[:at])
		alone.Opset(op[:at], b.ml)
	}
	b.count++
	p.Name = proto.String(fmt.Sprint(op[at+1:], "_", b.count))
	inputs := map[string]*ir.Tensor{}
	known := true
	for _, v := range append(slices.Clone(in), captured...) {
		if v == nil || inputs[v.name] != nil {
			continue
		}
		inputs[v.name] = v.data.Tensor()
		known = known && v.known
		if v.known {
			alone.Initializer(v.name, inputs[v.name])
		} else {
			alone.Input(v.name, v.DType, dims(v.Shape)...)
		}
	}
	for _, name := range results {
		alone.Graph().Output = append(alone.Graph().Output, &onnxpb.ValueInfoProto{Name: proto.String(name)})
	}
	m, err := alone.Model()
	if err != nil {
		panic(err)
	}
	m.Path = "node.onnx"
	c := &Case{Name: op, Model: m, Inputs: inputs, Ops: []string{op}}
	g, err := c.importIt()
	if err == nil {
		err = g.Verify()
	}
	if err != nil {
		c.Refuse = err
		b.refused = append(b.refused, c)
		b.redraw()
	}
	arrays, err := c.evaluate(g)
	if err != nil || !useful(g, arrays) {
		b.redraw() // an index out of range, or numbers without end
	}
	outputs := make([]*value, outs)
	for i, name := range results {
		a := arrays[name]
		outputs[i] = &value{name: name, Type: a.Type, data: a, kind: isComputed, known: known || op == "Shape" || op == "Size"}
	}
	for _, v := range append(slices.Clone(in), captured...) {
		if v != nil {
			v.used = true
		}
	}
	b.disputes = append(b.disputes, disputed(op, p, in)...)
	b.nodes = append(b.nodes, node{proto: p, name: op, outs: outputs})
	b.values = append(b.values, outputs...)
	return outputs
}

func dims(shape []int) []any {
	out := make([]any, len(shape))
	for i, d := range shape {
		out[i] = d
	}
	return out
}

// useful reports whether results are finite, and small enough to go on with.
func useful(g *ir.Graph, arrays map[string]*ir.Array) bool {
	for _, v := range g.Outputs {
		a := arrays[v.Name]
		if a.Numel() > mostElements || a.Numel() == 0 || a.Rank() > 6 {
			return false
		}
		for _, x := range a.F {
			if !(math.Abs(x) <= greatest) {
				return false
			}
		}
	}
	return true
}
