package layout

import (
	"slices"
)

// Mode is one factor of a coordinate. It contributes (coordinate / the sizes of the modes inside it) mod Size, times
// Stride.
type Mode struct{ Size, Stride int }

// View maps the coordinates of a tensor to element offsets in a dense buffer. A dimension is a list of modes, outermost
// first; a dimension of size 1 has none.
type View struct {
	Dims   [][]Mode
	Offset int
}

// Dense is the row-major view of a shape.
func Dense(shape []int) View {
	v := View{Dims: make([][]Mode, len(shape))}
	stride := 1
	for i := len(shape) - 1; i >= 0; i-- {
		v.Dims[i] = one(Mode{shape[i], stride})
		stride *= shape[i]
	}
	return v
}

func one(m Mode) []Mode {
	if m.Size == 1 {
		return nil
	}
	return []Mode{m}
}

// Size is the number of coordinates that the modes span.
func Size(modes []Mode) int {
	n := 1
	for _, m := range modes {
		n *= m.Size
	}
	return n
}

// Coalesce merges neighbouring modes that step through memory evenly and drops modes of size 1.
func Coalesce(modes []Mode) []Mode {
	var out []Mode
	for _, m := range modes {
		if m.Size == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Stride == m.Size*m.Stride {
			out[n-1] = Mode{out[n-1].Size * m.Size, m.Stride}
			continue
		}
		out = append(out, m)
	}
	return out
}

// Offset is the sum of the modes' contributions for a coordinate.
func Offset(modes []Mode, x int) int {
	off := 0
	for i := len(modes) - 1; i >= 0; i-- {
		off += x % modes[i].Size * modes[i].Stride
		x /= modes[i].Size
	}
	return off
}

// Reshape regroups the modes under a new shape of as many elements. It fails where a new dimension would cut a mode at
// a place that does not divide it: such a map is not affine.
func (v View) Reshape(shape []int) (View, bool) {
	var flat []Mode
	for _, d := range v.Dims {
		flat = append(flat, d...)
	}
	flat = Coalesce(flat)
	out := View{Dims: make([][]Mode, len(shape)), Offset: v.Offset}
	for i, want := range shape {
		for want > 1 {
			if len(flat) == 0 {
				return View{}, false
			}
			m := flat[0]
			switch {
			case want%m.Size == 0:
				out.Dims[i] = append(out.Dims[i], m)
				want /= m.Size
				flat = flat[1:]
			case m.Size%want == 0:
				inner := m.Size / want
				out.Dims[i] = append(out.Dims[i], Mode{want, m.Stride * inner})
				flat = append([]Mode{{inner, m.Stride}}, flat[1:]...)
				want = 1
			default:
				return View{}, false
			}
		}
	}
	return out, len(flat) == 0
}

// Transpose makes dimension i what dimension perm[i] was.
func (v View) Transpose(perm []int) View {
	out := View{Dims: make([][]Mode, len(perm)), Offset: v.Offset}
	for i, p := range perm {
		out.Dims[i] = v.Dims[p]
	}
	return out
}

// Untranspose is the inverse of Transpose.
func (v View) Untranspose(perm []int) View {
	out := View{Dims: make([][]Mode, len(perm)), Offset: v.Offset}
	for i, p := range perm {
		out.Dims[p] = v.Dims[i]
	}
	return out
}

// Slice takes sizes[i] elements of dimension i from starts[i] on, with a step of steps[i] (nil: 1). A dimension of
// several modes can be cut only where the cut keeps all inner modes whole, or within its innermost mode.
func (v View) Slice(starts, sizes, steps []int) (View, bool) {
	out := View{Dims: make([][]Mode, len(v.Dims)), Offset: v.Offset}
	for i, d := range v.Dims {
		step := 1
		if steps != nil {
			step = steps[i]
		}
		modes, off, ok := cut(d, starts[i], sizes[i], step)
		if !ok {
			return View{}, false
		}
		out.Dims[i] = modes
		out.Offset += off
	}
	return out, true
}

func cut(d []Mode, start, size, step int) ([]Mode, int, bool) {
	d = Coalesce(d)
	if size == Size(d) && start == 0 && step == 1 {
		return d, 0, true
	}
	if size == 1 {
		return nil, Offset(d, start), true
	}
	if len(d) == 0 {
		return nil, 0, false
	}
	inner := Size(d[1:])
	if len(d) == 1 {
		return one(Mode{size, d[0].Stride * step}), start * d[0].Stride, true
	}
	if step == 1 && start%inner == 0 && size%inner == 0 { // whole rows of the outermost mode
		return append(one(Mode{size / inner, d[0].Stride}), d[1:]...), start / inner * d[0].Stride, true
	}
	last := d[len(d)-1]
	if first := start / last.Size; step > 0 && (start+(size-1)*step)/last.Size == first { // within one run of the innermost
		return one(Mode{size, last.Stride * step}), Offset(d, first*last.Size) + start%last.Size*last.Stride, true
	}
	return nil, 0, false
}

// Broadcast stretches the view to a shape as NumPy does: missing leading dimensions and dimensions of size 1 repeat.
func (v View) Broadcast(shape []int) (View, bool) {
	pad := len(shape) - len(v.Dims)
	if pad < 0 {
		return View{}, false
	}
	out := View{Dims: make([][]Mode, len(shape)), Offset: v.Offset}
	for i, n := range shape {
		var d []Mode
		if i >= pad {
			d = v.Dims[i-pad]
		}
		switch Size(d) {
		case n:
			out.Dims[i] = d
		case 1:
			out.Dims[i] = one(Mode{n, 0})
		default:
			return View{}, false
		}
	}
	return out, true
}

// Concat joins the modes of several dimensions, outermost first, into one coordinate.
func Concat(dims ...[]Mode) []Mode {
	return Coalesce(slices.Concat(dims...))
}

// Run is how many coordinates, starting at any multiple of it, are adjacent in memory: the size of an innermost mode of
// stride 1, or 1.
func Run(modes []Mode) int {
	modes = Coalesce(modes)
	if n := len(modes); n > 0 && modes[n-1].Stride == 1 {
		return modes[n-1].Size
	}
	return 1
}
