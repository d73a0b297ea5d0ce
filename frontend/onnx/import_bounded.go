package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// boundedOperators have a number of outputs that depends on data. ImportOptions.MaxOutput gives an upper bound by
// node: what they put out is padded with zeros, and an extra output of the graph, NODE_count, says how many were
// found. If those are more than the bound, the first ones are there.
var boundedOperators = []operator{
	{name: "NonZero", since: 9, convert: nonZero},
	{name: "Compress", since: 9, convert: compress},
	{name: "Unique", since: 11, convert: unique},
	{name: "NonMaxSuppression", since: 10, convert: nonMaxSuppression},
}

// atMost is the bound on the number of the node's outputs.
func (s *site) atMost() int {
	c := &s.im.counts
	label := s.sc.label(s.n)
	c.seen = append(c.seen, label)
	n, ok := s.im.opt.MaxOutput[label]
	if !ok {
		n = s.im.opt.OtherOutputs
	}
	if !ok && n == 0 {
		s.refuse("give a bound with --max-output "+label+"=N: outputs are padded to N, and the output "+countName(label)+" says how many there are",
			"how many outputs there are depends on data")
	}
	c.used[label] = true
	if n < 1 {
		s.refuse("give at least 1", "--max-output %s=%d", label, n)
	}
	return n
}

// countName is the extra output of a node with a bound.
func countName(label string) string { return label + "_count" }

// found sets the node's extra output.
func (s *site) found(count *ir.Value) {
	count = s.cast(s.reshape(count), ir.Int64)
	if count.IsConst() {
		count = &ir.Value{Type: count.Type, Const: count.Const}
	}
	count.Name = countName(s.sc.label(s.n))
	s.im.counts.outputs = append(s.im.counts.outputs, count)
}

// padTo marks outputs, those that are there, as padded to n along an axis.
func (s *site) padTo(n, axis int, outputs ...int) {
	for _, i := range outputs {
		if i < len(s.n.Output) && s.sc.values[s.n.Output[i]] != nil {
			s.im.counts.padded[s.sc.values[s.n.Output[i]]] = padding{axis, n, s.sc.label(s.n)}
		}
	}
}

// firstOf returns the positions of the first n ones of flags, i32 [L] of 0 and 1, as i64 [n] padded with zeros; which
// of these exist; and the number of ones.
func (s *site) firstOf(flags *ir.Value, n int) (at, there, count *ir.Value) {
	before := s.add("CumSum", ir.Attrs{"axis": 0, "exclusive": true}, flags)
	at = s.placed(flags, before, s.iota(ir.Int64, flags.Type.Shape[0], 0, 1), n, "none")
	count = s.reduce("ReduceSum", flags, []int{0}, false)
	return at, s.op("Less", s.iota(ir.Int32, n, 0, 1), count), count
}

// placed moves the values whose flag is 1 to their places, i32, those below n, or adds up what comes to the same
// place. All are [L], the result is i64 [n].
func (s *site) placed(flags, places, values *ir.Value, n int, reduction string) *ir.Value {
	s.bound(n)
	last := s.like(places, float64(n))
	to := s.where(s.op("Equal", flags, s.like(flags, 1)), s.op("Min", places, last), last)
	all := s.add("ScatterElements", ir.Attrs{"axis": 0, "reduction": reduction}, s.fill(ir.Int64, 0, n+1), to, values)
	return s.part(all, 0, 0, n)
}

// isTrue is x ≠ 0 as i32, flat.
func (s *site) isTrue(x *ir.Value) *ir.Value {
	return s.cast(s.cast(s.reshape(x, x.Type.Numel()), ir.Bool), ir.Int32)
}

// nonZero lists the indices of elements that are not zero, one row a dimension.
func nonZero(s *site) {
	x := s.in(0)
	if t := s.valueOf(x); t != nil {
		y := s.nonZeroOf(t)
		if p, ok := s.im.padded[x]; ok {
			if t.Rank() != 1 || y.Type.Shape[1] != t.Numel() {
				s.refuse(unpad, "its input is as long as node %q has outputs, which is known only at run time", p.node)
			}
			s.im.padded[y] = padding{1, p.size, p.node} // older exporters count up this way
		} else {
			s.knows(x)
		}
		s.out(0, y)
		return
	}
	shape := x.Type.Shape
	total := product(shape)
	if s.rank(x, 1); total == 0 {
		s.out(0, s.intsConst(nil, len(shape), 0))
		return
	}
	n := s.atMost()
	at, _, count := s.firstOf(s.isTrue(x), n)
	s.out(0, s.concat(0, s.coordinates(at, shape)...))
	s.found(count)
	s.padTo(n, 1, 0)
}

