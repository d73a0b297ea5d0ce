package kerneltest

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// Graph is a graph of regions under construction, with data for its inputs and constants.
type Graph struct {
	*ir.Graph
	Data map[*ir.Value]*ir.Tensor
	Rand *rand.Rand
	t    testing.TB
}

// NewGraph is an empty graph whose random numbers are the same in every run.
func NewGraph(t testing.TB, name string) *Graph {
	return &Graph{ir.NewGraph(name), map[*ir.Value]*ir.Tensor{}, rand.New(rand.NewSource(7)), t}
}

// Draw gives element i of a tensor.
type Draw func(r *rand.Rand, i int) float64

// Drawn is an input of the graph, or a constant, with the numbers of draw.
func (g *Graph) Drawn(typ ir.Type, draw Draw, constant bool) *ir.Value {
	floats, ints := make([]float64, typ.Numel()), make([]int64, typ.Numel())
	for i := range floats {
		floats[i] = draw(g.Rand, i)
		ints[i] = int64(floats[i])
	}
	data := ir.FromInts(typ, ints)
	if typ.DType.IsFloat() {
		data = ir.FromFloats(typ, floats)
	}
	name := g.Fresh("x")
	var v *ir.Value
	if constant {
		v = g.Constant(name, data)
	} else {
		v = g.AddInput(name, typ)
	}
	g.Data[v] = data
	return v
}

// Numbers draws what suits a type: floats are normal with a standard deviation of size, integers small.
func Numbers(d ir.DType, size float64) Draw {
	switch {
	case d == ir.Bool:
		return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(2)) }
	case d == ir.Float8E8M0:
		return func(r *rand.Rand, _ int) float64 { return math.Ldexp(1, r.Intn(8)-4) }
	case d.IsFloat():
		return func(r *rand.Rand, _ int) float64 { return size * r.NormFloat64() }
	case d.IsSigned():
		return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(15) - 7) }
	}
	return func(r *rand.Rand, _ int) float64 { return float64(r.Intn(4)) }
}

// Region is a region under construction: its body grows by Add, and Finish puts it into the graph.
type Region struct {
	*Graph
	Body *ir.Graph
	Node *ir.Node // nil before Finish
	// Limits are the relative L2 distances from the reference that Check allows, by the type of an output.
	Limits map[ir.DType]float64
	r      *ir.Region
	inputs []*ir.Value
	scales map[int]*ir.Value // of blocks, by operand
	want   []*ir.Array       // the reference, once it is known
}

// New is a region that is alone in its graph.
func New(t testing.TB, family string) *Region { return NewGraph(t, "g").Region(family) }

// Region begins a region.
func (g *Graph) Region(family string) *Region {
	body := ir.NewGraph("body")
	return &Region{Graph: g, Body: body, Limits: maps.Clone(limits), r: &ir.Region{Family: family, Body: body}, scales: map[int]*ir.Value{}}
}

// Members makes the region compute n members at once; called before its first input.
func (r *Region) Members(n int) *Region {
	r.r.Members = n
	return r
}

// HasMembers reports whether the region computes several members at once.
func (r *Region) HasMembers() bool { return r.r.Members > 0 }

// Read makes a value of the graph an input; if batched, each member reads its own part.
func (r *Region) Read(v *ir.Value, batched bool) *ir.Value {
	typ := v.Type.Clone()
	batched = batched && r.HasMembers()
	if batched {
		typ.Shape = typ.Shape[1:]
	}
	r.inputs = append(r.inputs, v)
	r.r.Operands = append(r.r.Operands, ir.Operand{Batched: batched, Storage: ir.Storage{DType: typ.DType}})
	return r.Body.AddInput(fmt.Sprintf("p%d", len(r.inputs)), typ)
}

// Drawing is Drawn in the type that all members of an input have.
func (r *Region) Drawing(typ ir.Type, draw Draw, constant, batched bool) *ir.Value {
	if typ = typ.Clone(); r.HasMembers() && batched {
		typ.Shape = append([]int{r.r.Members}, typ.Shape...)
	}
	return r.Drawn(typ, draw, constant)
}

// Fill adds an input of the region with numbers that draw gives; typ is one member's.
func (r *Region) Fill(typ ir.Type, draw Draw, constant, batched bool) *ir.Value {
	return r.Read(r.Drawing(typ, draw, constant, batched), batched)
}

// Input is Fill with Numbers.
func (r *Region) Input(typ ir.Type, size float64, constant, batched bool) *ir.Value {
	return r.Fill(typ, Numbers(typ.DType, size), constant, batched)
}

// Add adds a node to the body and returns its first output.
func (r *Region) Add(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	r.t.Helper()
	n, err := r.Body.Add(op, op, attrs, in...)
	require.NoError(r.t, err)
	return n.Outputs[0]
}

// Cast is v as another type: an input that is not read yet becomes a value of the type, stored as the one that it had.
func (r *Region) Cast(v *ir.Value, to ir.DType) *ir.Value {
	if v.Type.DType == to {
		return v
	}
	if i := slices.Index(r.Body.Inputs, v); i >= 0 && to == ir.Float32 && v.Type.DType.IsFloat() && len(r.Body.Uses()[v]) == 0 {
		v.Type.DType = to
		return v
	}
	return r.Add("Cast", ir.Attrs{"to": to}, v)
}

// Splat is a scalar f32 constant of the body.
func (r *Region) Splat(x float64) *ir.Value {
	return r.Body.Constant("c", ir.ScalarFloat(ir.Float32, x))
}

// Dequantise makes an input a value stored in blocks along an axis, with scales of the graph.
func (r *Region) Dequantise(axis, block int, v, scales *ir.Value) *ir.Value {
	i := slices.Index(r.Body.Inputs, v)
	o := &r.r.Operands[i]
	o.Block, o.BlockAxis, v.Type.DType = block, axis, ir.Float32
	r.scales[i] = scales
	return v
}

// Rounded makes the anchor read an input rounded to what could be stored so.
func (r *Region) Rounded(v *ir.Value, to ir.Storage) *ir.Value {
	r.r.Operands[slices.Index(r.Body.Inputs, v)].Read = to
	return v
}

// Finish ends the body.
func (r *Region) Finish(outs ...*ir.Value) *ir.Node {
	r.t.Helper()
	for _, v := range outs {
		r.r.Results = append(r.r.Results, ir.Storage{DType: v.Type.DType})
	}
	return r.finish(outs)
}

// FinishBlocks ends the body; its result is stored as NVFP4.
func (r *Region) FinishBlocks(y *ir.Value, scale float64) *ir.Node {
	r.t.Helper()
	r.r.Results = []ir.Storage{{DType: ir.Float4E2M1, Scale: scale, Block: ir.BlockSize, BlockAxis: y.Type.Rank() - 1}}
	return r.finish([]*ir.Value{y})
}

func (r *Region) finish(outs []*ir.Value) *ir.Node {
	r.t.Helper()
	r.Body.Outputs = outs
	inputs := slices.Clone(r.inputs)
	for i := range r.inputs {
		if s := r.scales[i]; s != nil {
			inputs = append(inputs, s)
		}
	}
	n, err := r.RegionNode(outs[0].Def.Name, r.r, inputs...)
	require.NoError(r.t, err)
	r.Nodes = append(r.Nodes, n)
	r.Node = n
	return n
}
