//go:build amd64 || arm64

package blas

import "testing"

func init() {
	sumEngines = append(sumEngines, func(t *testing.T, f func(t *testing.T)) {
		defer func(v bool) { vectors = v }(vectors)
		vectors = false
		t.Run("no vectors", f)
	})
	engines["256 bits"] = func(c []float64, stride int, a, b Rows, k int) {
		defer func(w bool) { wide = w }(wide)
		wide = false
		Dots(c, stride, a, b, k)
	}
	for name, f := range map[string]func(c []float32, stride int, a Rows32, b *Panels){"rows": Products, "scattered": scattered} {
		productEngines[name+", 256 bits"] = func(c []float32, stride int, a Rows32, b *Panels) {
			defer func(w bool) { wide = w }(wide)
			wide = false
			f(c, stride, a, b)
		}
		productEngines[name+", no vectors"] = func(c []float32, stride int, a Rows32, b *Panels) {
			defer func(v bool) { vectors = v }(vectors)
			vectors = false
			f(c, stride, a, b)
		}
	}
}