// coordinates are those of positions at, [n], in a shape, each as [1,n].
func (s *site) coordinates(at *ir.Value, shape []int) []*ir.Value {
	rows := make([]*ir.Value, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		size := s.scalar(ir.Int64, float64(shape[d]))
		rows[d] = s.unsqueeze(s.op("Mod", at, size), 0)
		at = s.op("Div", at, size)
	}
	return rows
}

// nonZeroOf is NonZero of a constant.
func (s *site) nonZeroOf(t *ir.Tensor) *ir.Value {
	s.bound(t.Shape...)
	r := t.Rank()
	rows := make([][]int64, r)
	count := 0
	for i := range t.Numel() {
		if t.FloatAt(i) == 0 {
			continue
		}
		count++
		rest := i
		for d := r - 1; d >= 0; d-- {
			rows[d] = append(rows[d], int64(rest%t.Shape[d]))
			rest /= t.Shape[d]
		}
	}
	return s.intsConst(slices.Concat(rows...), r, count)
}

// compress picks the elements whose condition holds.
func compress(s *site) {
	x, cond := s.in(0), s.exactly(s.in(1), 1)
	axis := 0
	if s.hasAttr("axis") {
		axis = s.axisOf(x, 0)
	} else {
		x = s.reshape(x, x.Type.Numel())
	}
	length := cond.Type.Shape[0]
	if t := s.valueOf(cond); t != nil {
		s.knows(cond)
		s.bound(cond.Type.Shape...)
		var picked []int
		for i, v := range t.Ints() {
			if v != 0 {
				picked = append(picked, i)
			}
		}
		s.out(0, s.add("Gather", ir.Attrs{"axis": axis}, x, s.vector(picked...)))
		return
	}
	if length > x.Type.Shape[axis] || length == 0 {
		s.fail("%d conditions for dimension %d of %v", length, axis, x.Type)
	}
	n := s.atMost()
	at, there, count := s.firstOf(s.isTrue(cond), n)
	s.out(0, s.rowsAt(x, axis, at, there))
	s.found(count)
	s.padTo(n, axis, 0)
}

// rowsAt picks positions along an axis, 0 where there are none.
func (s *site) rowsAt(x *ir.Value, axis int, at, there *ir.Value) *ir.Value {
	y := s.add("Gather", ir.Attrs{"axis": axis}, x, at)
	return s.where(s.alongAxis(there, axis, x.Type.Rank()), y, s.like(y, 0))
}

// maxPairs limits the pairs of elements that Unique compares: the evaluator holds them.
const maxPairs = 1 << 24

