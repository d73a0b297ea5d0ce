package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Weights of com.microsoft in blocks that share a scale and a zero point. Bytes hold elements of 2 or 4 bits from the
// low bits up, as ONNX packs them, so that the file's bytes are the tensor.

// packedType is the type of packed elements, and how many are in a byte.
func (s *site) packedType() (d ir.DType, perByte int) {
	bits := s.int("bits", 4)
	d, ok := map[int]ir.DType{2: ir.Uint2, 4: ir.Uint4, 8: ir.Uint8}[bits]
	if !ok {
		s.refuse("quantise to 4 or 8 bits", "bits=%d is not supported", bits)
	}
	return d, 8 / bits
}

// packedCodes is input i, a constant of bytes, as codes of a type and a shape whose last dimension is padded to whole
// bytes in the file.
func (s *site) packedCodes(i int, d ir.DType, shape ...int) *ir.Value {
	s.in(i)
	t := s.known(i, "packed weights")
	perByte := 8 / d.Bits()
	last := len(shape) - 1
	stored := slices.Clone(shape)
	stored[last] = (shape[last] + perByte - 1) / perByte * perByte
	if want := product(stored) / perByte; t.DType != ir.Uint8 || t.Numel() != want {
		s.fail("input %d is %v, want %d bytes for %v", i, t.Type, want, shape)
	}
	return s.part(s.constant(&ir.Tensor{Type: ir.T(d, stored...), Data: t.Dense()}), last, 0, shape[last])
}

// matMulNBits multiplies by weights [N,K] of 2, 4 or 8 bits, in blocks along K. Zero points are packed as the weights
// are, or are numbers of the input's type.
func matMulNBits(s *site) {
	x := s.in(0)
	n, k, block := s.int("N", 0), s.int("K", 0), s.int("block_size", 0)
	d, perByte := s.packedType()
	if n < 1 || k < 1 || block < 1 || block%perByte != 0 || x.Type.Rank() < 1 || x.Type.Shape[x.Type.Rank()-1] != k {
		s.fail("N=%d, K=%d, block_size=%d, input %v", n, k, block, x.Type)
	}
	blocks := (k + block - 1) / block
	w := s.part(s.packedCodes(1, d, n, blocks*block), 1, 0, k)
	wide := s.wide(x)
	if order := s.blockOrder(k, block); order != nil {
		w = s.add("Gather", ir.Attrs{"axis": 1}, w, order)
		wide = s.add("Gather", ir.Attrs{"axis": x.Type.Rank() - 1}, wide, order)
	}
	scale := s.wide(s.reshape(s.in(2), n, blocks))
	zero, shift := s.opt(3), (*ir.Value)(nil)
	switch {
	case zero == nil:
		zero = s.fill(d, float64(int(1)<<(d.Bits()-1)), n, blocks)
	case zero.Type.DType.IsFloat():
		zero, shift = s.zeroCodes(d, n, blocks)
	default:
		zero = s.packedCodes(3, d, n, blocks)
	}
	w = s.add("DequantizeLinear", ir.Attrs{"to": scale.Type.DType, "axis": 1, "block": block}, w, scale, zero)
	y := s.add("MatMul", ir.Attrs{"transB": true}, wide, w)
	if shift != nil {
		sums := s.blockSums(wide, block, blocks)
		y = s.op("Sub", y, s.add("MatMul", ir.Attrs{"transB": true}, sums, s.op("Mul", shift, scale)))
	}
	if bias := s.opt(5); bias != nil {
		y = s.op("Add", y, s.wide(bias))
	}
	s.out(0, s.cast(y, x.Type.DType))
}

// zeroCodes splits zero points that are numbers, input 3, into the nearest codes and what is left, nil if nothing is.
// Only the codes can be taken from weights that stay codes.
func (s *site) zeroCodes(d ir.DType, n, blocks int) (codes, rest *ir.Value) {
	t := s.known(3, "zero points")
	if t.Numel() != n*blocks {
		s.fail("zero points are %v, want [%d %d]", t.Type, n, blocks)
	}
	points := t.Floats()
	near := make([]float64, len(points))
	for i, x := range points {
		near[i] = min(max(math.RoundToEven(x), 0), float64(int(1)<<d.Bits()-1))
		points[i] -= near[i]
	}
	codes = s.numbers(d, near, n, blocks)
	if !slices.ContainsFunc(points, func(x float64) bool { return x != 0 }) {
		return codes, nil
	}
	return codes, s.floatsConst(wideType(t.DType), points, n, blocks)
}

