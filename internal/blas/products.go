package blas

import "slices"

const productCols = 16

// Rows32 are rows of a row-major matrix of f32.
type Rows32 struct {
	F      []float32 // from the first element of the first row on
	Stride int       // elements from one row to the next
	Count  int
}

// Panels are the rows of a matrix of f32, packed to be multiplied with many others: 16 rows lie side by side, the missing ones
// of the last panel zero.
type Panels struct {
	f       []float32
	rows, k int
	bias    []float32 // of the rows, those of a panel that are missing zero; nil: none
}

// noBias are the biases of a panel that has none: no sum that began at 0 is −0, so adding 0 leaves it as it is.
var noBias [productCols]float32

// Bias adds a number to every product of a panel row, after the last multiplication.
func (b *Panels) Bias(of []float32) {
	b.bias = make([]float32, (b.rows+productCols-1)/productCols*productCols)
	copy(b.bias, of[:b.rows])
}

// biasOf are those of the panel that begins at a row.
func (b *Panels) biasOf(row int) []float32 {
	if b.bias == nil {
		return noBias[:]
	}
	return b.bias[row:][:productCols]
}

// Pack packs rows of k elements.
func Pack(b Rows32, k int) *Panels {
	p := &Panels{}
	p.Pack(b, k)
	return p
}

// Pack packs rows of k elements in place of what was packed before, where there is room for them.
func (p *Panels) Pack(b Rows32, k int) {
	*p = Panels{f: slices.Grow(p.f[:0], (b.Count+productCols-1)/productCols*productCols*k), rows: b.Count, k: k}
	p.f = p.f[:cap(p.f)]
	if k == 0 {
		return
	}
	for j := 0; j < b.Count; j += productCols {
		to := p.f[j*k:][:productCols*k]
		if j+productCols > b.Count {
			clear(to)
			for r := range b.Count - j {
				for i, x := range b.F[(j+r)*b.Stride:][:k] {
					to[i*productCols+r] = x
				}
			}
			continue
		}
		interleave(to, b.F[j*b.Stride:], b.Stride, k)
		interleave(to[productCols/2:], b.F[(j+productCols/2)*b.Stride:], b.Stride, k)
	}
}

// interleave transposes eight rows of k elements into half of a panel.
func interleave(to, from []float32, stride, k int) {
	var r [productCols / 2][]float32
	for i := range r {
		r[i] = from[i*stride:][:k]
	}
	r0, r1, r2, r3, r4, r5, r6, r7 := r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]
	for i, x := range r0 {
		d := (*[productCols / 2]float32)(to[i*productCols:])
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = x, r1[i], r2[i], r3[i], r4[i], r5[i], r6[i], r7[i]
	}
}

// Products sets element (i, j) of c to the product of row i of a and packed row j, in f32. Each term is rounded
// before it is added, in ascending order. stride is the row stride of c.
func Products(c []float32, stride int, a Rows32, b *Panels) {
	row := func(i int) []float32 { return a.F[i*a.Stride:][:b.k] }
	b.products(c, stride, a.Count, func(i int) *float32 { return &row(i)[0] }, nil, row)
}

// Scattered are rows of f32 at offsets: element k of row i is F[Starts[i]+Offsets[k]].
type Scattered struct {
	F               []float32
	Starts, Offsets []int32
}

// ProductsOf is Products of rows that are scattered.
func ProductsOf(c []float32, stride int, a Scattered, b *Panels) {
	if b.k == 0 || len(a.Starts) == 0 {
		Products(c, stride, Rows32{Count: len(a.Starts)}, b)
		return
	}
	offsets := a.Offsets[:b.k]
	_, _ = a.F[slices.Min(a.Starts)+slices.Min(offsets)], a.F[slices.Max(a.Starts)+slices.Max(offsets)] // nothing else is checked
	gathered := make([]float32, b.k)
	b.products(c, stride, len(a.Starts), func(i int) *float32 { return &a.F[a.Starts[i]] }, &offsets[0], func(i int) []float32 {
		for k, at := range offsets {
			gathered[k] = a.F[a.Starts[i]+at]
		}
		return gathered
	})
}

// products multiplies rows that are contiguous, or whose elements are at offsets. Without vector instructions it
// reads each row as a whole.
func (b *Panels) products(c []float32, stride, count int, start func(i int) *float32, offsets *int32, row func(i int) []float32) {
	if b.k == 0 {
		for i := range count {
			to := c[i*stride:][:b.rows]
			clear(to)
			for n, y := range b.bias[:min(b.rows, len(b.bias))] {
				to[n] += y
			}
		}
		return
	}
	var sums [tileRows * productCols]float32
	if !vectors {
		for i := range count {
			x := row(i)
			for j := 0; j < b.rows; j += productCols {
				products1(sums[:productCols], x, b.f[j*b.k:][:productCols*b.k])
				for n, y := range b.biasOf(j) {
					sums[n] += y
				}
				copy(c[i*stride+j:][:min(productCols, b.rows-j)], sums[:])
			}
		}
		return
	}
	var from, to [tileRows]*float32
	for i := 0; i < count; i += tileRows {
		height := min(tileRows, count-i)
		for r := range from { // rows that are not there repeat the last one
			from[r] = start(i + min(r, height-1))
		}
		for j := 0; j < b.rows; j += productCols {
			width := min(productCols, b.rows-j)
			direct := wide || width == productCols
			for r := range to {
				if direct {
					to[r] = &c[(i+min(r, height-1))*stride+j:][:width][0]
				} else {
					to[r] = &sums[r*productCols]
				}
			}
			panel, bias, columns := &b.f[j*b.k:][:productCols*b.k][0], &b.biasOf(j)[0], uint32(1)<<width-1
			if offsets == nil {
				tile32(&to, &from, height, panel, b.k, bias, columns)
			} else {
				tile32at(&to, &from, height, panel, b.k, bias, columns, offsets)
			}
			for r := 0; r < height && !direct; r++ {
				copy(c[(i+r)*stride+j:][:width], sums[r*productCols:])
			}
		}
	}
}

// products1 multiplies one row with a panel.
func products1(sums, row, panel []float32) {
	clear(sums)
	for k, x := range row {
		for j, y := range panel[k*productCols:][:productCols] {
			sums[j] += float32(x * y)
		}
	}
}
