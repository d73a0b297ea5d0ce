package ir

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/parallel"
)

// take makes an array of type t whose elements are elements of a. from names the source position of the output at
// position p, whose index and offset under steps c holds; a negative one leaves the element zero.
func (a *Array) take(t Type, steps []int, from func(p int, c *cursor) int) *Array {
	out := NewArray(t)
	parallel.Ranges(out.Len(), 1<<14, func(lo, hi int) {
		c := newCursor(t.Shape, lo, steps)
		for p := lo; p < hi; p++ {
			switch s := from(p, c); {
			case s < 0:
			case a.F != nil:
				out.F[p] = a.F[s]
			default:
				out.I[p] = a.I[s]
			}
			c.next()
		}
	})
	return out
}

// strided takes the elements at base + Σ index·step.
func (a *Array) strided(t Type, base int, steps []int) *Array {
	return a.take(t, steps, func(_ int, c *cursor) int { return base + c.at[0] })
}

// numbered takes the element that f names for every position.
func (a *Array) numbered(t Type, f func(p int) int) *Array {
	return a.take(t, make([]int, t.Rank()), func(p int, _ *cursor) int { return f(p) })
}

// indexed takes the element that f names for every index.
func (a *Array) indexed(t Type, f func(index []int) int) *Array {
	return a.take(t, make([]int, t.Rank()), func(_ int, c *cursor) int { return f(c.index) })
}

func (a *Array) clone() *Array {
	return &Array{Type: a.Type, F: slices.Clone(a.F), I: slices.Clone(a.I)}
}

func evalReshape(n *Node, in []*Array) ([]*Array, error) {
	return []*Array{in[0].retyped(n.Outputs[0].Type)}, nil
}

func evalTranspose(n *Node, in []*Array) ([]*Array, error) {
	s := strides(in[0].Shape)
	steps := make([]int, len(s))
	for i, p := range n.Attrs.Ints("perm") {
		steps[i] = s[p]
	}
	return []*Array{in[0].strided(n.Outputs[0].Type, 0, steps)}, nil
}

func evalExpand(n *Node, in []*Array) ([]*Array, error) {
	t := n.Outputs[0].Type
	return []*Array{in[0].strided(t, 0, broadcastStrides(in[0].Shape, t.Shape))}, nil
}

func evalSlice(n *Node, in []*Array) ([]*Array, error) {
	base, s := 0, strides(in[0].Shape)
	steps := make([]int, len(s))
	for i, start := range n.Attrs.Ints("starts") {
		base += start * s[i]
		steps[i] = s[i]
		if given := n.Attrs.Ints("steps"); given != nil {
			steps[i] *= given[i]
		}
	}
	return []*Array{in[0].strided(n.Outputs[0].Type, base, steps)}, nil
}

func evalConcat(n *Node, in []*Array) ([]*Array, error) {
	out := NewArray(n.Outputs[0].Type)
	axis := n.Attrs.Int("axis", 0)
	outer := T(Bool, out.Shape[:axis]...).Numel()
	row, at := T(Bool, out.Shape[axis:]...).Numel(), 0
	for _, x := range in {
		part := T(Bool, x.Shape[axis:]...).Numel()
		for o := range outer {
			out.copyFrom(o*row+at, x, o*part, part)
		}
		at += part
	}
	return []*Array{out}, nil
}

func evalPad(n *Node, in []*Array) ([]*Array, error) {
	x, s := in[0], strides(in[0].Shape)
	begin, mode := n.Attrs.Ints("begin"), n.Attrs.String("mode", "constant")
	source := func(index []int) int {
		at := 0
		for i, d := range x.Shape {
			j := index[i] - begin[i]
			if j < 0 || j >= d {
				if j = outside(mode, j, d); j < 0 {
					return -1
				}
			}
			at += j * s[i]
		}
		return at
	}
	out := x.indexed(n.Outputs[0].Type, source)
	if value := n.Attrs.Float("value", 0); mode == "constant" && value != 0 {
		c := newCursor(out.Shape, 0)
		for p := range out.Len() {
			if source(c.index) < 0 {
				out.set(p, value)
			}
			c.next()
		}
	}
	return []*Array{out}, nil
}

// outside maps an index outside [0, d) into it, or to -1 for a constant.
func outside(mode string, j, d int) int {
	switch mode {
	case "edge":
		return min(max(j, 0), d-1)
	case "wrap":
		return (j%d + d) % d
	case "reflect":
		if d == 1 {
			return 0
		}
		period := 2 * (d - 1)
		j = (j%period + period) % period
		return min(j, period-j)
	}
	return -1
}

// set stores a number, truncated if the array holds integers.
func (a *Array) set(i int, v float64) {
	if a.F != nil {
		a.F[i] = v
	} else {
		a.I[i] = floatToInt(a.DType, v)
	}
}

func evalTile(n *Node, in []*Array) ([]*Array, error) {
	x, s := in[0], strides(in[0].Shape)
	return []*Array{x.indexed(n.Outputs[0].Type, func(index []int) int {
		at := 0
		for i, j := range index {
			at += j % x.Shape[i] * s[i]
		}
		return at
	})}, nil
}

// resolveIndex resolves an index that may count from the end.
func resolveIndex(v int64, d int) (int, error) {
	if v < int64(-d) || v >= int64(d) {
		return 0, fmt.Errorf("index %d is outside a dimension of %d", v, d)
	}
	if v < 0 {
		v += int64(d)
	}
	return int(v), nil
}

