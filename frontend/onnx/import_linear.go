package onnx

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var linearOperators = []operator{
	{name: "MatMul", since: 7, convert: oneOp("MatMul")},
	{name: "Gemm", since: 7, convert: gemm},
	{name: "MatMulInteger", since: 10, convert: matMulInteger},
	{name: "QLinearMatMul", since: 10, convert: qLinearMatMul},
	{name: "Einsum", since: 12, convert: einsum},
	{name: "Det", since: 11, convert: composite(det)},
}

func gemm(s *site) { s.out(0, s.gemm()) }

// gemm is α·A'·B'+β·C, in the wide type unless it is a MatMul alone.
func (s *site) gemm() *ir.Value {
	a, b := s.exactly(s.in(0), 2), s.exactly(s.in(1), 2)
	alpha, beta := s.float("alpha", 1), s.float("beta", 1)
	c := s.opt(2)
	if beta == 0 {
		c = nil
	}
	d := a.Type.DType
	if !d.IsFloat() && (alpha != math.Trunc(alpha) || beta != math.Trunc(beta)) {
		s.refuse("multiply in another node", "scaling integers by alpha=%v and beta=%v is not supported", alpha, beta)
	}
	attrs := ir.Attrs{"transA": s.bool("transA", false), "transB": s.bool("transB", false)}
	if alpha == 1 && c == nil {
		return s.add("MatMul", attrs, a, b)
	}
	y := s.add("MatMul", attrs, s.wide(a), s.wide(b))
	shape := y.Type.Shape
	if alpha != 1 {
		y = s.op("Mul", y, s.like(y, alpha))
	}
	if c != nil {
		v := s.cast(c, y.Type.DType)
		if beta != 1 {
			v = s.op("Mul", v, s.like(v, beta))
		}
		y = s.op("Add", y, v)
	}
	if !slices.Equal(y.Type.Shape, shape) {
		s.fail("C %v does not broadcast to %v", c.Type, shape)
	}
	return s.cast(y, d)
}

func matMulInteger(s *site) {
	a, b := s.in(0), s.in(1)
	s.out(0, s.op("MatMul", s.shifted(a, s.opt(2), max(0, a.Type.Rank()-2)), s.shifted(b, s.opt(3), b.Type.Rank()-1)))
}

// qLinearMatMul multiplies integers in i32 and scales, rounds and saturates once. Scales are one, or one a row of a and
// a column of b.
func qLinearMatMul(s *site) {
	a, b := s.in(0), s.in(3)
	acc := s.op("MatMul", s.shifted(a, s.in(2), max(0, a.Type.Rank()-2)), s.shifted(b, s.in(5), b.Type.Rank()-1))
	r := acc.Type.Rank()
	as := s.parameter(s.cast(s.in(1), ir.Float32), max(0, r-2), r)
	bs := s.parameter(s.cast(s.in(4), ir.Float32), r-1, r)
	s.out(0, s.requantize(acc, s.op("Mul", as, bs), s.in(6), s.in(7)))
}

// einsum writes the equation in its explicit form: blanks removed, ellipsis as letters, the output spelled out.
// Operands lose dimensions of 1 that an ellipsis broadcasts.
func einsum(s *site) {
	vs := s.all()
	eq := strings.ReplaceAll(s.string("equation", ""), " ", "")
	left, out, explicit := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(vs) {
		s.fail("equation %q has %d operands, the node %d", eq, len(terms), len(vs))
	}
	free := freeLetters(eq)
	// Letters of the ellipsis, last dimension first, shared by all operands.
	var dots []byte
	sizes := map[byte]int{}
	expanded := make([]string, len(terms))
	for i, term := range terms {
		before, after, has := strings.Cut(term, "...")
		n := vs[i].Type.Rank() - len(before) - len(after)
		if n < 0 || !has && n != 0 {
			s.fail("equation %q: %q does not fit %v", eq, term, vs[i].Type)
		}
		for len(dots) < n {
			if len(free) == 0 {
				s.fail("equation %q has too many dimensions", eq)
			}
			dots, free = append(dots, free[0]), free[1:]
		}
		mid := reversed(dots[:n])
		expanded[i] = before + mid + after
		for j := range n {
			c, d := mid[j], vs[i].Type.Shape[len(before)+j]
			sizes[c] = max(sizes[c], d, 1)
			if d == 0 {
				sizes[c] = 0
			}
		}
	}
	ellipsis := reversed(dots)
	for i, term := range expanded {
		vs[i], expanded[i] = s.dropOnes(vs[i], term, ellipsis, sizes)
	}
	if explicit {
		out = strings.Replace(out, "...", ellipsis, 1)
	} else {
		out = ellipsis + implicitOutput(terms)
	}
	s.out(0, s.add("Einsum", ir.Attrs{"equation": fmt.Sprintf("%s->%s", strings.Join(expanded, ","), out)}, vs...))
}

