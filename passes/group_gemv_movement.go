package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// absorbMovement folds transpositions before layers into the order of their weights: x = act(Transpose(s)) becomes
// act(s) where only layers read x.
func (s *gemvGrouper) absorbMovement() {
	moved := map[*ir.Value]*ir.Value{}
	from := map[*ir.Value][]int{}
	origins := map[*ir.Value][]ir.Origin{}
	for _, u := range s.units {
		x := u.x
		if _, done := moved[x]; !done {
			moved[x], from[x], origins[x] = s.untranspose(x)
		}
		if moved[x] == nil {
			continue
		}
		u.x, u.from = moved[x], ir.JoinOrigins(u.from, origins[x])
		for j, row := range u.rows {
			w := make([]float32, len(row.w))
			for k, at := range from[x] {
				w[at] = row.w[k]
			}
			u.rows[j].w = w
		}
	}
}

// untranspose returns x without the transpositions on the way to it, for each element of x where it is there, and
// which nodes of the file are left out so; or nil.
func (s *gemvGrouper) untranspose(x *ir.Value) (y *ir.Value, order []int, origins []ir.Origin) {
	for _, u := range s.uses[x] {
		if u.Node == nil || s.core[u.Node] == nil || u.Index != 0 {
			return nil, nil, nil
		}
	}
	var path []*ir.Node // from x upwards
	v, transposed := x, 0
	for v.Def != nil && len(v.Def.Outputs) == 1 && v.Def.Outputs[0].Type.Numel() == x.Type.Numel() {
		n := v.Def
		i := 0
		switch {
		case bijective(n):
		default:
			if i = slices.IndexFunc(n.Inputs, func(w *ir.Value) bool { return w != nil && !w.IsConst() }); i < 0 || !isUnary(n, i) {
				i = -1
			}
		}
		if i < 0 || v != x && len(s.uses[v]) != 1 {
			break
		}
		path = append(path, n)
		v = n.Inputs[i]
		if n.Op.Name == "Transpose" && !n.IsView() {
			transposed = len(path)
		}
	}
	if transposed == 0 {
		return nil, nil, nil
	}
	path = path[:transposed]
	last := path[len(path)-1]
	for _, n := range path {
		origins = ir.JoinOrigins(origins, n.From)
	}
	order = identityPerm(x.Type.Numel())
	b := builder{g: s.g, name: last.Name, from: origins}
	y = last.Inputs[0]
	for i := len(path) - 1; i >= 0; i-- {
		n := path[i]
		switch n.Op.Name {
		case "Reshape":
		case "Transpose":
			order = transposeIndices(order, n.Inputs[0].Type.Shape, n.Attrs.Ints("perm"))
		default:
			y = b.applyActivation(y, &layer{act: []*ir.Node{n}})
		}
	}
	if b.err != nil {
		return nil, nil, nil
	}
	return y, order, origins
}

// transposeIndices permutes the elements of a tensor of indices.
func transposeIndices(xs, shape, perm []int) []int {
	out := make([]int, len(xs))
	eachOffset(permute(shape, perm), transposedStrides(shape, perm), func(i, at int) { out[i] = xs[at] })
	return out
}
