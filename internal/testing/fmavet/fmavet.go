// Package fmavet reports float products that the compiler may fuse with an addition. Go allows x*y + z to be computed as
// one fused multiply-add, which rounds once where two operations round twice, and does so on arm64 and with GOAMD64=v3. Only
// an explicit conversion forbids it: float64(x*y) + z (Go specification, "Floating-point operators"). Code whose numbers
// reach a file needs it in every sum, or its files depend on the machine that wrote them.
//
// Assignments, returns and calls that are inlined do not round, so products are followed through local variables, results and
// parameters, the last two across packages. What goes through memory (maps, pointers that are passed on) is not; for that the
// package's test looks at the compiler's output.
//
// It also reports functions of package math that are not exact: they are assembly on some machines, and where they
// are Go they are compiled with fused multiply-adds. A call whose arguments make it exact is marked on its line:
// "// fmavet: exact".
//
// Tests are not looked at: their numbers reach no file.
package fmavet

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// Analyzer reports additions and subtractions with an operand that is a product not rounded by a conversion.
var Analyzer = &analysis.Analyzer{
	Name:      "fmavet",
	Doc:       "report float products that the compiler may fuse with an addition, and functions that differ between machines",
	URL:       "https://go.dev/ref/spec#Floating_point_operators",
	Run:       run,
	FactTypes: []analysis.Fact{new(flow)},
}

// flow says which results of a function may be unrounded products, and which parameters it adds to something.
type flow struct{ Products, Added []int }

func (*flow) AFact() {}

func (f *flow) String() string {
	return fmt.Sprintf("products in results %v, adds to parameters %v", f.Products, f.Added)
}

// scan is the analysis of one package.
type scan struct {
	*analysis.Pass
	flows map[*types.Func]*flow
	grew  bool // flows did in this round

	// Of the declaration that is looked at:
	products map[types.Object]bool         // variables and fields that are assigned products, and closures that return them
	texts    map[string]bool               // elements that are assigned products, as text: a[i]
	closures map[types.Object]*ast.FuncLit // by the variable that holds one
}

// reporter takes an operand of an addition that may be an unrounded product.
type reporter func(at ast.Expr, what string)

func run(pass *analysis.Pass) (any, error) {
	s := &scan{Pass: pass, flows: map[*types.Func]*flow{}}
	var decls []ast.Decl
	for _, f := range pass.Files {
		if strings.HasSuffix(pass.Fset.File(f.Pos()).Name(), "_test.go") {
			continue
		}
		s.inexact(f)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				s.flows[pass.TypesInfo.Defs[f.Name].(*types.Func)] = &flow{}
			}
			decls = append(decls, d)
		}
	}
	for s.grew = true; s.grew; { // functions call each other
		s.grew = false
		for _, d := range decls {
			s.declaration(d, func(ast.Expr, string) {})
		}
	}
	for _, d := range decls {
		s.declaration(d, func(at ast.Expr, what string) {
			pass.Report(analysis.Diagnostic{Pos: at.Pos(), End: at.End(), Message: what + ": round it first, by a conversion such as float64(x*y)"})
		})
	}
	for f, w := range s.flows {
		if len(w.Products)+len(w.Added) > 0 {
			pass.ExportObjectFact(f, w)
		}
	}
	return nil, nil
}

// exact are functions of package math whose result is the same on every machine: exact, or rounded once.
var exact = strings.Fields("Abs Ceil Copysign Dim FMA Float32bits Float32frombits Float64bits Float64frombits Floor Frexp Ilogb Inf IsInf IsNaN Ldexp Logb Max Min Mod Modf NaN Nextafter Nextafter32 Remainder Round RoundToEven Signbit Sqrt Trunc")

// inexact reports uses of other functions of package math, but where a comment says that the result is exact.
func (s *scan) inexact(f *ast.File) {
	line := func(at token.Pos) int { return s.Fset.Position(at).Line }
	excused := map[int]bool{}
	for _, group := range f.Comments {
		if strings.HasPrefix(group.Text(), "fmavet: exact") {
			excused[line(group.Pos())] = true
		}
	}
	for n := range ast.Preorder(f) {
		e, ok := n.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		fn, ok := s.TypesInfo.Uses[e.Sel].(*types.Func)
		if ok && fn.Pkg() != nil && fn.Pkg().Path() == "math" && !slices.Contains(exact, fn.Name()) && !excused[line(e.Pos())] {
			s.Reportf(e.Pos(), "math.%s is not the same on every machine: use a portable function, such as package ir's", fn.Name())
		}
	}
}

