package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var movementOperators = slices.Concat(
	listOperator("Squeeze", 13, "axes", squeeze),
	listOperator("Unsqueeze", 13, "axes", unsqueeze),
	listOperator("Split", 13, "split", split),
	[]operator{
		{name: "Reshape", since: 7, shapes: []int{1}, convert: reshape},
		{name: "Flatten", since: 7, convert: flatten},
		{name: "Transpose", since: 7, convert: transpose},
		{name: "Expand", since: 8, shapes: []int{1}, convert: expand},
		{name: "Tile", since: 7, shapes: []int{1}, convert: oneOp("Tile", func(s *site) ir.Attrs {
			return ir.Attrs{"repeats": append([]int{}, s.knownInts(1, "repeats")...)}
		})},
		{name: "Concat", since: 7, convert: concat},
		{name: "Slice", since: 7, until: 9, convert: func(s *site) {
			s.out(0, s.slice(s.in(0), s.ints("starts"), s.ints("ends"), s.ints("axes"), nil))
		}},
		{name: "Slice", since: 10, shapes: []int{1, 2, 3, 4}, convert: func(s *site) {
			s.out(0, s.slice(s.in(0), s.knownInts(1, "starts"), s.knownInts(2, "ends"), s.knownInts(3, "axes"), s.knownInts(4, "steps")))
		}},
		{name: "Pad", since: 7, until: 10, convert: func(s *site) { s.padWith(s.ints("pads"), nil, s.float("value", 0)) }},
		{name: "Pad", since: 11, shapes: []int{1, 2, 3}, convert: padInputs},
		{name: "DepthToSpace", since: 7, convert: depthToSpace},
		{name: "SpaceToDepth", since: 7, convert: spaceToDepth},
		{name: "CenterCropPad", since: 18, shapes: []int{1}, convert: centerCropPad},
		{name: "Trilu", since: 14, shapes: []int{1}, convert: oneOp("Trilu", func(s *site) ir.Attrs {
			// Beyond the size of the matrix the diagonal makes no difference; a bounded one cannot overflow.
			const far = 1 << 40
			return ir.Attrs{"upper": s.bool("upper", true), "k": max(-far, min(s.knownInt(1, "k", 0), far))}
		})},
		{name: "ReverseSequence", since: 10, convert: oneOp("ReverseSequence", func(s *site) ir.Attrs {
			r := s.in(0).Type.Rank()
			return ir.Attrs{"batch_axis": s.axis(s.int("batch_axis", 1), r), "time_axis": s.axis(s.int("time_axis", 0), r)}
		})},
		{name: "Identity", since: 7, convert: func(s *site) {
			if v := s.any(0); v != nil { // or a sequence
				s.out(0, v)
				return
			}
			s.fail("input 0 is missing")
		}},
	},
)

// reshape resolves 0 (the input's dimension, unless allowzero) and -1 (what is left).
func reshape(s *site) {
	x := s.in(0)
	want := s.knownInts(1, "shape")
	if want == nil {
		s.fail("input 1, shape, is missing")
	}
	allowZero := s.opset >= 14 && s.bool("allowzero", false)
	shape := slices.Clone(want)
	infer, rest := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && infer >= 0:
			s.fail("shape %v has two -1", want)
		case d == -1:
			infer = i
			continue
		case d < -1:
			s.fail("shape %v has a negative dimension", want)
		case d == 0 && !allowZero:
			if i >= x.Type.Rank() {
				s.fail("shape %v copies dimension %d, which %v lacks", want, i, x.Type)
			}
			shape[i] = x.Type.Shape[i]
		}
		rest *= shape[i]
	}
	if infer >= 0 {
		if rest == 0 || x.Type.Numel()%rest != 0 {
			s.fail("%v has %d elements, which shape %v cannot hold", x.Type, x.Type.Numel(), want)
		}
		shape[infer] = x.Type.Numel() / rest
	}
	s.out(0, s.reshape(x, shape...))
}

func flatten(s *site) {
	x := s.in(0)
	axis := s.int("axis", 1)
	if r := x.Type.Rank(); axis < -r || axis > r {
		s.fail("axis %d is out of range for a value of rank %d", axis, r)
	} else if axis < 0 {
		axis += r
	}
	s.out(0, s.flatten(x, axis))
}

// flatten makes a matrix of v: dimensions before axis are its rows.
func (s *site) flatten(v *ir.Value, axis int) *ir.Value {
	return s.reshape(v, product(v.Type.Shape[:axis]), product(v.Type.Shape[axis:]))
}

