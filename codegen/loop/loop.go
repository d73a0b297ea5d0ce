package loop

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// Family makes the kernels of loops, of regions of any family, and of fused loops.
var Family = kernel.Family{Name: ir.FamilyLoop, Analyse: func(region *ir.Node, ctx *kernel.Context) (kernel.Kernel, error) {
	if region.IsFamily(ir.FamilyFused) {
		return newFusedLoops(region, ctx)
	}
	explicit, err := region.Explicit()
	if err != nil {
		return nil, err
	}
	return newProblem(explicit, ctx)
}}

// Spec implements kernel.Kernel.
func (p *problem) Spec(c kernel.Choice) (*kernel.Spec, error) {
	region := p.region
	spec := &kernel.Spec{
		Stem: stem(region.Region.Body), Family: ir.FamilyLoop, Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1},
		MACs: region.MACs(), Note: note(region.Region.Body), Operands: p.l.Operands,
	}
	if p.elements == 0 {
		spec.Schedule = "empty"
		spec.Emit = func(k *ptx.Kernel, _ []ptx.Sym) { k.I("ret") }
		return spec, nil
	}
	s := c.Schedule.(schedule)
	spec.Schedule, spec.Grid[0], spec.Block[0], spec.Shared = s.String(), s.blocks, s.threads, s.shared
	spec.Emit = func(k *ptx.Kernel, params []ptx.Sym) { p.emit(&s, k, params, nil) }
	return spec, nil
}

// problem is a region as expressions over its output index.
type problem struct {
	region   *ir.Node
	ctx      *kernel.Context
	b        *expr.Builder
	l        *lower.Lowering
	shape    []int // of output 0, the members' dimension first
	elements int
	index    []*expr.Expr // one variable a dimension
	outs     []output
	outputs  []int    // operand numbers
	part     *part    // of a fused region; nil: a launch of its own
	scatters bool     // its output is elements of a value whose others stay: each goes to its linear
	blocks   *ir.Node // BlockQuantize that the body ends with: what it rounds is the only one of outs; nil: none
}

type output struct {
	value  *expr.Expr // as stored
	dtype  ir.DType   // as stored
	sub    int        // elements in a byte, 1 for whole ones
	linear *expr.Expr // element number; all outputs agree unless they are scattered
}

func newProblem(region *ir.Node, ctx *kernel.Context) (p *problem, err error) {
	defer lower.Catch(&err)
	return problemOf(region, ctx, lower.New(region, ctx), nil)
}

// problemOf is newProblem of a region that is being lowered. It may panic with what lower.Catch turns into an error.
func problemOf(region *ir.Node, ctx *kernel.Context, l *lower.Lowering, of *part) (p *problem, err error) {
	b := l.B
	p = &problem{region: region, ctx: ctx, b: b, l: l, part: of}
	p.shape = region.Outputs[0].Type.Shape
	p.elements = region.Outputs[0].Type.Numel()
	update := updateOf(region, ctx)
	if p.scatters = update != nil && of == nil; p.scatters {
		p.shape, p.elements = update.Inputs[2].Type.Shape, update.Inputs[2].Type.Numel()
	}
	if err := indexable(region, p.elements); err != nil {
		return nil, err
	}
	for i, d := range p.shape {
		p.index = append(p.index, b.Index(of.name(fmt.Sprint("o", i)), d))
	}
	if p.scatters {
		p.scattered(update)
		return p, nil
	}
	inner, shape := p.index, p.shape
	if region.Region.Members > 0 {
		p.l.Member = p.index[0]
		inner, shape = p.index[1:], p.shape[1:]
	}
	if p.blocks = region.Region.BlockQuantize(); p.blocks != nil {
		return p, p.quantised(inner)
	}
	at := b.Linear(inner, shape)
	for i, v := range region.Region.Body.Outputs {
		if n := region.Outputs[i].Type.Numel(); n != p.elements {
			return nil, fmt.Errorf("its outputs have %d and %d elements, which no single loop computes: please report it as a bug of pass fuse", p.elements, n)
		}
		if p.elements == 0 {
			p.outputs = append(p.outputs, p.l.Output(i))
			continue
		}
		idx := inner
		if i > 0 {
			idx = b.Unravel(at, v.Type.Shape)
		}
		d := v.Type.DType
		value, stored := lower.Storage(b, p.l.Value(v, idx), d)
		p.outs = append(p.outs, output{value: value, dtype: stored, sub: max(8/d.Bits(), 1), linear: b.Linear(p.index, p.shape)})
	}
	for i := range p.outs {
		if of.stores() {
			p.outputs = append(p.outputs, p.l.Output(i))
		}
		if of.holds() {
			id := 0
			if v := region.Outputs[i]; of.read[v] {
				id = p.l.Hold(v)
			}
			of.held = append(of.held, id)
		}
	}
	return p, nil
}

// indexable says what 32 bits cannot index: threads of a launch that number its output's elements, and coordinates
// along one dimension. Elements of what a region reads are numbered in 64 bits where they have to be.
func indexable(region *ir.Node, elements int) error {
	const remedy = "does not fit 32-bit indices: use a smaller --batch or --shape, or split the tensor"
	if elements > math.MaxInt32-1<<16 { // rounded up to whole blocks
		return fmt.Errorf("an output of %d elements %s", elements, remedy)
	}
	values := slices.Clone(region.Region.Body.Inputs)
	for _, n := range region.Region.Body.Nodes {
		values = append(values, n.Outputs...)
	}
	for _, v := range values {
		if d := slices.Max(append([]int{0}, v.Type.Shape...)); d > math.MaxInt32-1<<16 {
			return fmt.Errorf("%s has a dimension of %d elements, which %s", v.Name, d, remedy)
		}
		if v.Type.Numel() > 1<<34 { // the rounds of a team of 8 threads, each of which reads one at a time
			return fmt.Errorf("%s has %d elements, a sum over which %s", v.Name, v.Type.Numel(), remedy)
		}
	}
	return nil
}

// quantised makes the operand of the BlockQuantize the output, which threads store in whole blocks.
func (p *problem) quantised(idx []*expr.Expr) error {
	if err := p.ctx.StoresBlocks(p.region); err != nil {
		return err
	}
	if p.elements > 0 {
		p.outs = []output{{value: p.l.Value(p.blocks.Inputs[0], idx), dtype: ir.Float32, sub: 1}}
	}
	p.outputs = []int{p.l.Output(0), p.l.Output(1)}
	return nil
}

// stem names a kernel after its most telling op.
func stem(g *ir.Graph) string {
	best, rank := "copy", -1
	for _, n := range g.Nodes {
		r := 1
		switch n.Op.Kind {
		case ir.KindMovement:
			r = 0
		case ir.KindReduction, ir.KindScan, ir.KindOther:
			r = 2
		case ir.KindContraction, ir.KindWindow:
			r = 3
		}
		if n.Op.Name == "Cast" || n.Op.Name == "Reshape" {
			r = 0
		}
		if r > rank {
			best, rank = strings.ToLower(n.Op.Name), r
		}
	}
	return best
}

func note(g *ir.Graph) string {
	var ops []string
	for _, n := range g.Nodes {
		ops = append(ops, n.Op.Name)
	}
	if len(ops) > 12 {
		ops = append(ops[:12], "…")
	}
	return strings.Join(ops, " ")
}