// declaration goes through a function, or variables, until no more of its variables turn out to hold products.
func (s *scan) declaration(d ast.Decl, report reporter) {
	s.products, s.texts, s.closures = map[types.Object]bool{}, map[string]bool{}, map[types.Object]*ast.FuncLit{}
	for known := -1; known != len(s.products)+len(s.texts); {
		known = len(s.products) + len(s.texts)
		s.visit(d, func(ast.Expr, string) {})
	}
	s.visit(d, report)
}

// visit goes once through a declaration: which variables hold products, what is returned, what is added.
func (s *scan) visit(d ast.Decl, report reporter) {
	f, params := &flow{}, map[types.Object]int{}
	if d, ok := d.(*ast.FuncDecl); ok {
		object := s.TypesInfo.Defs[d.Name].(*types.Func)
		f = s.flows[object]
		signature := object.Signature()
		for i := range signature.Params().Len() {
			params[signature.Params().At(i)] = i
		}
		for i := range signature.Results().Len() { // named ones
			if s.products[signature.Results().At(i)] {
				s.learn(&f.Products, i)
			}
		}
	}
	add := func(e ast.Expr) {
		if s.product(e) {
			report(e, "this product may be fused with an addition")
		}
		if id, ok := ast.Unparen(e).(*ast.Ident); ok && s.float(e) {
			if i, ok := params[s.TypesInfo.Uses[id]]; ok {
				s.learn(&f.Added, i)
			}
		}
	}
	ast.PreorderStack(d, nil, func(n ast.Node, ancestors []ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.ADD || n.Op == token.SUB) && s.float(n) {
				add(n.X)
				add(n.Y)
			}
			if n.Op == token.MUL && s.float(n) { // the compiler makes x+x of x*2
				if s.two(n.X) {
					add(n.Y)
				} else if s.two(n.Y) {
					add(n.X)
				}
			}
		case *ast.AssignStmt:
			s.assign(n, add)
		case *ast.ValueSpec:
			for i, v := range n.Values {
				if len(n.Names) == len(n.Values) {
					s.hold(n.Names[i], v)
				}
			}
		case *ast.CompositeLit:
			s.literal(n)
		case *ast.CallExpr:
			s.enter(n)
			if callee := s.flow(n); callee != nil { // it hands a parameter on to an addition
				for _, i := range callee.Added {
					if i < len(n.Args) {
						add(n.Args[i])
					}
				}
			}
		case *ast.ReturnStmt:
			closure, inside := s.closure(ancestors)
			for i, r := range n.Results {
				switch {
				case !s.product(r):
				case !inside:
					s.learn(&f.Products, i)
				default:
					s.mark(closure)
				}
			}
		}
		return true
	})
}

// closure is the variable that the innermost function literal around a node is assigned to, if there is one.
func (s *scan) closure(ancestors []ast.Node) (v types.Object, inside bool) {
	for i := len(ancestors) - 1; i > 0; i-- {
		if lit, ok := ancestors[i].(*ast.FuncLit); ok {
			if a, ok := ancestors[i-1].(*ast.AssignStmt); ok && len(a.Lhs) == 1 && a.Rhs[0] == lit {
				v = s.object(a.Lhs[0])
			}
			return v, true
		}
	}
	return nil, false
}

func (s *scan) assign(n *ast.AssignStmt, add func(ast.Expr)) {
	switch n.Tok {
	case token.ADD_ASSIGN, token.SUB_ASSIGN:
		if s.float(n.Lhs[0]) {
			add(n.Lhs[0])
			add(n.Rhs[0])
		}
	case token.MUL_ASSIGN:
		if s.float(n.Lhs[0]) {
			s.holds(n.Lhs[0])
		}
	case token.ASSIGN, token.DEFINE:
		if len(n.Lhs) == len(n.Rhs) {
			for i, to := range n.Lhs {
				if lit, ok := n.Rhs[i].(*ast.FuncLit); ok && s.object(to) != nil {
					s.closures[s.object(to)] = lit
				}
				s.hold(to, n.Rhs[i])
			}
			return
		}
		if call, ok := n.Rhs[0].(*ast.CallExpr); ok {
			for i, to := range n.Lhs {
				if s.yields(call, i) {
					s.holds(to)
				}
			}
		}
	}
}

