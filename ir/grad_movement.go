package ir

import (
	"slices"
)

func gradReshape(g *Gradient, n *Node) []*Value {
	return []*Value{g.shaped(g.Dy[0], n.Inputs[0].Type.Shape...)}
}

func gradTranspose(g *Gradient, n *Node) []*Value {
	perm := n.Attrs.Ints("perm")
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	return []*Value{g.transposed(g.Dy[0], back...)}
}

// gradSlice puts zeros where nothing was taken.
func gradSlice(g *Gradient, n *Node) []*Value {
	x, dy := n.Inputs[0].Type, g.Dy[0]
	starts, sizes, steps := slices.Clone(n.Attrs.Ints("starts")), n.Attrs.Ints("sizes"), n.Attrs.Ints("steps")
	if x.Numel() == 0 || slices.Contains(sizes, 0) {
		return nil
	}
	for i, step := range steps {
		if step < 0 { // read it forwards
			dy = g.reversed(dy, i)
			starts[i] += (sizes[i] - 1) * step
			step = -step
		}
		if step > 1 && g.err == nil {
			s := dy.Type.Shape
			end := make([]int, len(s)+1)
			end[i+1] = step - 1
			separate := g.Add("Pad", Attrs{"begin": make([]int, len(end)), "end": end}, g.Reshape(dy, slices.Insert(slices.Clone(s), i+1, 1)...))
			wide := slices.Clone(s)
			wide[i] *= step
			dy = g.Reshape(separate, wide...)
		}
	}
	return []*Value{g.padTo(dy, starts, x.Shape)}
}

// padTo surrounds v by zeros, or crops it, so that it stands at begin within the shape.
func (g *Gradient) padTo(v *Value, begin, shape []int) *Value {
	if g.err != nil || slices.Equal(v.Type.Shape, shape) && !slices.ContainsFunc(begin, func(b int) bool { return b != 0 }) {
		return v
	}
	end := make([]int, len(shape))
	for i, d := range shape {
		end[i] = d - begin[i] - v.Type.Shape[i]
	}
	return g.Add("Pad", Attrs{"begin": begin, "end": end}, v)
}

// reversed turns an axis round.
func (g *Gradient) reversed(v *Value, axis int) *Value {
	if g.err != nil {
		return v
	}
	starts, steps := make([]int, v.Type.Rank()), slices.Repeat([]int{1}, v.Type.Rank())
	starts[axis], steps[axis] = v.Type.Shape[axis]-1, -1
	return g.Add("Slice", Attrs{"starts": starts, "sizes": v.Type.Shape, "steps": steps}, v)
}

func gradConcat(g *Gradient, n *Node) []*Value {
	axis, at := n.Attrs.Int("axis", 0), 0
	dx := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		starts := make([]int, v.Type.Rank())
		starts[axis] = at
		at += v.Type.Shape[axis]
		if g.Wants(i) {
			dx[i] = g.Add("Slice", Attrs{"starts": starts, "sizes": v.Type.Shape}, g.Dy[0])
		}
	}
	return dx
}

// gradPad crops what was added. Where an element was copied, its copies' gradients are summed.
func gradPad(g *Gradient, n *Node) []*Value {
	x, begin := n.Inputs[0].Type, n.Attrs.Ints("begin")
	mode := n.Attrs.String("mode", "constant")
	if mode == "constant" {
		back := make([]int, len(begin))
		for i, b := range begin {
			back[i] = -b
		}
		return []*Value{g.padTo(g.Dy[0], back, x.Shape)}
	}
	dy := g.Dy[0]
	for axis, d := range x.Shape {
		taps := make([][]int, n.Outputs[0].Type.Shape[axis])
		for j := range taps {
			taps[j] = []int{outside(mode, j-begin[axis], d)}
		}
		dy = g.spread(dy, axis, d, taps, nil)
	}
	return []*Value{dy}
}

// spread is the transpose of a linear map along an axis: output j of it is the sum of weight[j][k] times input
// index[j][k]; without weights all are 1. size is the number of inputs.
func (g *Gradient) spread(dy *Value, axis, size int, index [][]int, weight [][]float64) *Value {
	same := size == len(index)
	m := NewArray(T(Float64, size, len(index)))
	for j, taps := range index {
		for k, i := range taps {
			w := 1.0
			if weight != nil {
				w = weight[j][k]
			}
			m.F[i*len(index)+j] += w
		}
		same = same && m.F[j*len(index)+j] == 1 && len(slices.DeleteFunc(slices.Clone(taps), func(i int) bool { return m.F[i*len(index)+j] == 0 })) == 1
	}
	if g.err != nil || same {
		return dy
	}
	shape := slices.Clone(dy.Type.Shape)
	before, after := T(Bool, shape[:axis]...).Numel(), T(Bool, shape[axis+1:]...).Numel()
	shape[axis] = size
	m.DType = dy.Type.DType
	dx := g.op("MatMul", g.Constant(m.Tensor()), g.Reshape(dy, before, len(index), after))
	return g.Reshape(dx, shape...)
}

func gradTile(g *Gradient, n *Node) []*Value {
	x, dy := n.Inputs[0].Type.Shape, g.Dy[0]
	var shape, axes []int
	for i, r := range n.Attrs.Ints("repeats") {
		axes = append(axes, len(shape))
		shape = append(shape, r, x[i])
	}
	return []*Value{g.Add("ReduceSum", Attrs{"axes": axes}, g.Reshape(dy, shape...))}
}

