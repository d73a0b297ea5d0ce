package linear

import "math"

// Axpy adds a times x to y, which is at least as long: each product is rounded before it is added.
func Axpy(a float32, x, y []float32) {
	y = y[:len(x)]
	i := 0
	if vectors {
		if i = len(x) &^ 15; i > 0 {
			axpy(a, &x[0], &y[0], i)
		}
	}
	for ; i < len(x); i++ {
		y[i] += float32(a * x[i])
	}
}

// Magnitude is the greatest of the numbers' bits without sign: of the greatest magnitude, unless one is infinite or NaN.
func Magnitude(x []float32) uint32 {
	top, i := uint32(0), 0
	if vectors {
		if i = len(x) &^ 15; i > 0 {
			top = magnitude(&x[0], i)
		}
	}
	for _, f := range x[i:] {
		top = max(top, math.Float32bits(f)&(1<<31-1))
	}
	return top
}