// resolveIndices resolves all indices against one dimension.
func resolveIndices(a *Array, d int) ([]int, error) {
	out := make([]int, len(a.I))
	for i, v := range a.I {
		var err error
		if out[i], err = resolveIndex(v, d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func evalGather(n *Node, in []*Array) ([]*Array, error) {
	x, t := in[0], n.Outputs[0].Type
	axis := n.Attrs.Int("axis", 0)
	idx, err := resolveIndices(in[1], x.Shape[axis])
	if err != nil {
		return nil, err
	}
	inner, count, d := strides(x.Shape)[axis], len(idx), x.Shape[axis]
	return []*Array{x.numbered(t, func(p int) int {
		o, k := p/inner/count, p/inner%count
		return (o*d+idx[k])*inner + p%inner
	})}, nil
}

func evalGatherElements(n *Node, in []*Array) ([]*Array, error) {
	x, t := in[0], n.Outputs[0].Type
	axis := n.Attrs.Int("axis", 0)
	idx, err := resolveIndices(in[1], x.Shape[axis])
	if err != nil {
		return nil, err
	}
	sx, si := strides(x.Shape), strides(t.Shape)
	return []*Array{x.indexed(t, func(index []int) int {
		at, k := 0, 0
		for i, j := range index {
			k += j * si[i]
			if i != axis {
				at += j * sx[i]
			}
		}
		return at + idx[k]*sx[axis]
	})}, nil
}

// tuples resolves the index tuples along the last dimension of idx to offsets into dimensions first… of a shape.
func tuples(idx *Array, shape []int, first int) ([]int, error) {
	k := idx.Shape[idx.Rank()-1]
	s := strides(shape)
	count := T(Bool, idx.Shape[:idx.Rank()-1]...).Numel()
	out := make([]int, count)
	for i := range out {
		for j := range k {
			v, err := resolveIndex(idx.I[i*k+j], shape[first+j])
			if err != nil {
				return nil, err
			}
			out[i] += v * s[first+j]
		}
	}
	return out, nil
}

func evalGatherND(n *Node, in []*Array) ([]*Array, error) {
	x, idx, t := in[0], in[1], n.Outputs[0].Type
	b := n.Attrs.Int("batch_dims", 0)
	k := idx.Shape[idx.Rank()-1]
	at, err := tuples(idx, x.Shape, b)
	if err != nil {
		return nil, err
	}
	inner := T(Bool, x.Shape[b+k:]...).Numel()
	batches, whole := T(Bool, x.Shape[:b]...).Numel(), T(Bool, x.Shape[b:]...).Numel()
	each := len(at) / max(batches, 1)
	return []*Array{x.numbered(t, func(p int) int {
		i := p / inner
		return i/each*whole + at[i] + p%inner
	})}, nil
}

// combine merges update j of u into element i by the reduction of a scatter.
func (a *Array) combine(i int, reduction string, u *Array, j int) {
	op := map[string]string{"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}[reduction]
	switch r := reducerOf(op); {
	case op == "":
		a.copyFrom(i, u, j, 1)
	case a.F != nil:
		a.F[i] = r.float(a.F[i], u.F[j])
	default:
		a.I[i] = WrapInt(a.DType, r.int(a.DType, a.I[i], u.I[j]))
	}
}

func evalScatterElements(n *Node, in []*Array) ([]*Array, error) {
	out, updates := in[0].clone(), in[2]
	axis, reduction := n.Attrs.Int("axis", 0), n.Attrs.String("reduction", "none")
	idx, err := resolveIndices(in[1], out.Shape[axis])
	if err != nil {
		return nil, err
	}
	s := strides(out.Shape)
	c := newCursor(updates.Shape, 0, s)
	for p := range updates.Len() {
		out.combine(c.at[0]+(idx[p]-c.index[axis])*s[axis], reduction, updates, p)
		c.next()
	}
	return []*Array{out}, nil
}

func evalScatterND(n *Node, in []*Array) ([]*Array, error) {
	out, idx, updates := in[0].clone(), in[1], in[2]
	at, err := tuples(idx, out.Shape, 0)
	if err != nil {
		return nil, err
	}
	inner := T(Bool, out.Shape[idx.Shape[idx.Rank()-1]:]...).Numel()
	for i, base := range at {
		for j := range inner {
			out.combine(base+j, n.Attrs.String("reduction", "none"), updates, i*inner+j)
		}
	}
	return []*Array{out}, nil
}

func evalTrilu(n *Node, in []*Array) ([]*Array, error) {
	x, t := in[0], n.Outputs[0].Type
	upper := n.Flag("upper")
	k, rows, cols := n.Attrs.Int("k", 0), t.Shape[t.Rank()-2], t.Shape[t.Rank()-1]
	return []*Array{x.numbered(t, func(p int) int {
		d := p%cols - p/cols%rows
		if upper && d < k || !upper && d > k {
			return -1
		}
		return p
	})}, nil
}

func evalReverseSequence(n *Node, in []*Array) ([]*Array, error) {
	x, t := in[0], n.Outputs[0].Type
	b, axis := n.Attrs.Int("batch_axis", 1), n.Attrs.Int("time_axis", 0)
	for _, v := range in[1].I {
		if v < 0 || v > int64(x.Shape[axis]) {
			return nil, fmt.Errorf("length %d of a sequence of %d", v, x.Shape[axis])
		}
	}
	s := strides(x.Shape)
	return []*Array{x.indexed(t, func(index []int) int {
		at := 0
		for i, j := range index {
			if length := int(in[1].I[index[b]]); i == axis && j < length {
				j = length - 1 - j
			}
			at += j * s[i]
		}
		return at
	})}, nil
}
