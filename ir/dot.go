package ir

// dot is Σ a[k]·b[k], added in ascending k. All kernels below add in that order, so tiling does not change a result.
func dot(a, b []float64) float64 {
	b = b[:len(a)]
	s := 0.0
	for k, x := range a {
		s += float64(x * b[k])
	}
	return s
}

// Dot2x4 is the products of two rows with four, each added in ascending order; the eight sums stay in registers. All rows
// are as long as the first.
func Dot2x4(a0, a1, b0, b1, b2, b3 []float64) (s [8]float64) {
	n := len(a0)
	a1, b0, b1, b2, b3 = a1[:n], b0[:n], b1[:n], b2[:n], b3[:n]
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for k, x := range a0 {
		y := a1[k]
		p, q, r, t := b0[k], b1[k], b2[k], b3[k]
		s0 += float64(x * p)
		s1 += float64(x * q)
		s2 += float64(x * r)
		s3 += float64(x * t)
		s4 += float64(y * p)
		s5 += float64(y * q)
		s6 += float64(y * r)
		s7 += float64(y * t)
	}
	return [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
}

// dotRows calls store(i, j, a_i·b_j) for every row i of a and row j of b; rows are k long, one after the other.
func dotRows(a, b []float64, k int, store func(i, j int, s float64)) {
	if k == 0 {
		return
	}
	rowsA, rowsB := len(a)/k, len(b)/k
	rowA := func(i int) []float64 { return a[i*k : (i+1)*k : (i+1)*k] }
	rowB := func(j int) []float64 { return b[j*k : (j+1)*k : (j+1)*k] }
	j := 0
	for ; j+4 <= rowsB; j += 4 {
		i := 0
		for ; i+2 <= rowsA; i += 2 {
			s := Dot2x4(rowA(i), rowA(i+1), rowB(j), rowB(j+1), rowB(j+2), rowB(j+3))
			for q := range 4 {
				store(i, j+q, s[q])
				store(i+1, j+q, s[4+q])
			}
		}
		for ; i < rowsA; i++ {
			for q := range 4 {
				store(i, j+q, dot(rowA(i), rowB(j+q)))
			}
		}
	}
	for ; j < rowsB; j++ {
		for i := range rowsA {
			store(i, j, dot(rowA(i), rowB(j)))
		}
	}
}

// tileRows is how many rows of length k fit a tile of 256 KiB.
func tileRows(k int) int { return min(max((1<<15)/max(k, 1)/4*4, 4), 64) }
