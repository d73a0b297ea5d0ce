package onnx

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

var signalOperators = []operator{
	{name: "HannWindow", since: 17, shapes: []int{0}, convert: cosineWindow(0.5, 0.5, 0)},
	{name: "HammingWindow", since: 17, shapes: []int{0}, convert: cosineWindow(25.0/46, 21.0/46, 0)},
	{name: "BlackmanWindow", since: 17, shapes: []int{0}, convert: cosineWindow(0.42, 0.5, 0.08)},
	{name: "MelWeightMatrix", since: 17, shapes: []int{0, 1, 2, 3, 4}, convert: melWeightMatrix},
	{name: "DFT", since: 17, until: 19, shapes: []int{1}, convert: func(s *site) { s.dft(s.int("axis", 1)) }},
	{name: "DFT", since: 20, shapes: []int{1, 2}, convert: func(s *site) { s.dft(s.knownInt(2, "axis", -2)) }},
	{name: "STFT", since: 17, shapes: []int{1, 3}, convert: stft},
}

// cosineWindow is a0 - a1·cos(2πn/N) + a2·cos(4πn/N), with N the size, or the size-1 if symmetric.
func cosineWindow(a0, a1, a2 float64) func(*site) {
	return func(s *site) {
		size := s.knownInt(0, "the size", 0)
		if size < 0 || size > maxFold {
			s.fail("size %d, want 0 to %d", size, maxFold)
		}
		period := float64(size)
		if !s.bool("periodic", true) {
			period--
		}
		d := s.dtype("output_datatype", ir.Float32)
		a := ir.NewArray(ir.T(ir.Float64, size))
		for i := range size {
			turn := 2 * math.Pi * float64(i) / period
			if size == 1 && period == 0 {
				turn = 0
			}
			a.F[i] = a0 - float64(a1*ir.Cos(turn)) + float64(a2*ir.Cos(float64(2*turn)))
		}
		s.out(0, s.cast(s.constant(a.Tensor()), d))
	}
}

// melWeightMatrix follows MelWeightMatrix 17: triangles between neighbouring mel frequencies, in whole spectrogram
// bins.
func melWeightMatrix(s *site) {
	bins, length, rate := s.knownInt(0, "num_mel_bins", 0), s.knownInt(1, "dft_length", 0), s.knownInt(2, "sample_rate", 0)
	low, high := s.knownFloats(3, "lower_edge_hertz"), s.knownFloats(4, "upper_edge_hertz")
	if len(low) != 1 || len(high) != 1 || bins < 1 || length < 1 || rate < 1 || bins > maxFold || length > maxFold {
		s.fail("num_mel_bins %d, dft_length %d, sample_rate %d, edges %v and %v: want positive numbers up to %d, and two frequencies", bins, length, rate, low, high, maxFold)
	}
	rows := length/2 + 1
	s.bound(rows, bins)
	mel := func(hz float64) float64 { return float64(2595 * ir.Log10(1+hz/700)) }
	lo := mel(low[0])
	step := (mel(high[0]) - lo) / float64(bins+2)
	at := make([]int, bins+2)
	for i := range at {
		hz := float64(700 * (ir.Pow(10, (lo+float64(float64(i)*step))/2595) - 1))
		at[i] = int(math.Floor(float64(length+1) * hz / float64(rate)))
	}
	a := ir.NewArray(ir.T(ir.Float64, rows, bins))
	set := func(row, col int, v float64) {
		if row < 0 || row >= rows {
			s.fail("frequency bin %d is outside a spectrum of %d", row, rows)
		}
		a.F[row*bins+col] = v
	}
	for i := range bins {
		left, middle, right := at[i], at[i+1], at[i+2]
		if middle == left {
			set(middle, i, 1)
		}
		for j := left; j <= middle && middle > left; j++ {
			set(j, i, float64(j-left)/float64(middle-left))
		}
		for j := middle; j < right; j++ {
			set(j, i, float64(right-j)/float64(right-middle))
		}
	}
	s.out(0, s.cast(s.constant(a.Tensor()), s.dtype("output_datatype", ir.Float32)))
}

// maxDFT bounds the transform's length: it becomes a product with a constant matrix of its square.
const maxDFT = 2048

