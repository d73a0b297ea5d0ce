package driving

import (
	"math"
	"slices"
	"sync"
)

// samples are the values of one tensor for each of a few inputs. The arithmetic below is float32 and rounds every product,
// so that no machine fuses it. It only has to be near enough to the operators' arithmetic for statistics.
type samples [][]float32

// each is f of every sample and its number, computed concurrently.
func (s samples) each(f func(i int, x []float32) []float32) samples {
	out := make(samples, len(s))
	var wg sync.WaitGroup
	for i, x := range s {
		wg.Go(func() { out[i] = f(i, x) })
	}
	wg.Wait()
	return out
}

// elements is f of element j of every sample i.
func (s samples) elements(f func(i, j int, x float32) float32) samples {
	return s.each(func(i int, x []float32) []float32 {
		out := make([]float32, len(x))
		for j, v := range x {
			out[j] = f(i, j, v)
		}
		return out
	})
}

// mapped is s with f on every element.
func (s samples) mapped(f func(x float32) float32) samples {
	return s.elements(func(_, _ int, x float32) float32 { return f(x) })
}

// zipped is f on the elements of s and t.
func (s samples) zipped(t samples, f func(x, y float32) float32) samples {
	return s.elements(func(i, j int, x float32) float32 { return f(x, t[i][j]) })
}

// shifted adds a vector to every row.
func (s samples) shifted(row []float32) samples {
	return s.elements(func(_, j int, x float32) float32 { return x + row[j%len(row)] })
}

// moments are mean and variance of each of c channels over all samples and positions; channels are the outer dimension.
func (s samples) moments(c int) (mean, variance []float32) {
	mean, variance = make([]float32, c), make([]float32, c)
	n := len(s[0]) / c
	for k := range c {
		var sum, square float64
		for _, x := range s {
			for _, v := range x[k*n : (k+1)*n] {
				sum += float64(v)
				square += float64(float64(v) * float64(v))
			}
		}
		count := float64(len(s) * n)
		m := sum / count
		mean[k], variance[k] = float32(m), float32(max(square/count-float64(m*m), 0))
	}
	return mean, variance
}

// affine is x·scale + shift, by channel.
func (s samples) affine(scale, shift []float32) samples {
	n := len(s[0]) / len(scale)
	return s.elements(func(_, j int, x float32) float32 { return float32(x*scale[j/n]) + shift[j/n] })
}

// exp is portable: the library's has a version in assembly on some machines.
func exp(x float64) float64 {
	x = min(max(x, -80), 80)
	n := math.Round(float64(x * math.Log2E))
	r := x - float64(n*math.Ln2)
	p := 1.0
	for k := 10.0; k >= 1; k-- {
		p = 1 + float64(float64(r/k)*p)
	}
	return math.Ldexp(p, int(n))
}

func sigmoid(x float32) float32 { return float32(1 / (1 + exp(-float64(x)))) }

func gelu(x float32) float32 { return float32(x * sigmoid(float32(1.702*x))) }

func relu(x float32) float32 { return max(x, 0) }

// rows is x[n,k]·w[m,k]ᵀ for each sample.
func (s samples) rows(w []float32, k, m int) samples {
	return s.each(func(_ int, x []float32) []float32 {
		y := make([]float32, 0, len(x)/k*m)
		for row := range slices.Chunk(x, k) {
			for c := range m {
				y = append(y, dot(row, w[c*k:(c+1)*k]))
			}
		}
		return y
	})
}

func dot(x, w []float32) float32 {
	var a, b float32
	w = w[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		a += float32(x[i] * w[i])
		b += float32(x[i+1] * w[i+1])
	}
	if i < len(x) {
		a += float32(x[i] * w[i])
	}
	return a + b
}

// convolution is the shape of a 2-D convolution; padding is (k-1)/2.
type convolution struct {
	conv
	cin, h, w int
}

func (c convolution) out() (h, w int) { return (c.h-1)/c.stride + 1, (c.w-1)/c.stride + 1 }

func (c convolution) apply(x, weights []float32) []float32 {
	oh, ow := c.out()
	in, perGroup := c.cin/c.groups, c.cout/c.groups
	y := make([]float32, c.cout*oh*ow)
	pad := (c.k - 1) / 2
	for o := range c.cout {
		dst := y[o*oh*ow : (o+1)*oh*ow]
		for i := range in {
			src := x[(o/perGroup*in+i)*c.h*c.w:][:c.h*c.w]
			for ky := range c.k {
				for kx := range c.k {
					c.tap(dst, src, weights[((o*in+i)*c.k+ky)*c.k+kx], ky-pad, kx-pad, oh, ow)
				}
			}
		}
	}
	return y
}

// tap adds w times the input shifted by (dy, dx).
func (c convolution) tap(dst, src []float32, w float32, dy, dx, oh, ow int) {
	for y := range oh {
		sy := y*c.stride + dy
		if sy < 0 || sy >= c.h {
			continue
		}
		row := src[sy*c.w : (sy+1)*c.w]
		first := 0 // x·stride + dx ≥ 0
		if dx < 0 {
			first = (-dx + c.stride - 1) / c.stride
		}
		end := min(ow, (c.w-1-dx)/c.stride+1)
		line := dst[y*ow : (y+1)*ow]
		if c.stride == 1 && first < end {
			line, in := line[first:end], row[first+dx:end+dx]
			for j, v := range in {
				line[j] += float32(w * v)
			}
			continue
		}
		for j := first; j < end; j++ {
			line[j] += float32(w * row[j*c.stride+dx])
		}
	}
}