// unique compares all pairs: an element is the first of its kind if none before it is equal; the place of a kind
// among the sorted ones is the number of first ones that are less.
func unique(s *site) {
	x := s.in(0)
	rows := s.reshape(x, x.Type.Numel(), 1) // [L,K]: what is compared
	axis := 0
	if s.hasAttr("axis") {
		axis = s.axisOf(x, 0)
		perm := slices.Delete(iotaInts(x.Type.Rank()), axis, axis+1)
		moved := s.transpose(x, slices.Insert(perm, 0, axis)...)
		rows = s.reshape(moved, moved.Type.Shape[0], product(moved.Type.Shape[1:]))
	} else {
		x = s.reshape(x, x.Type.Numel())
	}
	length, width := rows.Type.Shape[0], rows.Type.Shape[1]
	if length == 0 || width == 0 {
		s.fail("x is %v: no elements", x.Type)
	}
	if length*length > maxPairs/width {
		s.refuse("compile it for smaller shapes", "%d elements would be compared with each other", length*width)
	}
	if rows.Type.DType == ir.Bool {
		rows = s.cast(rows, ir.Int32)
	}
	n := s.atMost()
	mine, other := s.reshape(rows, length, 1, width), s.reshape(rows, 1, length, width)
	// Rows are compared by the first element that differs.
	k := s.iota(ir.Int32, width, 2, 3)
	differ := s.reduce("ReduceMin", s.where(s.op("Equal", mine, other), s.scalar(ir.Int32, float64(width)), k), []int{2}, true)
	equal := s.reshape(s.op("Equal", differ, s.scalar(ir.Int32, float64(width))), length, length)
	less := s.op("And", s.op("Equal", k, differ), s.op("Less", other, mine)) // the other is less than mine
	less = s.reduce("ReduceMax", s.cast(less, ir.Int32), []int{2}, false)

	one := func(v *ir.Value) *ir.Value { return s.cast(v, ir.Int32) }
	sum := func(v *ir.Value, axis int) *ir.Value { return s.reduce("ReduceSum", v, []int{axis}, false) }
	i, j := s.iota(ir.Int32, length, 0, 2), s.iota(ir.Int32, length, 1, 2)
	earlier := sum(one(s.op("And", equal, s.op("Less", j, i))), 1)
	first := one(s.op("Equal", earlier, s.scalar(ir.Int32, 0))) // [L]
	var place *ir.Value                                         // of each element's kind
	if s.bool("sorted", true) {
		place = sum(s.op("Mul", less, s.reshape(first, 1, length)), 1)
	} else {
		order := s.add("CumSum", ir.Attrs{"axis": 0, "exclusive": true}, first)
		place = sum(s.op("Mul", one(equal), s.reshape(s.op("Mul", order, first), 1, length)), 1)
	}
	index := s.placed(first, place, s.iota(ir.Int64, length, 0, 1), n, "none")
	count := sum(first, 0)
	there := s.op("Less", s.iota(ir.Int32, n, 0, 1), count)
	s.out(0, s.rowsAt(x, axis, index, there))
	s.out(1, index)
	s.out(2, s.cast(place, ir.Int64))
	ones := s.fill(ir.Int32, 1, length)
	s.out(3, s.placed(ones, place, s.cast(ones, ir.Int64), n, "add"))
	s.found(count)
	s.padTo(n, axis, 0)
	s.padTo(n, 0, 1, 3)
}

// nonMaxSuppression picks for every sample and class the box of the highest score again and again, each time dropping
// the boxes that overlap it. The steps are unrolled. A class yields at most one box more than the bound, so that a
// count above the bound says that boxes are missing, but not always how many.
func nonMaxSuppression(s *site) {
	boxes, scores := s.exactly(s.in(0), 3), s.exactly(s.in(1), 3)
	batch, classes, size := scores.Type.Shape[0], scores.Type.Shape[1], scores.Type.Shape[2]
	if !slices.Equal(boxes.Type.Shape, []int{batch, size, 4}) {
		s.fail("boxes are %v and scores %v, want [B,S,4] and [B,C,S]", boxes.Type, scores.Type)
	}
	limit, perClass := size, s.opt(2)
	if perClass == nil || s.valueOf(perClass) != nil {
		limit, perClass = min(s.knownInt(2, "max_output_boxes_per_class", 0), size), nil
	}
	if limit < 1 || batch*classes == 0 {
		s.out(0, s.intsConst(nil, 0, 3))
		return
	}
	n := s.atMost()
	steps := min(limit, n+1)
	if steps > s.im.opt.MaxUnroll {
		s.refuse("give a lower bound with --max-output", "%d boxes of a class: at most %d steps are unrolled", steps, s.im.opt.MaxUnroll)
	}
	d := scores.Type.DType
	none := s.negInf(d)
	threshold := s.scalar(d, 0)
	if t := s.opt(3); t != nil {
		threshold = s.number(t)
	}
	left := s.fill(ir.Bool, 1, scores.Type.Shape...) // which boxes are left
	if t := s.opt(4); t != nil {
		left = s.op("Greater", scores, s.number(t))
	} else {
		scores = s.op("Max", scores, s.scalar(d, -math.MaxFloat32))
	}
	sides := s.sides(boxes)
	columns := mapped(sides, func(v *ir.Value) *ir.Value { return s.reshape(v, batch*size, 1) })
	table := s.concat(1, columns...)
	start := s.op("Mul", s.iota(ir.Int64, batch, 0, 3), s.scalar(ir.Int64, float64(size))) // of a sample's boxes
	number := s.iota(ir.Int32, size, 2, 3)
	var picked, flags []*ir.Value
	for step := range steps {
		best := s.add("ArgMax", ir.Attrs{"axis": 2, "keepdims": true}, s.where(left, scores, none))
		flag := s.reduce("ReduceMax", left, []int{2}, true)
		if perClass != nil {
			flag = s.op("And", flag, s.op("Greater", s.number(perClass), s.scalar(ir.Int64, float64(step))))
		}
		picked, flags = append(picked, best), append(flags, s.cast(flag, ir.Int32))
		if step == steps-1 {
			break
		}
		row := s.add("Gather", ir.Attrs{"axis": 0}, table, s.op("Add", best, start)) // [B,C,1,5]
		pick := mapped(iotaInts(len(sides)), func(i int) *ir.Value { return s.index(row, 3, i) })
		drop := s.op("Or", s.op("Equal", number, s.cast(best, ir.Int32)), s.overlap(sides, pick, threshold))
		left = s.op("And", left, s.op("Not", drop))
	}
	s.selected(s.concat(2, picked...), s.concat(2, flags...), n)
}