// dropOnes removes the dimensions of 1 of a term that the ellipsis broadcasts to larger ones.
func (s *site) dropOnes(v *ir.Value, term, ellipsis string, sizes map[byte]int) (*ir.Value, string) {
	var shape []int
	var kept []byte
	for j := range len(term) {
		if d := v.Type.Shape[j]; d == 1 && strings.IndexByte(ellipsis, term[j]) >= 0 && sizes[term[j]] > 1 {
			continue
		}
		shape, kept = append(shape, v.Type.Shape[j]), append(kept, term[j])
	}
	return s.reshape(v, shape...), string(kept)
}

// freeLetters are those that an equation does not use.
func freeLetters(eq string) []byte {
	var free []byte
	for _, c := range []byte("ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba") {
		if strings.IndexByte(eq, c) < 0 {
			free = append(free, c)
		}
	}
	return free
}

func reversed(b []byte) string {
	c := slices.Clone(b)
	slices.Reverse(c)
	return string(c)
}

// implicitOutput is the letters that occur once, in order (the form without an arrow).
func implicitOutput(terms []string) string {
	count := map[byte]int{}
	for _, t := range terms {
		for _, c := range []byte(strings.ReplaceAll(t, "...", "")) {
			count[c]++
		}
	}
	var out []byte
	for c, n := range count {
		if n == 1 {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return string(out)
}

// maxMinors bounds the matrices whose determinant is expanded by minors, maxDet those that are eliminated, a column
// at a time.
const maxMinors, maxDet = 5, 128

// det is the expansion along the first row, or for larger matrices the product of the pivots.
func det(s *site, x *ir.Value) *ir.Value {
	r := s.rank(x, 2)
	n := x.Type.Shape[r-1]
	if x.Type.Shape[r-2] != n || n == 0 {
		s.fail("x is %v, want square matrices", x.Type)
	}
	if n > maxDet {
		s.refuse("compute it outside of the model", "determinants of matrices larger than %d×%d are not supported", maxDet, maxDet)
	}
	if n > maxMinors {
		return s.pivots(x)
	}
	at := make([][]*ir.Value, n)
	for i := range n {
		row := s.index(x, r-2, i)
		for j := range n {
			at[i] = append(at[i], s.index(row, r-2, j))
		}
	}
	return s.minor(at, 0, iotaInts(n))
}

// pivots is the determinant by Gaussian elimination with partial pivoting (Golub and Van Loan, Matrix Computations,
// 3.4): each step exchanges the first row with the one of the largest element in the first column, and leaves a
// matrix of one row and column less.
func (s *site) pivots(x *ir.Value) *ir.Value {
	r := x.Type.Rank()
	row, col := r-2, r-1
	var product *ir.Value
	for n := x.Type.Shape[col]; ; n-- {
		if n == 1 {
			return s.op("Mul", product, s.reshape(x, x.Type.Shape[:row]...))
		}
		first := s.part(x, col, 0, 1) // [..,n,1]
		best := s.add("ArgMax", ir.Attrs{"axis": row, "keepdims": true}, s.op("Abs", first))
		chosen := s.op("Equal", s.cast(best, ir.Int32), s.iota(ir.Int32, n, row, r))
		top := s.reduce("ReduceSum", s.where(chosen, x, s.like(x, 0)), []int{row}, true) // [..,1,n]
		rest := s.part(s.where(chosen, s.part(x, row, 0, 1), x), row, 1, n-1)
		pivot := s.part(top, col, 0, 1)
		divisor := s.where(s.op("Equal", pivot, s.like(x, 0)), s.like(x, 1), pivot) // the column is 0, and so is the determinant
		factor := s.op("Div", s.part(rest, col, 0, 1), divisor)
		x = s.op("Sub", s.part(rest, col, 1, n-1), s.op("Mul", factor, s.part(top, col, 1, n-1)))
		sign := s.where(s.op("Equal", best, s.scalar(ir.Int64, 0)), s.like(x, 1), s.like(x, -1))
		signed := s.reshape(s.op("Mul", pivot, sign), x.Type.Shape[:row]...)
		if product == nil {
			product = signed
		} else {
			product = s.op("Mul", product, signed)
		}
	}
}

// minor is the determinant of the rows from row on in the given columns.
func (s *site) minor(at [][]*ir.Value, row int, cols []int) *ir.Value {
	if len(cols) == 1 {
		return at[row][cols[0]]
	}
	var sum *ir.Value
	for i, c := range cols {
		rest := slices.Delete(slices.Clone(cols), i, i+1)
		term := s.op("Mul", at[row][c], s.minor(at, row+1, rest))
		switch {
		case sum == nil:
			sum = term
		case i%2 == 0:
			sum = s.op("Add", sum, term)
		default:
			sum = s.op("Sub", sum, term)
		}
	}
	return sum
}