// dft transforms along an axis of [..., n, 1 or 2].
func (s *site) dft(axis int) {
	x := s.in(0)
	r := s.rank(x, 2)
	axis = s.axis(axis, r)
	if axis == r-1 {
		s.fail("axis %d is that of real and imaginary parts", axis)
	}
	inverse, onesided := s.bool("inverse", false), s.bool("onesided", false)
	n := x.Type.Shape[axis]
	if inverse && onesided {
		n = 2 * (n - 1)
	}
	n = s.knownInt(1, "dft_length", n)
	y := s.swapAxes(s.wide(x), axis, r-2)
	y = s.fourier(y, n, inverse, onesided)
	s.out(0, s.cast(s.swapAxes(y, axis, r-2), x.Type.DType))
}

// fourier transforms the second to last dimension, padded or cut to n, by a product with a constant matrix. The last
// dimension is the real, or the real and the imaginary part. A one-sided transform has half of the spectrum as its
// result, or, if inverse, as its input, and then a real result.
func (s *site) fourier(x *ir.Value, n int, inverse, onesided bool) *ir.Value {
	if n < 1 || n > maxDFT {
		s.refuse("compute it outside of the model, or on shorter frames", "a transform of %d elements: transforms become matrix products, of at most %d", n, maxDFT)
	}
	r := x.Type.Rank()
	parts := x.Type.Shape[r-1]
	if parts != 1 && parts != 2 {
		s.fail("the last dimension of %v is neither 1 nor 2", x.Type)
	}
	taken, made, madeParts := n, n, 2
	if onesided && inverse {
		taken, madeParts = n/2+1, 1
	} else if onesided {
		made = n/2 + 1
	}
	if have := x.Type.Shape[r-2]; have >= taken {
		x = s.part(x, r-2, 0, taken)
	} else {
		x = s.padEnd(x, r-2, taken-have, 0)
	}
	m := make([]float64, taken*parts*made*madeParts)
	for i := range taken {
		for k := range made {
			weight := 1.0
			if inverse {
				weight = 1 / float64(n)
				if onesided && i > 0 && 2*i != n { // the other half of the spectrum is its mirror image
					weight *= 2
				}
			}
			// reducing i·k first keeps the angle, and so its cosine, exact
			angle := 2 * math.Pi * float64(i*k%n) / float64(n)
			sin := -ir.Sin(angle)
			if inverse {
				sin = -sin
			}
			c, d := weight*ir.Cos(angle), weight*sin
			for p, row := range [][2]float64{{c, d}, {-d, c}}[:parts] {
				for q := range madeParts {
					m[((i*parts+p)*made+k)*madeParts+q] = row[q]
				}
			}
		}
	}
	outer := x.Type.Shape[:r-2]
	rows := s.reshape(x, product(outer), taken*parts)
	y := s.op("MatMul", rows, s.floatsConst(x.Type.DType, m, taken*parts, made*madeParts))
	return s.reshape(y, append(append([]int{}, outer...), made, madeParts)...)
}

// stft transforms windows of the signal [B,N,1 or 2], with a step of frame_step.
func stft(s *site) {
	x := s.in(0)
	if x.Type.Rank() == 2 {
		x = s.unsqueeze(x, 2)
	}
	signal := s.exactly(x, 3).Type.Shape[1]
	length := signal
	window := s.opt(2)
	if window != nil {
		length = window.Type.Numel()
	}
	length = s.knownInt(3, "frame_length", length)
	step := s.knownInt(1, "frame_step", 0)
	if step < 1 || length < 1 || length > signal {
		s.fail("frames of %d elements every %d do not fit a signal of %d", length, step, signal)
	}
	frames := (signal-length)/step + 1
	s.bound(frames, length)
	at := make([]int64, 0, frames*length)
	for f := range frames {
		for i := range length {
			at = append(at, int64(f*step+i))
		}
	}
	v := s.add("Gather", ir.Attrs{"axis": 1}, s.wide(x), s.intsConst(at, frames, length)) // [B,frames,length,parts]
	if window != nil {
		if window.Type.Numel() != length {
			s.fail("the window has %d elements, frames %d", window.Type.Numel(), length)
		}
		v = s.op("Mul", v, s.cast(s.reshape(window, length, 1), v.Type.DType))
	}
	y := s.fourier(v, length, false, s.bool("onesided", true))
	s.out(0, s.cast(y, s.in(0).Type.DType))
}