// blockSums are sums of blocks along the last dimension: what the rest of a block's zero point is multiplied by.
func (s *site) blockSums(x *ir.Value, block, blocks int) *ir.Value {
	r := x.Type.Rank()
	x = s.padEnd(x, r-1, blocks*block-x.Type.Shape[r-1], 0)
	x = s.reshape(x, slices.Concat(x.Type.Shape[:r-1], []int{blocks, block})...)
	return s.reduce("ReduceSum", x, []int{r}, false)
}

// blockOrder is the order of the columns in which those of a block follow each other, nil where they do. Input g_idx
// names each column's block.
func (s *site) blockOrder(k, block int) *ir.Value {
	of := s.knownInts(4, "g_idx")
	if of == nil {
		return nil
	}
	if len(of) < k {
		s.fail("g_idx has %d elements, want %d", len(of), k)
	}
	order := iotaInts(k)
	slices.SortStableFunc(order, func(a, b int) int { return of[a] - of[b] })
	for i, column := range order {
		if of[column] != i/block {
			s.refuse("quantise blocks of block_size columns each",
				"g_idx has block %d for column %d, so that block %d has not %d columns", of[column], column, i/block, block)
		}
	}
	if slices.IsSorted(order) {
		return nil
	}
	return s.vector(order...)
}

// gatherBlockQuantized is Gather of weights in blocks along one axis, then DequantizeLinear: what is not taken stays
// as it is. An index beyond the axis takes zeros.
func gatherBlockQuantized(s *site) {
	data, scale, zero := s.in(0), s.in(2), s.opt(3)
	shape := slices.Clone(data.Type.Shape)
	r := s.rank(data, 1)
	along, blocked := s.axis(s.int("gather_axis", 0), r), s.axis(s.int("quantize_axis", 1), r)
	block := s.int("block_size", 128)
	switch d := data.Type.DType; {
	case d == ir.Uint8:
		d, perByte := s.packedType()
		if along == r-1 && perByte > 1 {
			s.refuse("gather along another axis",
				"gather_axis=%d, along which bytes hold several elements, is not supported", along)
		}
		shape[r-1] *= perByte
		if s.exactly(scale, r); zero != nil {
			zero = s.packedCodes(3, d, scale.Type.Shape...)
		} else {
			zero = s.fill(d, float64(int(1)<<(d.Bits()-1)), scale.Type.Shape...)
		}
		data = s.packedCodes(0, d, shape...)
	case d.IsFloat():
		if block == 0 {
			block = max(1, shape[blocked])
		}
		if zero != nil {
			s.fail("zero_points of %v", data.Type)
		}
	}
	if block < 1 {
		s.fail("block_size=%d", block)
	}
	of := slices.Clone(shape)
	of[blocked] = (shape[blocked] + block - 1) / block
	scale = s.wide(s.expand(s.exactly(scale, r), of...))
	dequantised := func(axis int, x, scale, zero *ir.Value) *ir.Value {
		return s.add("DequantizeLinear", ir.Attrs{"to": scale.Type.DType, "axis": axis, "block": block}, x, scale, zero)
	}
	index, inside := s.tableIndex(s.in(1), shape[along])
	take := func(v *ir.Value) *ir.Value {
		if v == nil {
			return nil
		}
		return s.add("Gather", ir.Attrs{"axis": along}, v, index)
	}
	var y *ir.Value
	switch rank := index.Type.Rank(); {
	case along == blocked:
		y = take(dequantised(blocked, data, scale, zero))
	case along < blocked:
		y = dequantised(blocked+rank-1, take(data), take(scale), take(zero))
	default:
		y = dequantised(blocked, take(data), take(scale), take(zero))
	}
	inside = s.reshape(inside, slices.Concat(index.Type.Shape, ones(r-1-along))...)
	s.out(0, s.cast(s.where(inside, y, s.like(y, 0)), s.in(2).Type.DType))
}

// tableIndex are indices into n elements, of which negative ones count from the end, and whether they are within.
func (s *site) tableIndex(index *ir.Value, n int) (at, inside *ir.Value) {
	index = s.cast(index, ir.Int64)
	zero, size := s.scalar(ir.Int64, 0), s.scalar(ir.Int64, float64(n))
	at = s.where(s.op("Less", index, zero), s.op("Add", index, size), index)
	inside = s.op("And", s.op("GreaterEqual", at, zero), s.op("Less", at, size))
	return s.where(inside, at, zero), inside
}
