package regionrand

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// adapted is a layer's product with what an adapter of low rank adds to it, and perhaps factors of the columns of the layer's input.
func (b *builder) adapted() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	m, n := pick(b.tape, 2, 5, 16, 17, 33, 64, 70), pick(b.tape, 2, 3, 8, 16, 20, 33, 64, 96)
	k, r := pick(b.tape, 2, 7, 16, 24, 40, 64, 130, 256, 640), pick(b.tape, 1, 2, 3, 8, 16, 17, 33, 64)
	if m*n*k*max(1, b.r.Members) > 1<<21 {
		m, n = min(m, 16), min(n, 33)
	}
	attrs := ir.Attrs{}
	right := func(name string, k int) []int {
		if b.oneIn(2) {
			attrs[name] = true
			return []int{n, k}
		}
		return []int{k, n}
	}
	d := ir.Storage{DType: pick(b.tape, ir.Float16, ir.BFloat16, ir.Float32)}
	rows := pick(b.tape, []int{m}, []int{1, m}, []int{2, m})
	variable := func(shape ...int) *ir.Value { return b.viewed(how{storage: d, batched: b.batched()}, shape...) }
	x := variable(append(rows, k)...)
	w := b.operand(how{storage: d, constant: true, batched: b.r.Members > 0, size: 1 / math.Sqrt(float64(k))}, right("transB", k)...)
	u := variable(append(rows, r)...)
	in := []*ir.Value{x, w, u, variable(right("transD", r)...)}
	if b.oneIn(3) {
		in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, batched: b.batched()}, k))
	}
	return b.epilogue(b.add("MatMulSum", attrs, in...), n, -1)
}
