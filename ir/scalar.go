package ir

import "math"

// float1 and float2 lift functions of float64 to the form of Op.Scalar.
func float1(f func(float64) float64) func(*Node, []float64) float64 {
	return func(_ *Node, x []float64) float64 { return f(x[0]) }
}

func float2(f func(a, b float64) float64) func(*Node, []float64) float64 {
	return func(_ *Node, x []float64) float64 { return f(x[0], x[1]) }
}

func compare(f func(a, b float64) bool) func(*Node, []float64) float64 {
	return func(_ *Node, x []float64) float64 {
		if f(x[0], x[1]) {
			return 1
		}
		return 0
	}
}

func int1(f func(int64) int64) func(*Node, []int64) int64 {
	return func(_ *Node, x []int64) int64 { return f(x[0]) }
}

func int2(f func(a, b int64) int64) func(*Node, []int64) int64 {
	return func(_ *Node, x []int64) int64 { return f(x[0], x[1]) }
}

// compareInt lifts a test of the three-way comparison of two operands.
func compareInt(f func(order int) bool) func(*Node, []int64) int64 {
	return func(n *Node, x []int64) int64 {
		if f(orderInts(n.Inputs[0].Type.DType, x[0], x[1])) {
			return 1
		}
		return 0
	}
}

// orderInts compares two integers of type d: uint64 operands are bits.
func orderInts(d DType, a, b int64) int {
	if d == Uint64 {
		a, b = a^math.MinInt64, b^math.MinInt64
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func signFloat(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x + 0 // NaN stays, -0 becomes 0
}

func signInt(n *Node, x []int64) int64 { return int64(orderInts(n.Inputs[0].Type.DType, x[0], 0)) }

func reluFloat(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return x
}

func reluInt(n *Node, x []int64) int64 {
	if n.Inputs[0].Type.DType.IsSigned() {
		return max(x[0], 0)
	}
	return x[0]
}

func absInt(n *Node, x []int64) int64 {
	if n.Inputs[0].Type.DType.IsSigned() && x[0] < 0 {
		return -x[0]
	}
	return x[0]
}

func gelu(n *Node, x []float64) float64 {
	v := x[0]
	if n.Attrs.Bool("tanh") {
		cube := float64(float64(v*v) * v)
		inner := math.Sqrt(2/math.Pi) * (v + float64(0.044715*cube))
		return 0.5 * v * (1 + tanh(inner))
	}
	return 0.5 * v * (1 + erf(v/n.Attrs.Float("sqrt2", math.Sqrt2)))
}

func isInf(n *Node, x []float64) float64 {
	on := func(attr string) bool {
		v, ok := n.Attrs[attr].(bool)
		return v || !ok
	}
	if math.IsInf(x[0], 1) && on("positive") || math.IsInf(x[0], -1) && on("negative") {
		return 1
	}
	return 0
}

func divInt(n *Node, x []int64) int64 {
	a, b := x[0], x[1]
	switch {
	case b == 0:
		return 0
	case n.Inputs[0].Type.DType == Uint64:
		return int64(uint64(a) / uint64(b))
	}
	return a / b
}

func modFloat(n *Node, x []float64) float64 {
	r := math.Mod(x[0], x[1])
	if !n.Attrs.Bool("fmod") && r != 0 && math.Signbit(r) != math.Signbit(x[1]) {
		r += x[1]
	}
	return r
}

func modInt(n *Node, x []int64) int64 {
	a, b := x[0], x[1]
	switch {
	case b == 0:
		return 0
	case n.Inputs[0].Type.DType == Uint64:
		return int64(uint64(a) % uint64(b))
	}
	r := a % b
	if !n.Attrs.Bool("fmod") && r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// powInt is exact modulo 2^64; a negative exponent gives the truncated quotient.
func powInt(n *Node, x []int64) int64 {
	b, e := x[0], uint64(x[1])
	if x[1] < 0 && n.Inputs[1].Type.DType.IsSigned() {
		switch {
		case b == 1 || b == -1 && x[1]&1 == 0:
			return 1
		case b == -1:
			return -1
		}
		return 0
	}
	p := int64(1)
	for ; e > 0; e >>= 1 {
		if e&1 == 1 {
			p *= b
		}
		b *= b
	}
	return p
}

func minInt(n *Node, x []int64) int64 {
	if orderInts(n.Inputs[0].Type.DType, x[0], x[1]) <= 0 {
		return x[0]
	}
	return x[1]
}

func maxInt(n *Node, x []int64) int64 {
	if orderInts(n.Inputs[0].Type.DType, x[0], x[1]) >= 0 {
		return x[0]
	}
	return x[1]
}

// shift gives 0 from the width on; a count is read as unsigned.
func shift(left bool) func(*Node, []int64) int64 {
	return func(n *Node, x []int64) int64 {
		d := n.Inputs[0].Type.DType
		if uint64(x[1]) >= uint64(d.Bits()) {
			return 0
		}
		switch {
		case left:
			return x[0] << x[1]
		case d == Uint64:
			return int64(uint64(x[0]) >> x[1])
		}
		return x[0] >> x[1]
	}
}

func whereFloat(_ *Node, x []float64) float64 {
	if x[0] != 0 {
		return x[1]
	}
	return x[2]
}

func whereInt(_ *Node, x []int64) int64 {
	if x[0] != 0 {
		return x[1]
	}
	return x[2]
}
