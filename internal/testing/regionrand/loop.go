package regionrand

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// loop is movement and elementwise nodes, perhaps with one that is more among them, and perhaps with two results.
func (b *builder) loop() []*ir.Value {
	y := b.expression()
	if !b.oneIn(6) || y.Type.DType != ir.Float32 {
		return []*ir.Value{y}
	}
	z := b.add(pick(b.tape, "Relu", "Neg", "Sigmoid"), nil, y)
	if b.oneIn(2) {
		z = b.add("Reshape", ir.Attrs{"shape": b.factors(y.Type.Numel())}, z)
	}
	return []*ir.Value{y, z}
}

func (b *builder) expression() *ir.Value {
	b.r.Family = ir.FamilyLoop
	b.members()
	var shape []int
	for range 1 + b.below(4) {
		shape = append(shape, pick(b.tape, 1, 2, 3, 5, 7, 8, 16, 24, 33))
	}
	for i := 0; (ir.Type{Shape: shape}).Numel() > 4096; i++ {
		shape[i%len(shape)] = 1 + shape[i%len(shape)]/3
	}
	return b.onwards(b.source(shape))
}

// onwards is what a loop makes of a value.
func (b *builder) onwards(y *ir.Value) *ir.Value {
	for range b.below(4) {
		y = b.light(y)
	}
	if b.below(3) > 0 {
		y = b.heavy(y)
		if y.Type.DType != ir.Float32 {
			return y
		}
		rank := y.Type.Rank()
		if rank == 0 {
			return y
		}
		return b.epilogue(y, y.Type.Shape[rank-1], -1)
	}
	for range b.below(4) {
		y = b.light(y)
	}
	if len(b.body.Nodes) == 0 {
		y = b.add("Neg", nil, y)
	}
	return y
}

// source is an operand as f32.
func (b *builder) source(shape []int) *ir.Value {
	h := how{storage: b.activation(), batched: b.batched()}
	if b.oneIn(5) {
		h.storage = ir.Storage{DType: pick(b.tape, ir.Uint8, ir.Int8, ir.Int32)}
	}
	v := b.operand(h, shape...)
	if v.Type.DType != ir.Float32 {
		v = b.add("Cast", ir.Attrs{"to": ir.Float32}, v)
	}
	return v
}

func (b *builder) light(y *ir.Value) *ir.Value {
	s := y.Type.Shape
	rank := len(s)
	if rank == 0 || y.Type.Numel() > 1<<14 {
		return b.add("Relu", nil, y)
	}
	axis := b.below(rank)
	at := func(x int) []int {
		out := make([]int, rank)
		out[axis] = x
		return out
	}
	switch b.below(13) {
	case 11:
		attrs := ir.Attrs{"to": pick(b.tape, ir.Int8, ir.Uint8, ir.Float8E4M3FN), "scale": pick(b.tape, 0.05, 0.013), "codes": b.oneIn(4)}
		if attrs.DType("to") == ir.Uint8 {
			attrs["zero"] = 120.0
		}
		return b.add("FakeQuantize", attrs, y)
	case 0:
		return b.add(pick(b.tape, "Relu", "Sigmoid", "Tanh", "Gelu", "Silu", "Neg", "Abs"), nil, y)
	case 1:
		if b.oneIn(5) { // what would not overflow
			return b.add("Exp", nil, b.add("Min", nil, y, b.splat(8)))
		}
		return b.add(pick(b.tape, "Add", "Mul", "Sub", "Max"), nil, y, b.source(s))
	case 2:
		other := slices.Clone(s)
		for i := range other {
			if b.oneIn(2) {
				other[i] = 1
			}
		}
		return b.add(pick(b.tape, "Add", "Mul", "Min"), nil, b.source(other), y)
	case 3:
		perm := make([]int, rank)
		for i := range perm {
			perm[i] = i
		}
		b.permute(perm)
		return b.add("Transpose", ir.Attrs{"perm": perm}, y)
	case 4:
		return b.add("Reshape", ir.Attrs{"shape": b.factors(y.Type.Numel())}, y)
	case 5:
		starts, sizes, steps := make([]int, rank), slices.Clone(s), slices.Repeat([]int{1}, rank)
		starts[axis] = b.below(s[axis])
		steps[axis] = pick(b.tape, 1, 2, 3)
		sizes[axis] = (s[axis]-1-starts[axis])/steps[axis] + 1
		if b.oneIn(4) {
			steps[axis], sizes[axis] = -1, starts[axis]+1
		}
		return b.add("Slice", ir.Attrs{"starts": starts, "sizes": sizes, "steps": steps}, y)
	case 6:
		attrs := ir.Attrs{"begin": at(b.below(4)), "end": at(b.below(4)), "mode": pick(b.tape, "constant", "edge", "reflect", "wrap")}
		if attrs.String("mode", "") == "constant" {
			attrs["value"] = pick(b.tape, 0, 1.5)
		}
		return b.add("Pad", attrs, y)
	case 7:
		other := slices.Clone(s)
		other[axis] = 1 + b.below(5)
		return b.add("Concat", ir.Attrs{"axis": axis}, y, b.source(other))
	case 8:
		repeats := slices.Repeat([]int{1}, rank)
		repeats[axis] = 2
		return b.add("Tile", ir.Attrs{"repeats": repeats}, y)
	case 9:
		return b.add("Expand", ir.Attrs{"shape": append([]int{1 + b.below(3)}, s...)}, y)
	case 10:
		xs := make([]int64, 1+b.below(6))
		for i := range xs {
			xs[i] = int64(b.rng.IntN(2*s[axis]) - s[axis])
		}
		t := ir.T(ir.Int64, len(xs))
		b.inputs = append(b.inputs, b.g.Constant(b.g.Fresh("i"), ir.FromInts(t, xs)))
		b.r.Operands = append(b.r.Operands, ir.Operand{Storage: ir.Storage{DType: ir.Int64}})
		return b.add("Gather", ir.Attrs{"axis": axis}, y, b.body.AddInput("i"+b.inputs[len(b.inputs)-1].Name, t))
	}
	if rank != 4 {
		return b.add("Max", nil, y, b.splat(-0.5))
	}
	return b.resize(y, "nearest")
}

