package driving

import (
	"math"
	"math/rand/v2"
)

// random is a stream of numbers that is the same on every machine: PCG is integer arithmetic, and what is built on it
// here only adds and multiplies, rounding each time.
type random struct{ pcg *rand.PCG }

func newRandom(seed uint64) random { return random{rand.NewPCG(seed, 0x9e3779b97f4a7c15)} }

// uniform is in [0, 1).
func (r random) uniform() float32 { return float32(float32(r.pcg.Uint64()>>40) / (1 << 24)) }

// between is in [lo, hi).
func (r random) between(lo, hi float32) float32 { return lo + float32(r.uniform()*(hi-lo)) }

// normal is near enough to a standard normal: the sum of four uniform numbers of 16 bits, scaled to unit variance.
func (r random) normal() float32 {
	x := r.pcg.Uint64()
	sum := x&0xffff + x>>16&0xffff + x>>32&0xffff + x>>48
	return float32((float32(float32(sum)/(1<<16)) - 2 + 2.0/(1<<16)) * 1.7320508)
}

func (r random) normals(n int, scale float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = scale * r.normal()
	}
	return out
}

// frames draws a stack of camera planes, bytes: per channel a brightness, coarse to fine structure, and noise.
func (r random) frames(channels, h, w int) []byte {
	out := make([]byte, channels*h*w)
	plane := make([]float32, h*w)
	for c := range channels {
		mean := r.between(.2, .8)
		for i := range plane {
			plane[i] = mean + float32(.03*r.normal())
		}
		r.structure(plane, h, w, 3, 5, .5)
		r.structure(plane, h, w, 9, 17, .35)
		r.structure(plane, h, w, 33, 65, .2)
		for i, v := range plane {
			out[c*h*w+i] = byte(math.Round(float64(min(max(v, 0), 1)) * 255))
		}
	}
	return out
}

// structure adds a random grid of gh × gw values in ±amplitude/2, interpolated bilinearly.
func (r random) structure(plane []float32, h, w, gh, gw int, amplitude float32) {
	grid := make([]float32, gh*gw)
	for i := range grid {
		grid[i] = float32(amplitude * (r.uniform() - .5))
	}
	at := func(i, n, g int) (int, float32) { // position of pixel i of n on a grid of g points
		x := float32(i) * float32(g-1) / float32(n-1)
		k := min(int(x), g-2)
		return k, x - float32(k)
	}
	mix := func(a, b, t float32) float32 { return float32(a*(1-t)) + float32(b*t) }
	for y := range h {
		gy, ty := at(y, h, gh)
		for x := range w {
			gx, tx := at(x, w, gw)
			top := mix(grid[gy*gw+gx], grid[gy*gw+gx+1], tx)
			bottom := mix(grid[(gy+1)*gw+gx], grid[(gy+1)*gw+gx+1], tx)
			plane[y*w+x] += mix(top, bottom, ty)
		}
	}
}
