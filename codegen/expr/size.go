package expr

// Walk visits each node of the expressions once, an expression before its arguments.
func Walk(es []*Expr, visit func(*Expr)) {
	seen := map[*Expr]bool{}
	var walk func(e *Expr)
	walk = func(e *Expr) {
		if !seen[e] {
			seen[e] = true
			visit(e)
			for _, a := range e.Args {
				walk(a)
			}
		}
	}
	for _, e := range es {
		walk(e)
	}
}

// Size estimates the instructions of a thread that evaluate expressions, by pipe. Loads and reductions are not counted.
type Size struct {
	Float, Integer, Special float64
}

// SizeOf counts each node once.
func SizeOf(es []*Expr) (s Size) {
	Walk(es, func(e *Expr) {
		switch e.Op {
		case OpConst, OpVar, OpLoad, OpReduce:
		case OpEx2:
			s.Special++
		case OpRoundF16, OpRoundBF16, OpRoundE4M3:
			s.Integer += 2
		case OpSelect, OpCast:
			s.Integer++
		default:
			if e.Type.IsFloat() {
				s.Float++
				return
			}
			s.Integer++
		}
	})
	return s
}