// selected sets the output to the boxes of all samples and classes, one after the other: rows of sample, class and
// box. picked and flags are [B,C,M].
func (s *site) selected(picked, flags *ir.Value, n int) {
	shape := picked.Type.Shape
	at, there, count := s.firstOf(s.reshape(flags, product(shape)), n)
	box := s.add("Gather", ir.Attrs{"axis": 0}, s.reshape(picked, product(shape)), at)
	rows := s.coordinates(at, shape)
	rows[2] = s.unsqueeze(s.where(there, box, s.scalar(ir.Int64, 0)), 0)
	s.out(0, s.transpose(s.concat(0, rows...), 1, 0))
	s.found(count)
	s.padTo(n, 0, 0)
}

// sides are a box's lower and upper coordinates, y and x, y and x, and its area, each [B,1,S]. Files give any two
// opposite corners, or centre and size, x first.
func (s *site) sides(boxes *ir.Value) []*ir.Value {
	column := func(i int) *ir.Value { return s.unsqueeze(s.index(boxes, 2, i), 1) }
	a, b, c, d := column(0), column(1), column(2), column(3)
	var sides []*ir.Value
	if s.bool("center_point_box", false) {
		low := func(at, size *ir.Value) *ir.Value { return s.eval("x - y/2", at, size) }
		high := func(at, size *ir.Value) *ir.Value { return s.eval("x + y/2", at, size) }
		sides = []*ir.Value{low(b, d), low(a, c), high(b, d), high(a, c)}
	} else {
		sides = []*ir.Value{s.op("Min", a, c), s.op("Min", b, d), s.op("Max", a, c), s.op("Max", b, d)}
	}
	return append(sides, s.eval("(x-y)*(z-u)", sides[2], sides[0], sides[3], sides[1]))
}

// overlap reports whether intersection over union of boxes exceeds the threshold.
func (s *site) overlap(a, b []*ir.Value, threshold *ir.Value) *ir.Value {
	side := func(low int) *ir.Value {
		return s.eval("max(min(x, y) - max(z, u), 0)", a[low+2], b[low+2], a[low], b[low])
	}
	return s.eval("x > 0 && x/(y+z-x) > u", s.op("Mul", side(0), side(1)), a[4], b[4], threshold)
}

// checkBounds refuses names of MaxOutput that no node has.
func (im *importer) checkBounds() error {
	for _, name := range sortedKeys(im.opt.MaxOutput) {
		if im.counts.used[name] {
			continue
		}
		e := im.m.fileError("--max-output %s=%d: no node of that name has a number of outputs that depends on data", name, im.opt.MaxOutput[name])
		if len(im.counts.seen) > 0 {
			return e.WithRemedy("such nodes are %q", im.counts.seen)
		}
		return e.WithRemedy("leave it out")
	}
	return nil
}
