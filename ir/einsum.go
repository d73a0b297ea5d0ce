package ir

import (
	"fmt"
	"slices"
	"strings"
)

// einsum is a parsed equation: the letters of every operand and of the output, and each letter's size.
type einsum struct {
	in   []string
	out  string
	size map[byte]int
}

func parseEinsum(n *Node) (*einsum, error) {
	eq := n.Attrs.String("equation", "")
	left, out, ok := strings.Cut(eq, "->")
	if !ok {
		return nil, fmt.Errorf("equation %q has no ->", eq)
	}
	e := &einsum{in: strings.Split(left, ","), out: out, size: map[byte]int{}}
	if len(e.in) != len(n.Inputs) {
		return nil, fmt.Errorf("equation %q has %d operands, the node %d", eq, len(e.in), len(n.Inputs))
	}
	for i, term := range e.in {
		t := n.Inputs[i].Type
		if len(term) != t.Rank() {
			return nil, fmt.Errorf("equation %q: %q does not fit %v", eq, term, t)
		}
		for j := range len(term) {
			c, d := term[j], t.Shape[j]
			if c < 'A' || c > 'Z' && c < 'a' || c > 'z' {
				return nil, fmt.Errorf("equation %q: %q is not a letter", eq, c)
			}
			if have, ok := e.size[c]; ok && have != d && have != 1 && d != 1 {
				return nil, fmt.Errorf("equation %q: %c is both %d and %d", eq, c, have, d)
			}
			e.size[c] = broadcastSize(e.size, c, d)
		}
	}
	for j := range len(out) {
		if _, ok := e.size[out[j]]; !ok || strings.IndexByte(out, out[j]) != j {
			return nil, fmt.Errorf("equation %q: output letter %q is repeated or not in an operand", eq, out[j])
		}
	}
	return e, nil
}

func broadcastSize(size map[byte]int, c byte, d int) int {
	if have, ok := size[c]; ok && d == 1 {
		return have
	}
	return d
}

func inferEinsum(n *Node) ([]Type, error) {
	e, err := parseEinsum(n)
	if err != nil {
		return nil, err
	}
	shape := make([]int, len(e.out))
	for i := range shape {
		shape[i] = e.size[e.out[i]]
	}
	return one(n.Inputs[0].Type.DType, shape...)
}

// term is an operand of an Einsum, or a product of several, with the letters of its dimensions.
type term struct {
	v       *Value
	letters string
}

// expandEinsum multiplies the operands one after the other as matrices: letters that both and the result have are the
// batch, and those that only the two have are summed.
func expandEinsum(x *Expansion, n *Node) []*Value {
	e, err := parseEinsum(n)
	if err != nil {
		x.err = err
		return nil
	}
	terms := make([]term, len(e.in))
	for i, letters := range e.in {
		terms[i] = x.distinct(e, term{n.Inputs[i], letters})
	}
	product := terms[0]
	for i, t := range terms[1:] {
		kept := e.out // by the product
		for _, later := range terms[i+2:] {
			kept += filter(later.letters, func(c rune) bool { return !strings.ContainsRune(kept, c) })
		}
		product = x.multiplied(e, product, t, kept)
	}
	return []*Value{x.ordered(x.summed(product, e.out), e.out)}
}

// distinct drops dimensions that broadcast and takes the diagonal where a letter is repeated.
func (x *Expansion) distinct(e *einsum, t term) term {
	var shape []int
	letters := ""
	for i, c := range t.letters {
		if d := t.v.Type.Shape[i]; d == e.size[byte(c)] {
			shape, letters = append(shape, d), letters+string(c)
		}
	}
	t = term{x.shaped(t.v, shape...), letters}
	for i := 0; i < len(t.letters) && x.err == nil; i++ {
		c := t.letters[i]
		j := strings.LastIndexByte(t.letters, c)
		if j == i {
			continue
		}
		// As rows of d·d elements the diagonal is every (d+1)-th.
		d, perm := e.size[c], []int{}
		for k := range len(t.letters) {
			if k != i && k != j {
				perm = append(perm, k)
			}
		}
		t.letters = t.letters[:j] + t.letters[j+1:]
		perm = slices.Insert(perm, i, i, j)
		v := x.transposed(t.v, perm...)
		if x.err != nil {
			break
		}
		flat := slices.Replace(slices.Clone(v.Type.Shape), i, i+2, d*d)
		sizes, steps := slices.Clone(flat), slices.Repeat([]int{1}, len(flat))
		sizes[i], steps[i] = d, d+1
		t.v = x.Add("Slice", Attrs{"starts": make([]int, len(flat)), "sizes": sizes, "steps": steps}, x.Reshape(v, flat...))
		i-- // a letter may be there three times
	}
	return t
}

// multiplied is the product of two terms, with the letters that are kept.
func (x *Expansion) multiplied(e *einsum, a, b term, kept string) term {
	a, b = x.summed(a, b.letters+kept), x.summed(b, a.letters+kept)
	in := func(s string, want bool) func(c rune) bool {
		return func(c rune) bool { return strings.ContainsRune(s, c) == want }
	}
	batch := filter(filter(kept, in(a.letters, true)), in(b.letters, true))
	m, k := filter(filter(a.letters, in(kept, true)), in(b.letters, false)), filter(filter(a.letters, in(kept, false)), in(b.letters, true))
	c := filter(filter(b.letters, in(kept, true)), in(a.letters, false))
	sizes := func(letters string) []int {
		shape := []int{}
		for _, c := range letters {
			shape = append(shape, e.size[byte(c)])
		}
		return shape
	}
	matrices := func(v *Value, rows, cols string) *Value {
		return x.shaped(v, append(sizes(batch), T(Bool, sizes(rows)...).Numel(), T(Bool, sizes(cols)...).Numel())...)
	}
	left, right := x.ordered(a, batch+m+k), x.ordered(b, batch+k+c)
	y := x.Add("MatMul", nil, matrices(left, m, k), matrices(right, k, c))
	return term{x.shaped(y, sizes(batch+m+c)...), batch + m + c}
}

// summed sums over the letters that occur nowhere else.
func (x *Expansion) summed(t term, elsewhere string) term {
	var axes []int
	for i, c := range t.letters {
		if !strings.ContainsRune(elsewhere, c) {
			axes = append(axes, i)
		}
	}
	if axes == nil {
		return t
	}
	v := x.Add("ReduceSum", Attrs{"axes": axes, "keepdims": false}, t.v)
	return term{v, filter(t.letters, func(c rune) bool { return strings.ContainsRune(elsewhere, c) })}
}

// ordered is a term with its dimensions in the order of letters.
func (x *Expansion) ordered(t term, letters string) *Value {
	if t.letters == letters {
		return t.v
	}
	perm := make([]int, len(letters))
	for i, c := range letters {
		perm[i] = strings.IndexRune(t.letters, c)
	}
	return x.Add("Transpose", Attrs{"perm": perm}, t.v)
}

// shaped gives v another shape unless it has it.
func (x *Expansion) shaped(v *Value, shape ...int) *Value {
	if x.err != nil || slices.Equal(v.Type.Shape, shape) {
		return v
	}
	return x.Reshape(v, shape...)
}

// filter keeps the letters that keep approves.
func filter(letters string, keep func(c rune) bool) string {
	return strings.Map(func(c rune) rune {
		if keep(c) {
			return c
		}
		return -1
	}, letters)
}
