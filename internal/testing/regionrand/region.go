// Package regionrand draws random regions of every kernel family, over element types, storage, epilogues, views and odd sizes,
// for tests that hold kernels to the reference evaluator.
//
//	Draw    a region from a seed, or from a tape of decisions
//	Fill    data for what it reads
//	Shrink  a simpler region that still fails
package regionrand

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Case is a drawn region, alone in its graph.
type Case struct {
	Graph  *ir.Graph
	Target string // to compile for
	SMs    int    // that the target is taken to have, since schedules depend on it; 0: its own
	Align  int    // in bytes, of every variable; 0: 256
	Loop   bool   // the family is passed over for loop, to which the driver falls back
	Tape   []int  // the decisions
}

// Region is the node.
func (c *Case) Region() *ir.Node { return c.Graph.Nodes[0] }

// rejected is what a draw panics with that yields no valid region.
type rejected struct{ err error }

// Draw makes the region of a seed. It is an error if the decisions contradict each other; few do.
func Draw(seed uint64) (*Case, error) { return draw(&tape{rng: rand.New(rand.NewPCG(seed, 1))}) }

// Replay makes the region of a tape.
func Replay(taken []int) (*Case, error) { return draw(&tape{taken: slices.Clone(taken)}) }

// Shrink returns a simpler case on which fails still holds; fails is called up to tries times.
func (c *Case) Shrink(tries int, fails func(c *Case) bool) *Case {
	taken := shrink(c.Tape, tries, func(taken []int) bool {
		d, err := Replay(taken)
		return err == nil && fails(d)
	})
	if d, err := Replay(taken); err == nil {
		return d
	}
	return c
}

func draw(t *tape) (c *Case, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case rejected:
			err = r.err
		default:
			panic(r)
		}
	}()
	g := ir.NewGraph("g")
	b := &builder{tape: t, g: g, body: ir.NewGraph("body"), rng: rand.New(rand.NewPCG(7, 7)), extra: map[int][]*ir.Value{}}
	c = &Case{Graph: g, Target: pick(t, target.Names()...), SMs: pick(t, 0, 4, 300), Align: pick(t, 0, 0, 0, 16, 8, 4), Loop: t.oneIn(10)}
	b.r, b.slow = &ir.Region{Body: b.body}, c.Loop
	on, err := target.Lookup(c.Target)
	if err != nil {
		return nil, err
	}
	// What the target has no conversion for would be refused.
	b.narrow, b.blocks = on.Multiplies(ir.Float8E4M3FN.String()), on.Multiplies(ir.Float4E2M1.String()) && c.Align == 0
	switch family := pick(t, nil, b.matmul, b.conv, b.matmul, b.conv, b.attention, b.attentionGrad, b.window, b.window, b.segments, b.adapted, b.rows, b.expansion, nil); family {
	case nil:
		b.finish(b.loop())
	default:
		b.finish([]*ir.Value{family()})
		b.joined()
	}
	if g.Nodes[0].IsFamily(ir.FamilyLoop) && !c.Loop {
		b.followed()
	}
	c.Tape = t.taken[:min(t.at, len(t.taken))]
	if err := g.Verify(); err != nil {
		return nil, err
	}
	return c, nil
}

// builder is a region under construction.
type builder struct {
	*tape
	g      *ir.Graph
	body   *ir.Graph
	r      *ir.Region
	inputs []*ir.Value
	extra  map[int][]*ir.Value // tensors of scales of an operand
	after  []*ir.Value         // what follows an anchor, without the result
	part   int                 // rows of what follows an anchor whose sums are a result; 0: none
	sum    *ir.Value           // these sums
	rng    *rand.Rand          // of constants
	slow   bool                // it is computed by a loop
	narrow bool                // the target converts to e4m3
	blocks bool                // and to blocks of e2m1
}

func (b *builder) add(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	n, err := b.body.Add(op, op, attrs, in...)
	if err != nil {
		panic(rejected{fmt.Errorf("%s: %w", op, err)})
	}
	return n.Outputs[0]
}

func (b *builder) splat(x float64) *ir.Value {
	return b.body.Constant("c", ir.ScalarFloat(ir.Float32, x))
}

// members decides whether there are several.
func (b *builder) members() { b.r.Members = pick(b.tape, 0, 0, 0, 1, 2, 3) }

// batched decides whether members read parts of their own.
func (b *builder) batched() bool { return b.r.Members > 0 && b.below(3) > 0 }

// how says what an operand is.
type how struct {
	storage  ir.Storage
	read     ir.Storage
	constant bool
	batched  bool
	size     float64 // standard deviation of a constant; 0: 1
}

// operand is a value of the body of that shape: f32, or the type of an integer.
func (b *builder) operand(h how, shape ...int) *ir.Value {
	d := h.storage.DType
	wide := d
	if d.IsFloat() {
		wide = ir.Float32
	}
	full := func(shape []int) []int {
		if h.batched {
			return append([]int{b.r.Members}, shape...)
		}
		return slices.Clone(shape)
	}
	i := len(b.inputs)
	b.inputs = append(b.inputs, b.value(ir.T(d, full(shape)...), h.constant, h.size))
	b.r.Operands = append(b.r.Operands, ir.Operand{Batched: h.batched, Storage: h.storage, Read: h.read})
	v := b.body.AddInput(fmt.Sprint("p", i), ir.T(wide, shape...))
	if s := h.storage; s.PerChannel {
		b.extra[i] = append(b.extra[i], b.scales(ir.T(ir.Float64, full([]int{shape[s.ChannelAxis]})...), true))
	}
	if s := h.storage; s.Block > 0 {
		count := slices.Clone(shape)
		count[s.BlockAxis] = (count[s.BlockAxis] + s.Block - 1) / s.Block
		b.extra[i] = append(b.extra[i], b.scales(ir.T(ir.BlockScale, full(count)...), h.constant))
	}
	return v
}

