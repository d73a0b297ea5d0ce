package dataset

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// turned is the rotation by rates about three axes, over a time (Rodrigues).
func turned(rates [3]float64, seconds float64) [3][3]float64 {
	var v [3]float64
	sum := 0.0
	for i := range v {
		v[i] = float64(rates[i] * seconds)
		sum += float64(v[i] * v[i])
	}
	angle := math.Sqrt(sum)
	a, b := 1.0, 0.5 // sin x / x and (1 - cos x) / x² at 0
	if angle > 1e-6 {
		a, b = ir.Sin(angle)/angle, (1-ir.Cos(angle))/sum
	}
	k := [3][3]float64{{0, -v[2], v[1]}, {v[2], 0, -v[0]}, {-v[1], v[0], 0}}
	square := product(k, k)
	var out [3][3]float64
	for i := range 3 {
		for j := range 3 {
			out[i][j] = float64(a*k[i][j]) + float64(b*square[i][j])
		}
		out[i][i]++
	}
	return out
}

func product(a, b [3][3]float64) (c [3][3]float64) {
	for i := range 3 {
		for j := range 3 {
			for k := range 3 {
				c[i][j] += float64(a[i][k] * b[k][j])
			}
		}
	}
	return c
}

func times(a [3][3]float64, x [3]float64) (y [3]float64) {
	for i := range 3 {
		for k := range 3 {
			y[i] += float64(a[i][k] * x[k])
		}
	}
	return y
}

// angles are roll, pitch and yaw of a rotation Rz·Ry·Rx.
func angles(r [3][3]float64) [3]float64 {
	level := math.Sqrt(float64(r[2][1]*r[2][1]) + float64(r[2][2]*r[2][2]))
	return [3]float64{angle(r[2][1], r[2][2]), angle(-r[2][0], level), angle(r[1][0], r[0][0])}
}

// angle is that of the direction (x, y), as math.Atan2 has it, but the same on every machine.
func angle(y, x float64) float64 {
	switch a := ir.Atan(y / x); {
	case x > 0:
		return a
	case x < 0 && y >= 0:
		return a + math.Pi
	case x < 0:
		return a - math.Pi
	case y > 0:
		return math.Pi / 2
	case y < 0:
		return -math.Pi / 2
	}
	return 0
}
