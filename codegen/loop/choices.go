package loop

import (
	"fmt"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/expr"
)

// Key implements kernel.Kernel: the target, the output, expressions node by node, and what is known of operands.
func (p *problem) Key() string {
	var k strings.Builder
	fmt.Fprintln(&k, p.ctx.Target.Name, p.shape, p.outputs, ids(p.index), p.l.Member != nil)
	if p.blocks != nil {
		fmt.Fprintln(&k, p.blocks.Attrs)
	}
	var values []*expr.Expr
	for _, o := range p.outs {
		values = append(values, o.value)
		fmt.Fprint(&k, o.value.ID(), o.dtype, o.sub, " ")
		if o.linear != nil {
			values = append(values, o.linear)
			fmt.Fprint(&k, o.linear.ID())
		}
		fmt.Fprintln(&k)
	}
	expr.Walk(append(values, p.index...), func(e *expr.Expr) {
		fmt.Fprintln(&k, e.ID(), e.Op, e.Type, ids(e.Args), e.I, math.Float64bits(e.F), e.Coef, ids(e.Vars), e.Red, e.DType, e.Name, e.Lo, e.Hi)
	})
	for _, o := range p.l.Operands {
		fmt.Fprint(&k, len(o.Const), o.Workspace, o.Counter, o.Number, o.Write, o.Read)
		if o.Value != nil {
			fmt.Fprint(&k, o.Value.Type, o.Value.IsConst())
			fmt.Fprint(&k, p.ctx.AlignOf(o.Value))
		}
		fmt.Fprintln(&k)
	}
	return k.String()
}

func ids(list []*expr.Expr) (out []int) {
	for _, e := range list {
		out = append(out, e.ID())
	}
	return out
}