// value is an input of the graph or a constant.
func (b *builder) value(t ir.Type, constant bool, size float64) *ir.Value {
	if !constant {
		return b.g.AddInput(fmt.Sprint("x", len(b.g.Inputs)), t)
	}
	if size == 0 {
		size = 1
	}
	return b.g.Constant(b.g.Fresh("w"), numbers(b.rng, t, size))
}

func (b *builder) scales(t ir.Type, constant bool) *ir.Value {
	if !constant {
		return b.g.AddInput(fmt.Sprint("x", len(b.g.Inputs)), t)
	}
	return b.g.Constant(b.g.Fresh("s"), positive(b.rng, t))
}

// numbers draws what suits a type: floats are normal, integers small.
func numbers(rng *rand.Rand, t ir.Type, size float64) *ir.Tensor {
	if t.DType.IsFloat() {
		xs := make([]float64, t.Numel())
		for i := range xs {
			xs[i] = size * rng.NormFloat64()
		}
		return ir.FromFloats(t, xs)
	}
	xs := make([]int64, t.Numel())
	for i := range xs {
		switch {
		case t.DType == ir.Bool:
			xs[i] = rng.Int64N(2)
		case t.DType.IsSigned():
			xs[i] = rng.Int64N(15) - 7
		default:
			xs[i] = rng.Int64N(200)
		}
	}
	return ir.FromInts(t, xs)
}

// positive draws scales of many sizes.
func positive(rng *rand.Rand, t ir.Type) *ir.Tensor {
	xs := make([]float64, t.Numel())
	for i := range xs {
		xs[i] = math.Ldexp(0.5+rng.Float64(), rng.IntN(4)-2)
	}
	return ir.FromFloats(t, xs)
}

// Fill draws data for the inputs of a graph of one region, by what it does with them.
func Fill(g *ir.Graph, seed uint64) map[*ir.Value]*ir.Tensor {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := g.Nodes[0]
	scales, factor := map[*ir.Value]bool{}, map[*ir.Value]float64{}
	for _, part := range n.Parts() {
		for i, o := range part.Region.Operands {
			scales[part.BlockScales(i)], factor[part.Inputs[i]] = true, o.Factor()
		}
	}
	data := map[*ir.Value]*ir.Tensor{}
	for _, v := range g.Inputs {
		if scales[v] {
			data[v] = positive(rng, v.Type)
			continue
		}
		size := 1.0
		if f := factor[v]; f != 0 {
			size = 1 / f
		}
		data[v] = numbers(rng, v.Type, size)
	}
	return data
}

// activation decides how a value between kernels is stored.
func (b *builder) activation() ir.Storage {
	s := ir.Storage{DType: pick(b.tape, ir.Float32, ir.Float16, ir.Float16, ir.BFloat16, ir.Float8E4M3FN)}
	if s.DType == ir.Float8E4M3FN {
		s.Scale = pick(b.tape, 0, 0.013, 0x1p-6)
	}
	return s
}

// result decides how a value is stored: as an activation, or in blocks.
func (b *builder) result(y *ir.Value, alone bool) ir.Storage {
	if y.Type.DType != ir.Float32 {
		return ir.Storage{DType: y.Type.DType}
	}
	rank, s := y.Type.Rank(), b.activation()
	switch {
	case alone && b.blocks && rank > 0 && y.Type.Shape[rank-1]%ir.BlockSize == 0 && b.below(3) > 0:
		return ir.Storage{DType: ir.Float4E2M1, Scale: 0.02, Block: ir.BlockSize, BlockAxis: rank - 1}
	case s.DType == ir.Float8E4M3FN && s.Scale == 0:
		s.Scale = 0.02
	}
	return s
}

// finish makes the node.
func (b *builder) finish(ys []*ir.Value) {
	b.body.Outputs = ys
	for _, y := range ys {
		b.r.Results = append(b.r.Results, b.result(y, len(ys) == 1 && b.sum == nil))
	}
	if b.r.Family == ir.FamilyContraction && b.r.Results[0].Block == 0 && len(b.after) > 0 && b.oneIn(4) { // a contraction may have several
		y := pick(b.tape, b.after...)
		b.body.Outputs = append(b.body.Outputs, y)
		b.r.Results = append(b.r.Results, b.result(y, false))
	}
	if b.sum != nil {
		b.body.Outputs = append(b.body.Outputs, b.sum)
		b.r.Results = append(b.r.Results, ir.Storage{DType: ir.Float32})
	}
	if a := b.r.Anchor(); a != nil && a.Role() == ir.RoleHeavy { // too small or odd for the family
		b.r.Family = ir.FamilyLoop
	}
	inputs := slices.Clone(b.inputs)
	for i := range b.inputs {
		inputs = append(inputs, b.extra[i]...)
	}
	n, err := b.g.RegionNode("region", b.r, inputs...)
	if err != nil {
		panic(rejected{err})
	}
	b.g.Nodes, b.g.Outputs = []*ir.Node{n}, n.Outputs
}
