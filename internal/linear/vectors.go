package linear

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
