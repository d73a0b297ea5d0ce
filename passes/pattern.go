package passes

import (
	"maps"

	"github.com/spark-compile/spark-compile/ir"
)

// pattern matches a value by the nodes that compute it, and binds what it names.
type pattern func(b *bindings, v *ir.Value) bool

// bindings are what a pattern has named so far.
type bindings struct {
	values  map[string]*ir.Value
	numbers map[string]float64
	axes    map[string]int
}

// match reports what p binds in v; nil if it does not match.
func match(p pattern, v *ir.Value) *bindings {
	b := &bindings{map[string]*ir.Value{}, map[string]float64{}, map[string]int{}}
	if !p(b, v) {
		return nil
	}
	return b
}

// try runs match and, if it fails, forgets what it has bound.
func (b *bindings) try(match func() bool) bool {
	saved := bindings{maps.Clone(b.values), maps.Clone(b.numbers), maps.Clone(b.axes)}
	if match() {
		return true
	}
	*b = saved
	return false
}

// op matches the output of a node of the op with such operands; those of commutative ops in either order.
func op(name string, args ...pattern) pattern {
	return func(b *bindings, v *ir.Value) bool {
		n := defOp(v, name)
		if n == nil || len(n.Inputs) != len(args) {
			return false
		}
		inOrder := func(order ...int) func() bool {
			return func() bool {
				for i, arg := range args {
					if !arg(b, n.Inputs[order[i]]) {
						return false
					}
				}
				return true
			}
		}
		return b.try(inOrder(0, 1)) || n.Op.Commutative && b.try(inOrder(1, 0))
	}
}

// bind matches any value, the same one wherever the name is used.
func bind(name string) pattern {
	return func(b *bindings, v *ir.Value) bool {
		if w := b.values[name]; w != nil {
			return w == v
		}
		b.values[name] = v
		return true
	}
}

// as matches p and binds the value to a name.
func as(name string, p pattern) pattern {
	return func(b *bindings, v *ir.Value) bool { return p(b, v) && bind(name)(b, v) }
}

// number matches a constant with this number in every element.
func number(c float64) pattern {
	return func(_ *bindings, v *ir.Value) bool {
		x, ok := scalarOf(v)
		return ok && x == c
	}
}

// anyNumber matches a constant with one number in every element.
func anyNumber(name string) pattern {
	return func(b *bindings, v *ir.Value) (ok bool) {
		b.numbers[name], ok = scalarOf(v)
		return ok
	}
}

// either tries patterns in order and takes the first that matches.
func either(ps ...pattern) pattern {
	return func(b *bindings, v *ir.Value) bool {
		for _, p := range ps {
			if b.try(func() bool { return p(b, v) }) {
				return true
			}
		}
		return false
	}
}

// reduced matches a reduction whose axes axisOf accepts; wherever the axis has the same name it must be the same.
func reduced(name, axis string, axisOf func(n *ir.Node) (int, bool), of pattern) pattern {
	return func(b *bindings, v *ir.Value) bool {
		if !op(name, of)(b, v) {
			return false
		}
		a, ok := axisOf(v.Def)
		if old, bound := b.axes[axis]; !ok || bound && old != a {
			return false
		}
		b.axes[axis] = a
		return true
	}
}