func gradGather(g *Gradient, n *Node) []*Value {
	x, indices, dy := n.Inputs[0].Type.Shape, n.Inputs[1], g.Dy[0]
	axis, count := n.Attrs.Int("axis", 0), indices.Type.Numel()
	before, after := T(Bool, x[:axis]...).Numel(), T(Bool, x[axis+1:]...).Numel()
	if before*count*after == 0 {
		return nil
	}
	at := g.Add("Expand", Attrs{"shape": []int{before, count, after}}, g.Reshape(indices, 1, count, 1))
	dx := g.Add("ScatterElements", Attrs{"axis": 1, "reduction": "add"}, g.zeros(dy, before, x[axis], after), at, g.Reshape(dy, before, count, after))
	return []*Value{g.shaped(dx, x...)}
}

func gradGatherElements(g *Gradient, n *Node) []*Value {
	attrs := Attrs{"axis": n.Attrs.Int("axis", 0), "reduction": "add"}
	return []*Value{g.Add("ScatterElements", attrs, g.zeros(g.Dy[0], n.Inputs[0].Type.Shape...), n.Inputs[1], g.Dy[0])}
}

func gradGatherND(g *Gradient, n *Node) []*Value {
	indices, dy := n.Inputs[1], g.Dy[0]
	at := []*Value{}
	for axis := range n.Attrs.Int("batch_dims", 0) { // ScatterND has no batch_dims: prepend the batch's own indices
		shape := slices.Clone(indices.Type.Shape)
		shape[len(shape)-1] = 1
		here := NewArray(T(indices.Type.DType, shape...))
		step := strides(shape)[axis]
		for i := range here.I {
			here.I[i] = int64(i / step % shape[axis])
		}
		at = append(at, g.Constant(here.Tensor()))
	}
	if len(at) > 0 {
		indices = g.Add("Concat", Attrs{"axis": indices.Type.Rank() - 1}, append(at, indices)...)
	}
	return []*Value{g.Add("ScatterND", Attrs{"reduction": "add"}, g.zeros(dy, n.Inputs[0].Type.Shape...), indices, dy)}
}

// gradScatter: what was overwritten has no gradient, of updates to one place only the last has.
func gradScatter(g *Gradient, n *Node) []*Value {
	x, indices, updates, dy := n.Inputs[0].Type, n.Inputs[1], n.Inputs[2], g.Dy[0]
	reduction := n.Attrs.String("reduction", "none")
	if reduction != "none" && reduction != "add" {
		return g.Refuse("reduction %q has no gradient", reduction)
	}
	gather, at := "GatherElements", Attrs{"axis": n.Attrs.Int("axis", 0)}
	if n.Op.Name == "ScatterND" {
		gather, at = "GatherND", nil
	}
	du := g.Add(gather, at, dy, indices)
	if reduction == "add" {
		return []*Value{dy, nil, du}
	}
	dx := g.Add(n.Op.Name, n.Attrs, dy, indices, g.zeros(dy, updates.Type.Shape...))
	// Number the updates, scatter the numbers and see which of them arrive.
	places, numbers := x.Shape, T(Int64, updates.Type.Shape...)
	if n.Op.Name == "ScatterND" {
		last := indices.Type.Rank() - 1
		places, numbers.Shape = x.Shape[:indices.Type.Shape[last]], indices.Type.Shape[:last]
	}
	own := NewArray(numbers)
	for i := range own.I {
		own.I[i] = int64(i)
	}
	mine := g.Constant(own.Tensor())
	there := g.Add(n.Op.Name, n.Attrs, g.Constant(SplatInt(T(Int64, places...), -1)), indices, mine)
	lasts := g.op("Equal", g.Add(gather, at, there, indices), mine)
	if extra := updates.Type.Rank() - len(numbers.Shape); extra > 0 {
		lasts = g.Reshape(lasts, slices.Concat(numbers.Shape, slices.Repeat([]int{1}, extra))...)
	}
	return []*Value{dx, nil, g.op("Where", lasts, du, g.Like(du, 0))}
}

// gradSame applies the op itself: a linear map that is its own transpose.
func gradSame(g *Gradient, n *Node) []*Value {
	return []*Value{g.Add(n.Op.Name, n.Attrs, append([]*Value{g.Dy[0]}, n.Inputs[1:]...)...)}
}

// gradResize is the transpose of the interpolation, dimension by dimension; copies by a whole number are summed.
func gradResize(g *Gradient, n *Node) []*Value {
	x, dy := n.Inputs[0].Type, g.Dy[0]
	if x.Numel() == 0 || dy.Type.Numel() == 0 {
		return nil
	}
	for axis, size := range x.Shape {
		index, weight, outside := n.ResizeTaps(axis)
		for j, o := range outside {
			if o {
				index[j] = nil
			}
		}
		if k := copies(index, weight, size); k > 1 && g.err == nil {
			s := slices.Insert(slices.Clone(dy.Type.Shape), axis+1, k)
			s[axis] = size
			dy = g.Add("ReduceSum", Attrs{"axes": []int{axis + 1}}, g.Reshape(dy, s...))
			continue
		}
		dy = g.spread(dy, axis, size, index, weight)
	}
	return []*Value{dy}
}

// copies is how often each of size inputs is repeated in a row; 0 where they are not.
func copies(index [][]int, weight [][]float64, size int) int {
	k := len(index) / size
	if k*size != len(index) {
		return 0
	}
	for j, taps := range index {
		if len(taps) != 1 || taps[0] != j/k || weight[j][0] != 1 {
			return 0
		}
	}
	return k
}
