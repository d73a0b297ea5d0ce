package expr

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Int returns the S32 constant.
func (b *Builder) Int(i int) *Expr { return b.ConstInt(S32, int64(i)) }

// ConstInt returns an integer (wrapped to the type) or Pred constant.
func (b *Builder) ConstInt(t Type, i int64) *Expr {
	if t == Pred && i != 0 {
		i = 1
	}
	return b.intern(Expr{Op: OpConst, Type: t, I: wrap(t, i)})
}

func wrap(t Type, i int64) int64 {
	if t == S32 {
		return int64(int32(i))
	}
	return i
}

func typeRange(t Type) (lo, hi int64) {
	switch t {
	case Pred:
		return 0, 1
	case S32:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}

// sum is an affine form under construction.
type sum struct {
	t     Type
	terms []term
	k     int64
}

type term struct {
	atom *Expr
	c    int64
}

func (s *sum) addExpr(e *Expr, c int64) {
	switch e.Op {
	case OpConst:
		s.k += c * e.I
	case OpAffine:
		for i, a := range e.Args {
			s.add(a, c*e.Coef[i])
		}
		s.k += c * e.I
	default:
		s.add(e, c)
	}
}

func (s *sum) add(atom *Expr, c int64) {
	for i := range s.terms {
		if s.terms[i].atom == atom {
			s.terms[i].c = wrap(s.t, s.terms[i].c+c)
			return
		}
	}
	s.terms = append(s.terms, term{atom, wrap(s.t, c)})
}

func (s *sum) coef(atom *Expr) int64 {
	for _, t := range s.terms {
		if t.atom == atom {
			return t.c
		}
	}
	return 0
}

// rejoin replaces k·c·(x/c) + k·(x%c) by k·x.
func (b *Builder) rejoin(s *sum) {
	for again := true; again; {
		again = false
		for _, m := range s.terms {
			if m.c == 0 || m.atom.Op != OpFloorMod {
				continue
			}
			x, c := m.atom.Args[0], m.atom.I
			div := sum{t: s.t}
			div.addExpr(b.FloorDiv(x, c), 1)
			ok := len(div.terms) > 0
			for _, d := range div.terms {
				ok = ok && s.coef(d.atom) == m.c*c*d.c
			}
			if !ok {
				continue
			}
			for _, d := range div.terms {
				s.add(d.atom, -m.c*c*d.c)
			}
			s.k -= m.c * c * div.k
			s.add(m.atom, -m.c)
			s.addExpr(x, m.c)
			again = true
			break
		}
	}
}

func (b *Builder) affine(s sum) *Expr {
	b.rejoin(&s)
	s.k = wrap(s.t, s.k)
	terms := make([]term, 0, len(s.terms))
	for _, t := range s.terms {
		if t.c != 0 {
			terms = append(terms, t)
		}
	}
	if len(terms) == 0 {
		return b.ConstInt(s.t, s.k)
	}
	if len(terms) == 1 && terms[0].c == 1 && s.k == 0 {
		return terms[0].atom
	}
	slices.SortFunc(terms, func(x, y term) int { return x.atom.id - y.atom.id })
	e := Expr{Op: OpAffine, Type: s.t, I: s.k, Args: make([]*Expr, len(terms)), Coef: make([]int64, len(terms))}
	for i, t := range terms {
		e.Args[i], e.Coef[i] = t.atom, t.c
	}
	return b.intern(e)
}

// Scale is e·c for an integer constant.
func (b *Builder) Scale(e *Expr, c int64) *Expr {
	s := sum{t: e.Type}
	s.addExpr(e, c)
	return b.affine(s)
}

// Offset is e+c for an integer constant.
func (b *Builder) Offset(e *Expr, c int64) *Expr {
	s := sum{t: e.Type, k: c}
	s.addExpr(e, 1)
	return b.affine(s)
}

func (b *Builder) addInts(x, y *Expr, c int64) *Expr {
	s := sum{t: x.Type}
	s.addExpr(x, 1)
	s.addExpr(y, c)
	return b.affine(s)
}

// Linear is the row-major offset Σ idx[i]·stride[i] of an index into a dense shape, in S32, or in S64 where the
// number of elements does not fit.
func (b *Builder) Linear(idx []*Expr, shape []int) *Expr {
	n := int64(1)
	for _, d := range shape {
		n *= int64(max(d, 1))
	}
	s := sum{t: S32}
	if n > math.MaxInt32 {
		s.t = S64
	}
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		s.addExpr(b.Cast(idx[i], s.t), stride)
		stride *= int64(shape[i])
	}
	return b.affine(s)
}

// Unravel is the inverse of Linear: the index into shape of element e.
func (b *Builder) Unravel(e *Expr, shape []int) []*Expr {
	out := make([]*Expr, len(shape))
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		d := int64(max(shape[i], 1))
		q := b.FloorDiv(e, stride)
		if i > 0 {
			q = b.FloorMod(q, d)
		}
		out[i] = q
		if q.Type == S64 && q.Lo >= math.MinInt32 && q.Hi <= math.MaxInt32 {
			out[i] = b.Cast(q, S32)
		}
		stride *= d
	}
	return out
}

func gcd(a, c int64) int64 {
	a, c = max(a, -a), max(c, -c)
	for c != 0 {
		a, c = c, a%c
	}
	return a
}

func floorDiv(a, c int64) int64 {
	q := a / c
	if a%c != 0 && (a < 0) != (c < 0) {
		q--
	}
	return q
}

func floorMod(a, c int64) int64 { return a - c*floorDiv(a, c) }

// wraps reports whether an integer node may have wrapped around, so that it must not be split into the terms of a
// sum.
func (e *Expr) wraps() bool {
	if e.Op != OpAffine {
		return false
	}
	_, _, ok := affineRange(e)
	return !ok
}

