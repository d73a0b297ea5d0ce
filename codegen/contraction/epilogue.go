package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/ir"
)

// group is how many neighbouring columns a thread finishes together: 16 where a narrow output divides into them (16
// bytes of e4m3, a block of NVFP4), else 8.
func (p *problem) group() int {
	for _, o := range p.outs {
		if o.dtype.Bits() > 8 || p.n%16 != 0 {
			return 8
		}
	}
	return 16
}

// epilogue is what happens to an accumulator: the nodes after the anchor as one scalar function of the accumulator
// and of operands, each read at the anchor's output index.
type epilogue struct {
	result []*expr.Expr // for every output, and what is summed: every column of a group
	acc    []*expr.Expr // variables: the accumulators
	z      []*expr.Expr // variables: the output coordinate, n of the group's first column
	m, n   *expr.Expr
	group  int        // columns of a group
	tag    string     // of variables' names, where a kernel has several
	stored []ir.DType // of outputs
	wide   []bool     // of an output: a group is stored 16 bytes at a time, or 8 where it has no more
	size   expr.Size  // of a group
	reads  [2]int     // bytes that a group reads of operands: the same in every row, and others
	exact  bool       // every group of columns is inside or outside of the matrix as a whole
}

// newEpilogue builds the function of a group of so many columns and decides how the output is accessed. Names of
// variables end with a tag.
func newEpilogue(p *problem, l *lower.Lowering, ctx *kernel.Context, group int, tag string) (*epilogue, error) {
	e := &epilogue{group: group, tag: tag, exact: p.n%group == 0}
	var types []ir.DType
	for i := range p.outs {
		o := &p.outs[i].operand
		if d := o.dtype; !isHalf(d) && d != ir.Float32 && d != ir.Float8E4M3FN && p.quantise == nil {
			return nil, fmt.Errorf("output of type %s", d)
		}
		width := min(16, group*o.dtype.Bits()/8)
		e.wide = append(e.wide, e.exact && runs(o, group) && p.quantise == nil && ctx.AlignOf(o.value)%width == 0)
		types = append(types, o.dtype)
	}
	return e, e.lower(p, l, types)
}

// lower builds the function for groups of columns. Outputs but those in blocks are as they are stored as some types.
func (e *epilogue) lower(p *problem, l *lower.Lowering, types []ir.DType) error {
	b, group := l.B, e.group
	for i, d := range p.z {
		e.z = append(e.z, b.Index(fmt.Sprintf("z%d%s", i, e.tag), d))
	}
	e.m = b.Index("m"+e.tag, p.m)
	e.n = b.Int(0)
	if p.n > group {
		e.n = b.Var("n"+e.tag, expr.S32, 0, int64((ceilDiv(p.n, group)-1)*group), int64(group))
	}
	if p.region.Region.Members > 0 {
		l.Member = e.z[0]
	}
	y, column := p.anchor.Outputs[0].Type.Shape, b.Index("column"+e.tag, p.n)
	dense, err := p.spread(layout.Dense(y))
	if err != nil {
		return err
	}
	own := b.Unravel(e.element(b, &dense, column), y)
	sum := func(acc *expr.Expr) *expr.Expr {
		if bias := p.anchor.Bias(); bias != nil {
			return b.Add(acc, l.Value(bias, []*expr.Expr{own[p.anchor.ChannelAxis()]}))
		}
		return acc
	}
	at := make([]lower.Element, len(p.outs))
	for i, o := range p.outs {
		at[i] = lower.Element{Of: o.result, Index: b.Unravel(e.element(b, &o.operand, column), o.result.Type.Shape)}
	}
	if p.sums != nil {
		index := b.Add(b.Scale(e.m, int64(p.n)), column)
		at = append(at, lower.Element{Of: p.sums.of, Index: b.Unravel(index, p.sums.of.Type.Shape)})
	}
	results, acc, err := l.Epilogue(lower.Vector{Anchor: p.anchor, Index: own, Channel: column, First: e.n, Width: group, Sum: sum}, at...)
	if err != nil {
		return err
	}
	e.acc = acc
	for i, result := range results {
		if p.quantise == nil && i < len(p.outs) {
			var stored ir.DType
			for j := range result {
				result[j], stored = lower.Storage(b, result[j], types[i])
			}
			result = expr.Stored(result, stored) // the store rounds
			e.stored = append(e.stored, stored)
		}
		e.result = append(e.result, result...)
	}
	e.size = expr.SizeOf(e.result)
	expr.Walk(e.result, func(x *expr.Expr) {
		switch {
		case x.Op != expr.OpLoad:
		case x.DependsOnAny(e.m):
			e.reads[1] += x.DType.Bits() / 8
		default:
			e.reads[0] += x.DType.Bits() / 8
		}
	})
	return nil
}

// element is the number of a column's element of an operand, in the member that z[0] says.
func (e *epilogue) element(b *expr.Builder, o *operand, column *expr.Expr) *expr.Expr {
	index := b.Int(o.offset)
	for i, modes := range o.z[1:] {
		index = b.Add(index, offsetExpr(b, modes, e.z[i+1]))
	}
	index = b.Add(index, offsetExpr(b, o.row, e.m))
	return b.Add(index, offsetExpr(b, o.col, column))
}

// offsetExpr is the element offset of coordinate x.
func offsetExpr(b *expr.Builder, modes []layout.Mode, x *expr.Expr) *expr.Expr {
	off := b.Int(0)
	for i := len(modes) - 1; i >= 0; i-- {
		d := x
		if i > 0 {
			d = b.FloorMod(x, int64(modes[i].Size))
			x = b.FloorDiv(x, int64(modes[i].Size))
		}
		off = b.Add(off, b.Scale(d, int64(modes[i].Stride)))
	}
	return off
}