func squeeze(s *site, axes []int) {
	x := s.in(0)
	var shape []int
	axes = s.axes(axes, x.Type.Rank())
	for i, d := range x.Type.Shape {
		listed := slices.Contains(axes, i)
		if listed && d != 1 {
			s.fail("dimension %d of %v is not 1", i, x.Type)
		}
		if !listed && (len(axes) > 0 || d != 1) {
			shape = append(shape, d)
		}
	}
	s.out(0, s.reshape(x, shape...))
}

func unsqueeze(s *site, axes []int) {
	x := s.in(0)
	if axes == nil {
		s.fail("axes are missing")
	}
	shape := slices.Clone(x.Type.Shape)
	for _, a := range s.axes(axes, x.Type.Rank()+len(axes)) {
		shape = slices.Insert(shape, a, 1)
	}
	s.out(0, s.reshape(x, shape...))
}

func transpose(s *site) {
	x := s.in(0)
	perm := s.ints("perm")
	if perm == nil {
		perm = iotaInts(x.Type.Rank())
		slices.Reverse(perm)
	}
	if len(perm) != x.Type.Rank() {
		s.fail("perm %v does not fit %v", perm, x.Type)
	}
	for i, p := range perm {
		perm[i] = s.axis(p, len(perm))
		if slices.Contains(perm[:i], perm[i]) {
			s.fail("perm %v names axis %d twice", perm, perm[i])
		}
	}
	s.out(0, s.transpose(x, perm...))
}

// expand broadcasts both ways: a dimension of 1 in the given shape keeps the input's.
func expand(s *site) {
	x := s.in(0)
	shape, err := ir.Broadcast(x.Type.Shape, s.knownInts(1, "shape"))
	s.check(err)
	s.check(ir.CheckShape(shape))
	s.out(0, s.expand(x, shape...))
}

func concat(s *site) {
	vs := s.all()
	s.need("axis")
	s.out(0, s.concat(s.axis(s.int("axis", 0), vs[0].Type.Rank()), vs...))
}

func split(s *site, sizes []int) {
	x := s.in(0)
	axis := s.axisOf(x, 0)
	dim, parts := x.Type.Shape[axis], len(s.n.Output)
	if sizes == nil {
		if n := s.int("num_outputs", parts); n != parts || n < 1 {
			s.fail("num_outputs=%d, but the node has %d outputs", n, parts)
		}
		if dim%parts != 0 && s.opset < 18 {
			s.fail("%d parts do not divide dimension %d of %v", parts, axis, x.Type)
		}
		each := (dim + parts - 1) / parts
		for left := dim; len(sizes) < parts; left -= each {
			sizes = append(sizes, max(0, min(each, left)))
		}
	}
	total := 0
	for _, n := range sizes {
		if n < 0 {
			s.fail("split %v has a negative size", sizes)
		}
		total += n
	}
	if total != dim || len(sizes) < len(s.n.Output) {
		s.fail("split %v into %d outputs does not fit dimension %d of %v", sizes, len(s.n.Output), axis, x.Type)
	}
	start := 0
	for i := range s.n.Output {
		if s.wants(i) {
			s.out(i, s.part(x, axis, start, sizes[i]))
		}
		start += sizes[i]
	}
}

// slice is numpy's slicing: starts and ends count from the end where negative and are clamped.
func (s *site) slice(x *ir.Value, starts, ends, axes, steps []int) *ir.Value {
	if axes == nil {
		axes = iotaInts(len(starts))
	}
	if steps == nil {
		steps = ones(len(starts))
	}
	if len(ends) != len(starts) || len(axes) != len(starts) || len(steps) != len(starts) {
		s.fail("starts %v, ends %v, axes %v and steps %v differ in length", starts, ends, axes, steps)
	}
	first, sizes, by := make([]int, x.Type.Rank()), slices.Clone(x.Type.Shape), ones(x.Type.Rank())
	seen := map[int]bool{}
	for i, a := range axes {
		a = s.axis(a, x.Type.Rank())
		if seen[a] {
			s.fail("axis %d is listed twice", a)
		}
		seen[a] = true
		d, step := x.Type.Shape[a], steps[i]
		lo, hi := 0, d // where start may lie
		switch {
		case step == 0:
			s.fail("steps %v has a 0", steps)
		case step < 0:
			lo, hi = -1, d-1
		}
		start, end := clampIndex(starts[i], d, lo, hi), clampIndex(ends[i], d, lo, hi)
		n := 0
		switch {
		case step > 0 && end > start:
			n = (end-start-1)/step + 1
		case step < 0 && start > end:
			n = 1
			if step > -d {
				n = (start-end-1)/-step + 1
			}
		}
		if n <= 1 {
			step = 1 // no step is taken, and it may be as large as an int64
		}
		if n == 0 {
			start = 0
		}
		first[a], sizes[a], by[a] = start, n, step
	}
	if allZero(first) && slices.Equal(sizes, x.Type.Shape) && !slices.ContainsFunc(by, func(b int) bool { return b != 1 }) {
		return x
	}
	return s.add("Slice", ir.Attrs{"starts": first, "sizes": sizes, "steps": by}, x)
}

