package lower

import "github.com/spark-compile/spark-compile/codegen/expr"

// Under evaluates f where p holds and is els elsewhere, for families that index a value themselves: loads of f are
// predicated where they might leave their tensor.
func (l *Lowering) Under(p, els *expr.Expr, f func() *expr.Expr) *expr.Expr {
	return l.under(p, els, f)
}
