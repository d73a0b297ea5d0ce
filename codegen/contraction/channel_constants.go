package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// channelConstants are f32 constants of channels that the epilogue of a product's producer reads: scales, biases. A
// stage has a row of each for its chunk of channels.
type channelConstants struct {
	channels int
	rows     []channelConstant
}

type channelConstant struct {
	value   *ir.Value
	numbers []float64 // of every channel, of every member if it is batched
	batched bool
	operand int
	run     []*expr.Expr // variables: those of a run of channels
}

// hold returns a region's constants of channels, except but, and the region with fresh values in their place, which
// no other part of a fused region reads.
func hold(region *ir.Node, channels int, but *ir.Value) (*ir.Node, channelConstants) {
	own, h := *region, channelConstants{channels: channels}
	own.Inputs = slices.Clone(region.Inputs)
	for i, v := range region.Inputs {
		r := channelConstant{batched: region.Region.Operands[i].Batched && region.Region.Members > 0}
		count := channels
		if r.batched {
			count *= region.Region.Count()
		}
		if v == but || !v.IsConst() || v.Const.Splat || v.Type.DType != ir.Float32 || v.Type.Numel() != count {
			continue
		}
		copied := *v
		own.Inputs[i], r.value, r.numbers = &copied, &copied, v.Const.Floats()
		h.rows = append(h.rows, r)
	}
	return &own, h
}

// lower makes the constants operands in shared memory.
func (h *channelConstants) lower(l *lower.Lowering) {
	for i := range h.rows {
		h.rows[i].operand = l.Hold(h.rows[i].value)
	}
}

// take makes variables of the constants that values read, of a run of channels that begins at one; it fails if they
// read those of other channels.
func (h *channelConstants) take(l *lower.Lowering, values []*expr.Expr, first *expr.Expr) {
	done := map[*expr.Expr]*expr.Expr{}
	for i := range h.rows {
		h.rows[i].numbered(l, first, h.channels, len(values), done)
	}
	var replace func(x *expr.Expr) *expr.Expr
	replace = func(x *expr.Expr) *expr.Expr {
		switch {
		case done[x] != nil:
			return done[x]
		case x.Op == expr.OpLoad && x.I < 0:
			lower.Fail(fmt.Errorf("channels of %s read constants of others", l.Region.Name))
		case len(x.Args) == 0:
			return x
		}
		args := make([]*expr.Expr, len(x.Args))
		for i, a := range x.Args {
			args[i] = replace(a)
		}
		done[x] = x
		if !slices.Equal(args, x.Args) {
			done[x] = l.B.Rebuild(x, args)
		}
		return done[x]
	}
	for i, x := range values {
		values[i] = replace(x)
	}
}

// numbered says which variables stand for a row's numbers of a run of channels.
func (r *channelConstant) numbered(l *lower.Lowering, first *expr.Expr, channels, run int, as map[*expr.Expr]*expr.Expr) {
	b := l.B
	if r.batched {
		first = b.Add(b.Scale(l.Member, int64(channels)), first)
	}
	r.run = nil
	for i := range run {
		v := b.Var(fmt.Sprintf("held%d.%d", -r.operand, i), expr.F32, 0, 0, 1)
		as[b.Load(r.operand, b.Offset(first, int64(i)), ir.Float32, nil, nil)] = v
		r.run = append(r.run, v)
	}
}

// at is a constant's number for a channel of a member.
func (h *channelConstants) at(row, member, channel int) float64 {
	if h.rows[row].batched {
		channel += member * h.channels
	}
	return h.rows[row].numbers[channel]
}

// read reads the constants of a run of channels, the first of which is in shared memory at an address and an offset.
func (h *channelConstants) read(g *gen, em *expr.Emitter, at ptx.Reg, off int) {
	for i, r := range h.rows {
		for k := 0; k < len(r.run); k += 4 {
			x := g.RegVec(ptx.F32, min(4, len(r.run)-k))
			g.I(fmt.Sprintf("ld.shared.v%d.f32", len(x)), ptx.V(x...), ptx.At(at, off+4*(i*g.s.BK+k)))
			for j, x := range x {
				em.Bind(r.run[k+j], x)
			}
		}
	}
}