// literal notes the fields of a struct that are given products.
func (s *scan) literal(n *ast.CompositeLit) {
	t, ok := s.TypesInfo.TypeOf(n).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if s.product(kv.Value) {
				s.mark(s.TypesInfo.Uses[kv.Key.(*ast.Ident)])
			}
		} else if s.product(e) {
			s.mark(t.Field(i))
		}
	}
}

// enter follows products into a closure that is called.
func (s *scan) enter(n *ast.CallExpr) {
	id, ok := ast.Unparen(n.Fun).(*ast.Ident)
	if !ok || s.closures[s.TypesInfo.Uses[id]] == nil {
		return
	}
	i := 0
	for _, field := range s.closures[s.TypesInfo.Uses[id]].Type.Params.List {
		for _, name := range field.Names {
			if i < len(n.Args) {
				s.hold(name, n.Args[i])
			}
			i++
		}
	}
}

// flow is what is known of the function that is called, or nil.
func (s *scan) flow(n *ast.CallExpr) *flow {
	f := typeutil.StaticCallee(s.TypesInfo, n)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() == "math" { // math's are exact, or not inlined
		return nil
	}
	f = f.Origin()
	if known := s.flows[f]; known != nil {
		return known
	}
	var imported flow
	if s.ImportObjectFact(f, &imported) {
		return &imported
	}
	return nil
}

// yields reports whether a result of a call may be a product.
func (s *scan) yields(n *ast.CallExpr, result int) bool {
	if f := s.flow(n); f != nil {
		return slices.Contains(f.Products, result)
	}
	if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok {
		return s.products[s.TypesInfo.Uses[id]]
	}
	return false
}

// product reports whether the value of an expression may be a product that was not rounded.
func (s *scan) product(e ast.Expr) bool {
	if !s.float(e) {
		return false
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.product(e.X)
	case *ast.UnaryExpr:
		return s.product(e.X)
	case *ast.BinaryExpr:
		return e.Op == token.MUL || e.Op == token.QUO && s.powerOfTwo(e.Y)
	case *ast.CallExpr:
		return s.yields(e, 0)
	case *ast.Ident:
		return s.products[s.TypesInfo.Uses[e]]
	case *ast.SelectorExpr:
		return s.products[s.TypesInfo.Uses[e.Sel]]
	case *ast.IndexExpr:
		return s.texts[types.ExprString(e)]
	case *ast.StarExpr:
		return s.texts[types.ExprString(e)]
	}
	return false
}

// two reports whether an expression is the constant 2.
func (s *scan) two(e ast.Expr) bool {
	v := s.TypesInfo.Types[e].Value
	return v != nil && constant.Compare(v, token.EQL, constant.MakeInt64(2))
}

// powerOfTwo reports whether an expression is a constant by which the compiler divides by multiplying.
func (s *scan) powerOfTwo(e ast.Expr) bool {
	v := s.TypesInfo.Types[e].Value
	if v == nil {
		return false
	}
	x, _ := constant.Float64Val(constant.ToFloat(v))
	m, _ := math.Frexp(math.Abs(x))
	return m == 0.5
}

// float reports whether an expression is a floating-point number that is computed when the program runs.
func (s *scan) float(e ast.Expr) bool {
	tv := s.TypesInfo.Types[e]
	t := tv.Type
	if id, ok := e.(*ast.Ident); ok && t == nil {
		if o := s.TypesInfo.ObjectOf(id); o != nil {
			t = o.Type()
		}
	}
	if t == nil || tv.Value != nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}

// hold notes that a variable, field or element is assigned a product, if it is one.
func (s *scan) hold(to, e ast.Expr) {
	if s.product(e) {
		s.holds(to)
	}
}

func (s *scan) holds(to ast.Expr) {
	switch to := ast.Unparen(to).(type) {
	case *ast.IndexExpr, *ast.StarExpr:
		s.texts[types.ExprString(to)] = true
	default:
		s.mark(s.object(to))
	}
}

// object is the variable or field that an expression names.
func (s *scan) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return s.TypesInfo.ObjectOf(e)
	case *ast.SelectorExpr:
		return s.TypesInfo.Uses[e.Sel]
	}
	return nil
}

func (s *scan) mark(o types.Object) {
	if o != nil && o.Name() != "_" {
		s.products[o] = true
	}
}

func (s *scan) learn(list *[]int, i int) {
	if !slices.Contains(*list, i) {
		*list, s.grew = append(*list, i), true
	}
}
