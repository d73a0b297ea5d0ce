package onnx

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// formula is an elementwise computation as a Go expression: x, y, z, u, v and w are its operands, other names float
// attributes of the operator, calls and operators the ops of these names (log1p(x), x < y).
type formula struct {
	expr     ast.Expr
	defaults map[string]float64 // of the attributes; the file format has them in f32
}

// parseFormula panics on a mistake in the import table.
func parseFormula(text string, defaults map[string]float64) formula {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		panic(fmt.Sprintf("formula %q: %v", text, err))
	}
	return formula{expr, defaults}
}

// elementwise converts an operator that is a formula of its inputs. It computes in the wide type, integers in
// floating point if attributes, which are floats, take part, and rounds to the type of x once, at the end.
func elementwise(text string, defaults map[string]float64) func(*site) {
	f := parseFormula(text, defaults)
	return func(s *site) {
		x := s.in(0)
		operands := s.all()
		for i, v := range operands {
			operands[i] = s.wide(v)
			if defaults != nil {
				operands[i] = s.inFloat(v)
			}
		}
		y := f.on(s, operands...)
		if !slices.Equal(y.Type.Shape, x.Type.Shape) {
			s.fail("the other inputs do not broadcast to %v", x.Type)
		}
		s.out(0, s.cast(y, x.Type.DType))
	}
}

// eval adds the ops of a formula without attributes.
func (s *site) eval(text string, operands ...*ir.Value) *ir.Value {
	return parseFormula(text, nil).on(s, operands...)
}

// on adds the formula's ops for the operands x, y, z, u, v and w; numbers have the type of x.
func (f formula) on(s *site, operands ...*ir.Value) *ir.Value {
	var value func(e ast.Expr) *ir.Value
	value = func(e ast.Expr) *ir.Value {
		switch e := e.(type) {
		case *ast.ParenExpr:
			return value(e.X)
		case *ast.BasicLit:
			number, _ := strconv.ParseFloat(e.Value, 64)
			return s.like(operands[0], number)
		case *ast.UnaryExpr:
			return s.op("Neg", value(e.X))
		case *ast.BinaryExpr:
			return s.op(formulaOps[e.Op], value(e.X), value(e.Y))
		case *ast.CallExpr:
			var args []*ir.Value
			for _, a := range e.Args {
				args = append(args, value(a))
			}
			name := e.Fun.(*ast.Ident).Name
			return s.op(strings.ToUpper(name[:1])+name[1:], args...)
		}
		name := e.(*ast.Ident).Name
		if i := strings.Index("xyzuvw", name); i >= 0 {
			if i >= len(operands) {
				s.fail("input %d is missing", i)
			}
			return operands[i]
		}
		return s.like(operands[0], s.float(name, float64(float32(f.defaults[name]))))
	}
	return value(f.expr)
}

var formulaOps = map[token.Token]string{token.ADD: "Add", token.SUB: "Sub", token.MUL: "Mul", token.QUO: "Div", token.EQL: "Equal",
	token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual", token.LAND: "And", token.LOR: "Or"}
