package linear

func init() {
	engines["256 bits"] = func(c []float64, stride int, a, b Rows, k int) {
		defer func(w bool) { wide = w }(wide)
		wide = false
		Dots(c, stride, a, b, k)
	}
	productEngines["256 bits"] = func(c []float32, stride int, a Rows32, b *Panels) {
		defer func(w bool) { wide = w }(wide)
		wide = false
		Products(c, stride, a, b)
	}
}
