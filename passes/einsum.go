package passes

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var einsumPass = Pass{
	Name:    "einsum",
	Summary: "an Einsum of one or two operands becomes Transpose, Reshape, ReduceSum and MatMul",
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			if n.Op.Name == "Einsum" && len(n.Inputs) <= 2 {
				einsum(s, n)
			}
		})
		return err
	},
}

// einsum rewrites n unless a letter repeats within an operand or the result (a diagonal), or operands disagree on the
// size of a letter (broadcasting).
func einsum(s *sweep, n *ir.Node) {
	in, out, ok := strings.Cut(strings.ReplaceAll(n.Attrs.String("equation", ""), " ", ""), "->")
	terms := strings.Split(in, ",")
	if !ok || len(terms) != len(n.Inputs) || repeats(out) {
		return
	}
	size := map[rune]int{}
	for i, t := range terms {
		if repeats(t) {
			return
		}
		for j, letter := range t {
			d := n.Inputs[i].Type.Shape[j]
			if old, ok := size[letter]; ok && old != d {
				return
			}
			size[letter] = d
		}
	}
	e := &einsumBuilder{s, n.Name, size}
	if len(terms) == 1 {
		if out == terms[0] && s.keepsName(n.Outputs[0], n.Inputs[0]) {
			s.replace(n.Outputs[0], s.add("Reshape", n.Name, ir.Attrs{"shape": n.Outputs[0].Type.Shape}, n.Inputs[0]))
			return
		}
		s.replace(n.Outputs[0], e.order(e.sumOut(n.Inputs[0], &terms[0], out), terms[0], out))
		return
	}
	a, b := terms[0], terms[1]
	x := e.sumOut(n.Inputs[0], &a, b+out)
	y := e.sumOut(n.Inputs[1], &b, a+out)
	batch := filter(out, a, b, true)
	m, k, c := filter(a, out, b, false), filter(a, b, out, false), filter(b, out, a, false)
	x = e.grouped(e.order(x, a, batch+m+k), batch, m, k)
	y = e.grouped(e.order(y, b, batch+k+c), batch, k, c)
	z := s.add("MatMul", n.Name, nil, x, y)
	if shape := e.shape(batch + m + c); !slices.Equal(shape, z.Type.Shape) {
		z = s.add("Reshape", n.Name, ir.Attrs{"shape": shape}, z)
	}
	s.replace(n.Outputs[0], e.order(z, batch+m+c, out))
}

type einsumBuilder struct {
	s    *sweep
	name string
	size map[rune]int
}

// sumOut sums the letters of an operand that occur nowhere else.
func (e *einsumBuilder) sumOut(v *ir.Value, letters *string, elsewhere string) *ir.Value {
	var axes []int
	var rest strings.Builder
	for i, letter := range *letters {
		if strings.ContainsRune(elsewhere, letter) {
			rest.WriteRune(letter)
		} else {
			axes = append(axes, i)
		}
	}
	*letters = rest.String()
	if axes == nil {
		return v
	}
	return e.s.add("ReduceSum", e.name, ir.Attrs{"axes": axes, "keepdims": false}, v)
}

// order transposes v from the order of letters to another.
func (e *einsumBuilder) order(v *ir.Value, from, to string) *ir.Value {
	if from == to {
		return v
	}
	perm := make([]int, len(to))
	for i, letter := range to {
		perm[i] = strings.IndexRune(from, letter)
	}
	return e.s.add("Transpose", e.name, ir.Attrs{"perm": perm}, v)
}

// grouped reshapes v, whose letters are batch+rows+cols, to [batch…, rows, cols].
func (e *einsumBuilder) grouped(v *ir.Value, batch, rows, cols string) *ir.Value {
	shape := append(e.shape(batch), e.count(rows), e.count(cols))
	if slices.Equal(shape, v.Type.Shape) {
		return v
	}
	return e.s.add("Reshape", e.name, ir.Attrs{"shape": shape}, v)
}

func (e *einsumBuilder) shape(letters string) []int {
	shape := []int{}
	for _, letter := range letters {
		shape = append(shape, e.size[letter])
	}
	return shape
}

func (e *einsumBuilder) count(letters string) int { return ir.Type{Shape: e.shape(letters)}.Numel() }

// filter keeps the letters that occur in in, and in other too exactly if both.
func filter(letters, in, other string, both bool) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(in, r) && strings.ContainsRune(other, r) == both {
			return r
		}
		return -1
	}, letters)
}

func repeats(letters string) bool {
	for i, r := range letters {
		if strings.ContainsRune(letters[i+1:], r) {
			return true
		}
	}
	return false
}
