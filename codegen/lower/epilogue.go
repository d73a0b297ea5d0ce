package lower

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

// Vector is a run of neighbouring channels of an anchor's output that a thread finishes together. The family sums
// them, the lowering does the rest.
type Vector struct {
	Anchor  *ir.Node
	Index   []*expr.Expr                    // of an element of the anchor's output, for any Channel
	Channel *expr.Expr                      // the variable in Index in which the elements of the run differ
	First   *expr.Expr                      // the run's first Channel
	Width   int                             // elements of the run; those beyond the last channel read nothing
	Sum     func(acc *expr.Expr) *expr.Expr // an element before rounding, given its accumulator
}

// Element is an element of a value after an anchor.
type Element struct {
	Of    *ir.Value
	Index []*expr.Expr
}

// Epilogue lowers values after the anchor for each element of a run, and returns the variables that stand for the
// accumulators. Each is lowered once, for any channel. It fails if an element of a value depends on elements of the
// anchor's output other than its own.
func (l *Lowering) Epilogue(t Vector, at ...Element) (values [][]*expr.Expr, accs []*expr.Expr, err error) {
	defer Catch(&err)
	b, y := l.B, t.Anchor.Outputs[0]
	acc, inside := b.Var("acc", expr.F32, 0, 0, 1), b.Var("inside", expr.Pred, 0, 1, 1)
	l.anchor, l.element = y, func(idx []*expr.Expr) *expr.Expr {
		if !slices.Equal(idx, t.Index) {
			l.fail(t.Anchor, "what follows needs several elements of its output for one of the result")
		}
		return Round(b, t.Sum(acc), y.Type.DType)
	}
	one := t.Channel.Op != expr.OpVar
	if !one && t.First.Hi+int64(t.Width) > t.Channel.Hi+1 {
		l.ragged, l.inside = t.Channel, inside
	}
	of := make([]*expr.Expr, len(at))
	for i, x := range at {
		of[i] = l.Value(x.Of, x.Index)
	}
	l.ragged = nil
	values = make([][]*expr.Expr, len(at))
	for i := range t.Width {
		accs = append(accs, b.Var(fmt.Sprintf("acc%d", i), expr.F32, 0, 0, 1))
		c := b.Offset(t.First, int64(i))
		with := map[*expr.Expr]*expr.Expr{acc: accs[i], inside: b.Lt(c, b.ConstInt(c.Type, t.Channel.Hi+1))}
		if !one {
			with[t.Channel] = c
		}
		memo := map[*expr.Expr]*expr.Expr{}
		for k, e := range of {
			values[k] = append(values[k], b.Subst(e, with, memo))
		}
	}
	return values, accs, nil
}