// resize scales the two inner dimensions of four.
func (b *builder) resize(y *ir.Value, mode string) *ir.Value {
	s := y.Type.Shape
	sizes, scales := slices.Clone(s), []float64{1, 1, 1, 1}
	for _, i := range []int{2, 3} {
		sizes[i] = max(1, s[i]*pick(b.tape, 2, 3, 1)/pick(b.tape, 1, 2))
		scales[i] = float64(sizes[i]) / float64(s[i])
	}
	return b.add("Resize", ir.Attrs{"sizes": sizes, "scales": scales, "mode": mode, "coordinate": pick(b.tape, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}, y)
}

func (b *builder) factors(n int) []int {
	var s []int
	for n > 1 && len(s) < 3 {
		f := 1 + b.below(n)
		for n%f != 0 {
			f--
		}
		s, n = append(s, f), n/f
	}
	return append(s, n)
}

// heavy is the node of which a loop has one at most.
func (b *builder) heavy(y *ir.Value) *ir.Value {
	s := y.Type.Shape
	rank := len(s)
	axis := b.below(rank)
	switch b.below(11) {
	case 10:
		op := pick(b.tape, "SoftmaxGrad", "RMSNormGrad", "LayerNormGrad")
		in := []*ir.Value{y, b.source(s)}
		if op != "SoftmaxGrad" && b.oneIn(2) {
			in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, s[rank-1]))
		}
		return b.add(op, ir.Attrs{"axis": axis}, in...)
	case 9: // to integers, each channel with its scale
		t := ir.T(ir.Float32, s[axis])
		b.inputs = append(b.inputs, b.g.Constant(b.g.Fresh("q"), positive(b.rng, t)))
		b.r.Operands = append(b.r.Operands, ir.Operand{Storage: ir.Storage{DType: ir.Float32}})
		return b.add("QuantizeLinear", ir.Attrs{"axis": axis, "to": pick(b.tape, ir.Int8, ir.Uint8, ir.Int16)}, y, b.body.AddInput("q"+b.inputs[len(b.inputs)-1].Name, t))
	case 0, 1:
		axes := []int{axis}
		if axis+1 < rank && b.oneIn(2) {
			axes = append(axes, axis+1)
		}
		keep := b.oneIn(2)
		r := b.add(pick(b.tape, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), ir.Attrs{"axes": axes, "keepdims": keep}, y)
		if keep && b.oneIn(2) {
			r = b.add("Sub", nil, y, r)
		}
		return r
	case 2:
		return b.add("Softmax", ir.Attrs{"axis": axis}, y)
	case 3:
		in := []*ir.Value{y}
		for range b.below(3) {
			in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, s[rank-1]))
		}
		return b.add("LayerNorm", ir.Attrs{"axis": rank - 1}, in...)
	case 4:
		return b.add("CumSum", ir.Attrs{"axis": axis, "exclusive": b.oneIn(2), "reverse": b.oneIn(2)}, y)
	case 5:
		if rank != 4 {
			break
		}
		return b.resize(y, pick(b.tape, "linear", "cubic"))
	case 6: // in the layout of files
		if rank != 4 {
			break
		}
		attrs, window, _ := b.window2D(1)
		attrs["kernel"] = window
		return b.add(pick(b.tape, "MaxPool", "AveragePool"), attrs, y)
	case 7:
		if rank != 4 {
			break
		}
		group := 1
		if s[1]%2 == 0 {
			group = pick(b.tape, 1, 2)
		}
		attrs, window, _ := b.window2D(1)
		attrs["group"], attrs["output_padding"] = group, []int{b.below(attrs.Ints("strides")[0]), 0}
		w := b.operand(how{storage: ir.Storage{DType: pick(b.tape, ir.Float32, ir.Float16)}, constant: true, batched: b.r.Members > 0, size: 0.3}, s[1], 1+b.below(3), window[0], window[1])
		return b.add("ConvTranspose", attrs, y, w)
	case 8:
		return b.add("Cast", ir.Attrs{"to": pick(b.tape, ir.Int8, ir.Uint8, ir.Int32)}, b.add("Round", nil, b.add("Mul", nil, y, b.splat(4))))
	}
	return b.add("ReduceMax", ir.Attrs{"axes": []int{axis}}, y)
}
