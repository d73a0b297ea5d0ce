package a

import (
	"b"
	"math"
)

type point struct{ x, y float64 }

type metres float32

func direct(x, y, z float64, xs []float64, m metres) { // want direct:`adds to parameters .2 0 1.`
	_ = x*y + z          // want `x\*y|fused`
	_ = z - (x * y)      // want `fused`
	_ = -(x * y) + z     // want `fused`
	_ = float64(x*y) + z // rounded
	_ = m*m + 1          // want `fused`
	_ = metres(m*m) + 1
	_ = float64(float32(x)*float32(y)) + z // rounded to float32 first
	_ = x*y*3 - 1                          // want `fused`
	_ = 2 * (x * y)                        // want `fused`
	_ = (x + y) * z                        // a sum times something
	_ = 2*3.5 + z                          // the compiler's constant
	_ = x/2 + z                            // want `fused`
	_ = x/3 + z                            // no product: divided
	_ = int(z)*3 + 4                       // integers
	z += x * y                             // want `fused`
	z -= float64(x * y)
	xs[0] += xs[1] * x // want `fused`
}

func variables(x, y, z, u float64, xs []float64) { // want variables:`adds to parameters .2 3.`
	p := x * y
	_ = p + z // want `fused`
	q := float64(x * y)
	_ = q + z
	u *= x
	_ = u + 1 // want `fused`
	var r = x * y
	s := r
	_ = 1 - s // want `fused`
	xs[3] = x * y
	_ = xs[3] + 1 // want `fused`
	_ = xs[4] + 1
	at := point{y: x * y}
	_ = at.y + 1 // want `fused`
	_ = at.x + 1
}

func named(x float64) (square float64) { // want named:`products in results .0.`
	square = x * x
	return
}

func calls(x, y float64) {
	_ = b.Area(x, y) + 1 // want `fused`
	_ = b.Rounded(x, y) + 1
	_ = float64(b.Area(x, y)) + 1
	_ = named(x) - 1   // want `fused`
	_ = b.Sum(x*y, 1)  // want `fused`
	_ = b.Twice(x * y) // want `fused`
	_ = b.Area(x*y, 1)
	square := func(x float64) float64 { return x * x }
	_ = square(x) + 1 // want `fused`
	sum := 0.0
	add := func(x, y float64) { sum += y } // want `fused`
	add(1, x*y)
	one, two := b.Both(x)
	_ = one + 1
	_ = two + 1 // want `fused`
}

var global = b.Area(1, 2) + 3 // want `fused`

func library(x float64) {
	_ = math.Sqrt(x) + math.Ldexp(x, 3)
	_ = math.Exp(x)    // want `math.Exp is not the same on every machine`
	_ = math.Pow(x, 0) // fmavet: exact for 0
	_ = math.MaxFloat64
}
