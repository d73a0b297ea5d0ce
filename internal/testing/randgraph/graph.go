package randgraph

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Case is a model with one set of inputs.
type Case struct {
	Name   string
	Model  *onnx.Model
	Inputs map[string]*ir.Tensor
	Ops    []string // operators of the nodes
	Refuse error    // of a case that is one node: why the importer refuses it
	// Disputes are why ONNX Runtime's answer may differ from ours here (disputes.go).
	Disputes []string
}

// Limits of what is drawn.
const (
	mostNodes    = 12
	mostElements = 2048 // of a value
	greatest     = 1e4  // element of a value of floats
)

// kind of a value: where it comes from.
type kind int

const (
	isInput kind = iota
	isDefault
	isInitializer
	isConstant // by a node Constant
	isComputed
)

type value struct {
	name string
	ir.Type
	data  *ir.Array
	kind  kind
	known bool // it follows from constants and shapes alone
	used  bool
}

type node struct {
	proto *onnxpb.NodeProto
	name  string
	outs  []*value
}

// build is a graph under construction.
type build struct {
	r      *rand.Rand
	opset  int64
	ml     int64 // opset of ai.onnx.ml
	main   ir.DType
	nodes  []node
	values []*value
	count  int
	s      *schema // of the operator that is drawn

	refused  []*Case
	disputes []string
}

// redraw ends the drawing of a node that cannot be drawn here, or whose results are useless.
type redraw struct{}

func (b *build) redraw() { panic(redraw{}) }

// Generate makes the case of a seed. refused are single nodes that rows call valid and the importer refuses.
func Generate(seed uint64) (c *Case, refused []*Case) {
	b := &build{r: rand.New(rand.NewPCG(seed, 0x5eed)), ml: 3}
	// Newer opsets than ONNX Runtime has come now and then.
	if b.opset = int64(onnx.MinOpset + b.r.IntN(onnx.MaxOpset-onnx.MinOpset+1)); b.opset > 26 && b.chance(.5) {
		b.opset = 26
	}
	b.main = oneOf(b, ir.Float32, ir.Float32, ir.Float32, ir.Float32, ir.Float32, ir.Float32, ir.Float16, ir.Float16, ir.BFloat16, ir.Float64)
	rows := available(b.opset)
	want := 1 + b.r.IntN(mostNodes)
	for tries := 0; len(b.nodes) < want && tries < 40*want; tries++ {
		b.attempt(rows[b.r.IntN(len(rows))])
	}
	if len(b.nodes) == 0 {
		return nil, b.refused
	}
	c = b.finish(fmt.Sprint("seed ", seed))
	return c, b.refused
}

// attempt draws one row's node, or leaves the graph as it was.
func (b *build) attempt(r *row) (done bool) {
	nodes, values, disputes := len(b.nodes), len(b.values), len(b.disputes)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case redraw:
			b.nodes, b.values, b.disputes = b.nodes[:nodes], b.values[:values], b.disputes[:disputes]
		default:
			panic(p)
		}
	}()
	if b.s = b.schema(r.op); b.s == nil {
		return false
	}
	r.draw(b, r.op)
	return true
}

// schema of an operator at the graph's opsets.
func (b *build) schema(op string) *schema {
	return schemaOf(op, b.version(op))
}

func (b *build) version(op string) int64 {
	if strings.HasPrefix(op, "ai.onnx.ml.") {
		return b.ml
	}
	return b.opset
}

func (b *build) chance(p float64) bool { return b.r.Float64() < p }

// between is a number from lo to hi, both included.
func (b *build) between(lo, hi int) int {
	if hi < lo {
		b.redraw()
	}
	return lo + b.r.IntN(hi-lo+1)
}

func oneOf[T any](b *build, list ...T) T {
	if len(list) == 0 {
		b.redraw()
	}
	return list[b.r.IntN(len(list))]
}

// finish makes the case: what no node reads is an output, and now and then something else, twice under two names, or an input
// renamed.
func (b *build) finish(name string) *Case {
	var outputs []*value
	for _, n := range slices.Clone(b.nodes) {
		for _, v := range n.outs {
			if !v.used || b.chance(.15) {
				outputs = append(outputs, v)
			}
		}
	}
	for _, v := range slices.Clone(outputs) { // one value under two names
		if n := len(b.nodes); b.chance(.3) && b.attempt(&row{op: "Identity", draw: func(b *build, _ string) { b.renamed(v) }}) {
			outputs = append(outputs, b.nodes[n].outs[0])
		}
	}
	bld := onnx.NewBuilder("random", b.opset)
	c := &Case{Name: name, Inputs: map[string]*ir.Tensor{}, Disputes: b.disputes}
	ml := false
	for _, n := range b.nodes {
		c.Ops = append(c.Ops, n.name)
		ml = ml || n.proto.Domain != nil
	}
	if ml {
		bld.Opset("ai.onnx.ml", b.ml)
	}
	for _, v := range b.values {
		if !v.used {
			continue
		}
		t := v.data.Tensor()
		switch v.kind {
		case isInput, isDefault:
			bld.Input(v.name, v.DType, dims(v.Shape)...)
			c.Inputs[v.name] = t
			if v.kind == isDefault {
				bld.Initializer(v.name, t)
				delete(c.Inputs, v.name)
			}
		case isInitializer:
			bld.Initializer(v.name, t)
		case isConstant:
			bld.Node("Constant", nil, []string{v.name}, onnx.A("value", t)).Name = proto.String("Constant_" + v.name)
		}
	}
	for _, n := range b.nodes {
		bld.Graph().Node = append(bld.Graph().Node, n.proto)
	}
	for _, v := range outputs {
		bld.Output(v.name, v.DType, dims(v.Shape)...)
	}
	m, err := bld.Model()
	if err != nil {
		panic(err)
	}
	m.Path = name + ".onnx"
	c.Model = m
	return c
}

// renamed adds a node that gives a value another name.
func (b *build) renamed(x *value) {
	op := oneOf(b, "Identity", "Identity", "Reshape", "Cast", "Transpose", "Dropout")
	if !slices.Contains(b.schema(op).inputs[0].types, x.DType) {
		b.redraw()
	}
	switch op {
	case "Reshape":
		b.one(op, []*value{x, b.ints(x.Shape...)})
	case "Cast":
		b.one(op, []*value{x}, a("to", x.DType))
	case "Transpose":
		perm := make([]int, x.Rank())
		for i := range perm {
			perm[i] = i
		}
		b.one(op, []*value{x}, a("perm", perm))
	default:
		b.one(op, []*value{x})
	}
}
