package calibrate

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/ir"
)

// GeneratedInputs is the number of inputs to generate where the user gives none.
const GeneratedInputs = 8

// Generate makes deterministic inputs in natural ranges: 8-bit images show a road-like scene (with six or more channels, in
// openpilot's layout); floats are normal with standard deviation 1; other integers and bools are 0 or 1.
func Generate(g *ir.Graph, count int) []map[string]*ir.Array {
	out := make([]map[string]*ir.Array, count)
	for i := range out {
		out[i] = Draw(g, uint64(i), func(rng *rand.Rand, a *ir.Array) {
			if isImage(a.Type) {
				newScene(rng).paint(a.Type, func(j int, x float64) { a.I[j] = int64(x) })
				return
			}
			for j := range a.F {
				a.F[j] = ir.RoundTo(a.DType, normal(rng))
			}
			for j := range a.I {
				a.I[j] = rng.Int64N(2)
			}
		})
	}
	return out
}

// Draw makes an array for each input of a graph and fills it with random numbers that depend on the input's name and the
// seed alone.
func Draw(g *ir.Graph, seed uint64, fill func(rng *rand.Rand, a *ir.Array)) map[string]*ir.Array {
	out := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		h := fnv.New64a()
		h.Write([]byte(v.Name))
		a := ir.NewArray(v.Type)
		if out[v.Name] = a; !sampled(a, v.Sample) {
			fill(rand.New(rand.NewPCG(h.Sum64(), seed)), a)
		}
	}
	return out
}

// sampled fills an array with numbers, again and again, if there are any.
func sampled(a *ir.Array, list []float64) bool {
	if len(list) == 0 {
		return false
	}
	for i := range a.F {
		a.F[i] = ir.RoundTo(a.DType, list[i%len(list)])
	}
	for i := range a.I {
		a.I[i] = ir.WrapInt(a.DType, int64(list[i%len(list)]))
	}
	return true
}

// fraction is in [0, 1).
func fraction(rng *rand.Rand) float64 { return float64(rng.Float64()) }

// normal is approximately normal: a sum of twelve uniform numbers needs no logarithm, which differs between machines.
func normal(rng *rand.Rand) float64 {
	x := -6.0
	for range 12 {
		x += fraction(rng)
	}
	return x
}

// normals fills a list with what normal yields for the random numbers of a source, one after another, in less time.
func normals(source *rand.PCG, to []float64) {
	to = to[manyNormals(source, to):]
	for i := range to {
		x := -6.0
		for range 12 {
			x += float64(float64(source.Uint64()<<11>>11) / (1 << 53)) // as Rand.Float64
		}
		to[i] = x
	}
}

func isImage(t ir.Type) bool { return t.DType == ir.Uint8 && t.Rank() == 4 }

// scene is a road under a sky: a horizon, a vanishing point, lane lines, vehicles, texture.
type scene struct {
	horizon, middle, curve, light float64
	lanes                         []float64
	vehicles                      [][4]float64 // x, y, size, brightness
	texture                       [3]float64
}

func newScene(rng *rand.Rand) *scene {
	s := &scene{horizon: .3 + float64(.2*fraction(rng)), middle: .4 + float64(.2*fraction(rng)), curve: fraction(rng) - .5, light: .4 + float64(.6*fraction(rng))}
	for k := range 4 {
		s.lanes = append(s.lanes, float64(float64(k)*.5)-.75+float64(.1*fraction(rng)))
	}
	for range 1 + rng.IntN(4) {
		s.vehicles = append(s.vehicles, [4]float64{fraction(rng), fraction(rng), .02 + float64(.1*fraction(rng)), fraction(rng)})
	}
	s.texture = [3]float64{float64(rng.IntN(97) + 11), float64(rng.IntN(89) + 7), 8 + float64(24*fraction(rng))}
	return s
}

// at is the brightness, 0 to 255, at x, y in [0, 1).
func (s *scene) at(x, y float64) float64 {
	base := 200 - 80*y/s.horizon
	if y > s.horizon {
		depth := (y - s.horizon) / (1 - s.horizon) // 0 at the horizon, 1 at the bonnet
		base = 70 + float64(40*depth)
		road := (x - s.middle - float64(s.curve*(1-depth)*(1-depth)*.3)) / (.05 + depth)
		if math.Abs(road) > .9 {
			base = 110 - float64(30*depth)
		}
		for _, l := range s.lanes {
			if math.Abs(road-l) < .02 {
				base = 230
			}
		}
	}
	for _, v := range s.vehicles {
		if math.Abs(x-v[0]) < v[2] && math.Abs(y-s.horizon-float64(v[1]*(1-s.horizon)*.6)) < v[2]*.8 {
			base = 20 + float64(200*v[3])
		}
	}
	grain := math.Mod(float64(x*s.texture[0]*7.31)+float64(y*s.texture[1]*3.77), 1) - .5
	return min(max(float64(base*s.light)+float64(grain*s.texture[2]), 0), 255)
}

// paint sets the elements of an NCHW image. Six and more channels are openpilot's two frames of four luma phases and two
// chroma planes; elsewhere every channel is luma.
func (s *scene) paint(t ir.Type, set func(j int, x float64)) {
	n, c, h, w := t.Shape[0], t.Shape[1], t.Shape[2], t.Shape[3]
	for b := range n {
		for ch := range c {
			frame, plane := 0, 0
			if c >= 6 {
				frame, plane = ch/6, ch%6
			}
			for y := range h {
				for x := range w {
					px, py := (float64(x)+float64(float64(plane%2)/2))/float64(w), (float64(y)+float64(float64(plane/2%2)/2))/float64(h)
					v := s.at(px+float64(float64(frame)*.004), py)
					if plane >= 4 {
						v = 128 + float64((v-128)*.15)
					}
					set(((b*c+ch)*h+y)*w+x, v)
				}
			}
		}
	}
}
