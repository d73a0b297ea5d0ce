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

func transposed(a [3][3]float64) (b [3][3]float64) {
	for i := range 3 {
		for j := range 3 {
			b[i][j] = a[j][i]
		}
	}
	return b
}

// length of a vector.
func length[V [3]float64 | []float64](x V) float64 {
	sum := 0.0
	for i := range len(x) {
		sum += float64(x[i] * x[i])
	}
	return math.Sqrt(sum)
}

// rotation is that of a quaternion w x y z of length 1.
func rotation(q [4]float64) [3][3]float64 {
	w, x, y, z := q[0], q[1], q[2], q[3]
	p := func(a, b float64) float64 { return float64(2 * a * b) }
	return [3][3]float64{
		{1 - p(y, y) - p(z, z), p(x, y) - p(w, z), p(x, z) + p(w, y)},
		{p(x, y) + p(w, z), 1 - p(x, x) - p(z, z), p(y, z) - p(w, x)},
		{p(x, z) - p(w, y), p(y, z) + p(w, x), 1 - p(x, x) - p(y, y)},
	}
}

// rates of turning about the own axes, rad/s, that lead from one attitude to another in a time: less than a quarter turn.
func rates(a, b [3][3]float64, seconds float64) [3]float64 {
	r := product(transposed(a), b)
	v := [3]float64{(r[2][1] - r[1][2]) / 2, (r[0][2] - r[2][0]) / 2, (r[1][0] - r[0][1]) / 2} // the axis, as long as the sine
	sine, by := length(v), 1/seconds
	if sine > 1e-9 {
		by = angle(sine, (r[0][0]+r[1][1]+r[2][2]-1)/2) / sine / seconds
	}
	for i := range v {
		v[i] *= by
	}
	return v
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
