package expr

import "maps"

// Sectors is the number of 32-byte sectors that a warp asks for when each lane reads or writes bytes from an element
// index on (elements of size bytes). Lanes differ by the variables that differ sets, in a map that it is given empty;
// all others are 0.
func Sectors(b *Builder, index *Expr, bytes, size int, differ func(lane int, with map[*Expr]*Expr)) float64 {
	seen := map[int64]bool{}
	line, with := straightLine(index), map[*Expr]*Expr{}
	var all map[*Expr]*Expr
	for lane := range 32 {
		clear(with)
		differ(lane, with)
		at, ok := line.at(with)
		if !ok {
			if all == nil {
				all = zeros(b, index)
			}
			if at, ok = constantAt(b, index, all, with); !ok { // a gather
				seen[int64(-lane)] = true
				continue
			}
		}
		for first := at * int64(size); first/32 <= (at*int64(size)+int64(bytes)-1)/32; first += 32 {
			seen[first/32] = true
		}
	}
	return float64(len(seen))
}

// zeros replaces all variables of an index by 0.
func zeros(b *Builder, index *Expr) map[*Expr]*Expr {
	all := map[*Expr]*Expr{}
	Walk([]*Expr{index}, func(e *Expr) {
		if e.Op == OpVar {
			all[e] = b.Int(0)
		}
	})
	return all
}

// constantAt is the value of an index where variables are replaced, with the same ones each time that all is used; ok
// is false if that is no constant.
func constantAt(b *Builder, index *Expr, all, with map[*Expr]*Expr) (at int64, ok bool) {
	maps.Copy(all, with)
	e := b.Subst(index, all, nil)
	return e.I, e.Op == OpConst
}

// straight computes an expression of integers alone, without making nodes of what it comes to.
type straight struct {
	steps  []step // arguments first
	values []int64
}

type step struct {
	*Expr
	args []int // steps
}

// straightLine is nil for an expression that is not of integers alone, or that reads memory.
func straightLine(e *Expr) *straight {
	s, known := &straight{}, map[*Expr]int{}
	var add func(e *Expr) bool
	add = func(e *Expr) bool {
		if _, ok := known[e]; ok {
			return true
		}
		if e.Type.IsFloat() || e.Op == OpLoad || e.Op == OpReduce {
			return false
		}
		to := step{Expr: e, args: make([]int, len(e.Args))}
		for i, a := range e.Args {
			if !add(a) {
				return false
			}
			to.args[i] = known[a]
		}
		known[e] = len(s.steps)
		s.steps = append(s.steps, to)
		return true
	}
	if !add(e) {
		return nil
	}
	s.values = make([]int64, len(s.steps))
	return s
}

// at is the value where variables are replaced by constants, and all others are 0; ok is false where it cannot tell.
func (s *straight) at(with map[*Expr]*Expr) (value int64, ok bool) {
	if s == nil {
		return 0, false
	}
	for v := range with {
		if v.Op != OpVar {
			return 0, false
		}
	}
	var args [3]val
	for i, e := range s.steps {
		var v int64
		switch e.Op {
		case OpConst:
			v = e.I
		case OpVar:
			if c := with[e.Expr]; c != nil {
				v = c.I
			}
		case OpAffine:
			v = e.I
			for k, a := range e.args {
				v += e.Coef[k] * s.values[a]
			}
		case OpFloorDiv:
			v = floorDiv(s.values[e.args[0]], e.I)
		case OpFloorMod:
			v = floorMod(s.values[e.args[0]], e.I)
		default:
			for k, a := range e.args {
				args[k] = val{i: s.values[a]}
			}
			r, ok := compute(e.Op, e.Type, e.Args[0].Type, args[:len(e.args)])
			if !ok {
				return 0, false
			}
			v = r.i
		}
		s.values[i] = wrap(e.Type, v)
	}
	return s.values[len(s.values)-1], true
}