func clampIndex(i, d, lo, hi int) int {
	if i < 0 {
		i += d
	}
	return max(lo, min(i, hi))
}

func padInputs(s *site) {
	value := 0.0
	if t := s.known(2, "constant_value"); t != nil && t.Numel() > 0 {
		value = t.FloatAt(0)
	}
	s.padWith(s.knownInts(1, "pads"), s.knownInts(3, "axes"), value)
}

func (s *site) padWith(pads, axes []int, value float64) {
	x := s.in(0)
	r := x.Type.Rank()
	if axes == nil {
		axes = iotaInts(r)
	}
	if len(pads) != 2*len(axes) {
		s.fail("pads %v: want two for each of %d axes", pads, len(axes))
	}
	begin, end := make([]int, r), make([]int, r)
	for i, a := range axes {
		a = s.axis(a, r)
		begin[a], end[a] = pads[i], pads[len(axes)+i]
	}
	mode := s.choice("mode", "constant", "reflect", "edge", "wrap")
	if mode == "wrap" && s.opset < 19 {
		s.fail("mode wrap was introduced in opset 19")
	}
	// What is cropped does not come back by wrapping around or by reflection.
	for a := range r {
		from, until := max(0, -begin[a]), max(0, -end[a])
		if size := x.Type.Shape[a] - from - until; mode != "constant" && from+until > 0 && size > 0 {
			x = s.part(x, a, from, size)
			begin[a], end[a] = max(0, begin[a]), max(0, end[a])
		}
	}
	s.out(0, s.add("Pad", ir.Attrs{"begin": begin, "end": end, "mode": mode, "value": value}, x))
}

// blocks checks the block size of DepthToSpace and SpaceToDepth.
func (s *site) blocks() (x *ir.Value, b int) {
	x, b = s.in(0), s.int("blocksize", 0)
	if x.Type.Rank() != 4 || b < 1 {
		s.fail("x is %v and blocksize %d, want 4 dimensions and at least 1", x.Type, b)
	}
	return x, b
}

func depthToSpace(s *site) {
	x, b := s.blocks()
	n, c, h, w := x.Type.Shape[0], x.Type.Shape[1], x.Type.Shape[2], x.Type.Shape[3]
	if c%(b*b) != 0 {
		s.fail("blocksize² = %d does not divide %d channels", b*b, c)
	}
	c /= b * b
	shape, perm := []int{n, b, b, c, h, w}, []int{0, 3, 4, 1, 5, 2}
	if s.choice("mode", "DCR", "CRD") == "CRD" {
		shape, perm = []int{n, c, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}
	}
	s.out(0, s.reshape(s.transpose(s.reshape(x, shape...), perm...), n, c, h*b, w*b))
}

func spaceToDepth(s *site) {
	x, b := s.blocks()
	n, c, h, w := x.Type.Shape[0], x.Type.Shape[1], x.Type.Shape[2], x.Type.Shape[3]
	if h%b != 0 || w%b != 0 {
		s.fail("blocksize %d does not divide %v", b, x.Type)
	}
	perm := []int{0, 3, 5, 1, 2, 4}
	if s.choice("mode", "DCR", "CRD") == "CRD" {
		perm = []int{0, 1, 3, 5, 2, 4}
	}
	y := s.transpose(s.reshape(x, n, c, h/b, b, w/b, b), perm...)
	s.out(0, s.reshape(y, n, c*b*b, h/b, w/b))
}

func centerCropPad(s *site) {
	x := s.in(0)
	shape, axes := s.knownInts(1, "shape"), s.ints("axes")
	r := x.Type.Rank()
	if axes == nil {
		axes = iotaInts(r)
	}
	if len(shape) != len(axes) {
		s.fail("shape %v does not fit axes %v", shape, axes)
	}
	begin, end := make([]int, r), make([]int, r)
	for i, a := range axes {
		a = s.axis(a, r)
		d, want := x.Type.Shape[a], shape[i]
		if want < d {
			x = s.part(x, a, (d-want)/2, want)
			continue
		}
		begin[a] = (want - d) / 2
		end[a] = want - d - begin[a]
	}
	s.out(0, s.pad(x, begin, end, 0))
}