func affineRange(e *Expr) (lo, hi int64, ok bool) {
	lo, hi = e.I, e.I
	for i, a := range e.Args {
		c := e.Coef[i]
		x, ok1 := mulOK(a.Lo, c)
		y, ok2 := mulOK(a.Hi, c)
		if x > y {
			x, y = y, x
		}
		var ok3, ok4 bool
		lo, ok3 = addOK(lo, x)
		hi, ok4 = addOK(hi, y)
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return 0, 0, false
		}
	}
	tl, th := typeRange(e.Type)
	return lo, hi, lo >= tl && hi <= th
}

func addOK(a, c int64) (int64, bool) {
	s := a + c
	return s, (s > a) == (c > 0)
}

func mulOK(a, c int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(c, -c)))
	return a * c, hi == 0 && lo <= math.MaxInt64
}

// split finds, for division by c, the decomposition e = c·whole + g·rest + small with 0 ≤ small < g and g | c, g as
// large as possible. It fails if nothing can be taken out.
func (b *Builder) split(e *Expr, c int64) (whole, rest, small *Expr, g int64, ok bool) {
	if e.wraps() {
		return nil, nil, nil, 0, false
	}
	all := sum{t: e.Type}
	all.addExpr(e, 1)
	w, r := all.divide(c)
	for _, g := range splitCandidates(r, c) {
		hi, lo := r.divide(g)
		s := b.affine(lo)
		if s.Lo < 0 || s.Hi >= g {
			continue
		}
		h := b.affine(hi)
		return b.affine(w), h, s, g, true
	}
	if len(w.terms) == 0 && w.k == 0 {
		return nil, nil, nil, 0, false
	}
	return b.affine(w), b.affine(r), b.Zero(e.Type), 1, true
}

// divide splits a sum into c·q + r: q has the terms that c divides.
func (s *sum) divide(c int64) (q, r sum) {
	q, r = sum{t: s.t, k: floorDiv(s.k, c)}, sum{t: s.t, k: floorMod(s.k, c)}
	for _, t := range s.terms {
		if t.c%c == 0 {
			q.add(t.atom, t.c/c)
		} else {
			r.add(t.atom, t.c)
		}
	}
	return q, r
}

// splitCandidates lists divisors g > 1 of c, largest first, that divide some coefficient or c itself.
func splitCandidates(r sum, c int64) []int64 {
	set := []int64{c}
	for _, t := range r.terms {
		if g := gcd(t.c, c); g > 1 && !slices.Contains(set, g) {
			set = append(set, g)
		}
	}
	slices.SortFunc(set, func(x, y int64) int { return cmp.Compare(y, x) })
	return set
}

// Zero is the zero of a type.
func (b *Builder) Zero(t Type) *Expr { return b.Number(t, 0) }

// FloorDiv is ⌊e/c⌋ for a positive constant.
func (b *Builder) FloorDiv(e *Expr, c int64) *Expr {
	if q := b.knownDiv(e, c); q != nil {
		return q
	}
	if whole, rest, _, g, ok := b.split(e, c); ok {
		return b.addInts(whole, b.rawDiv(rest, c/g), 1)
	}
	return b.rawDiv(e, c)
}

// rawDiv divides what split has left over; it may simplify once more where the operand shrank to an atom.
func (b *Builder) rawDiv(e *Expr, c int64) *Expr {
	if q := b.knownDiv(e, c); q != nil {
		return q
	}
	return b.intern(Expr{Op: OpFloorDiv, Type: e.Type, I: c, Args: []*Expr{e}})
}

// knownDiv is ⌊e/c⌋ where the divisor, e's range or its last operation says it; nil elsewhere.
func (b *Builder) knownDiv(e *Expr, c int64) *Expr {
	switch {
	case c == 1:
		return e
	case floorDiv(e.Lo, c) == floorDiv(e.Hi, c):
		return b.ConstInt(e.Type, floorDiv(e.Lo, c))
	case e.Op == OpFloorDiv && e.I <= math.MaxInt32/c:
		return b.FloorDiv(e.Args[0], e.I*c)
	case e.Op == OpFloorMod && e.I%c == 0:
		return b.FloorMod(b.FloorDiv(e.Args[0], c), e.I/c)
	}
	return nil
}

// FloorMod is e - c·⌊e/c⌋ for a positive constant.
func (b *Builder) FloorMod(e *Expr, c int64) *Expr {
	switch {
	case c == 1:
		return b.ConstInt(e.Type, 0)
	case e.Lo >= 0 && e.Hi < c:
		return e
	case e.Op == OpFloorMod && e.I%c == 0:
		return b.FloorMod(e.Args[0], c)
	case !e.wraps() && floorDiv(e.Lo, c) == floorDiv(e.Hi, c):
		return b.Offset(e, -c*floorDiv(e.Lo, c))
	}
	if _, rest, small, g, ok := b.split(e, c); ok {
		m := rest
		switch n := c / g; {
		case n == 1:
			return small
		case rest.Op == OpConst:
			m = b.ConstInt(e.Type, floorMod(rest.I, n))
		case rest.Lo >= 0 && rest.Hi < n:
		case rest.Op == OpFloorMod && rest.I%n == 0:
			m = b.FloorMod(rest.Args[0], n)
		default:
			m = b.intern(Expr{Op: OpFloorMod, Type: e.Type, I: n, Args: []*Expr{rest}})
		}
		s := sum{t: e.Type}
		s.addExpr(m, g)
		s.addExpr(small, 1)
		return b.affine(s)
	}
	return b.intern(Expr{Op: OpFloorMod, Type: e.Type, I: c, Args: []*Expr{e}})
}
