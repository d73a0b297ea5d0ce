package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

func scalar(b *expr.Builder, n *ir.Node, a []*expr.Expr) (*expr.Expr, error) {
	switch n.Op.Name {
	case "Add":
		return b.Add(a[0], a[1]), nil
	case "Mul":
		return b.Mul(a[0], a[1]), nil
	case "Relu":
		return b.Max(a[0], b.F32(0)), nil
	case "Sigmoid":
		return b.Sigmoid(a[0]), nil
	case "Gelu":
		s := n.Attrs.Float("sqrt2", 1.4142135623730951)
		return b.Mul(b.Mul(b.F32(0.5), a[0]), b.Add(b.F32(1), b.Erf(b.Mul(a[0], b.F32(1/s))))), nil
	case "Cast":
		if n.Attrs.DType("to") == ir.Float16 {
			return b.RoundF16(a[0]), nil
		}
		return a[0], nil
	}
	return nil, fmt.Errorf("no scalar form")
}
