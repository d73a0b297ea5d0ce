// Package keeper fits a small driving model that keeps its lane by the pictures that it sees, for tests and
// demonstrations of the model in the loop. It has the inputs and outputs of openpilot 0.10.0's models in one file, but is
// no such network: blocks of pixels, averaged, to a few features, and those of now and of 0.2 s ago to a curvature. Its
// plan is to go on at the speed that it has.
//
// It is fitted to what a controller did that knew where the car was, on roads that the controller drives first and the
// model itself afterwards: Ross, Gordon and Bagnell, "A reduction of imitation learning and structured prediction to
// no-regret online learning" (DAgger, 2011).
package keeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/ir"
)

// Sizes of pictures, and of the blocks of which the model sees the mean, in luma planes.
const (
	Width, Height = 128, 64
	blockX        = 2
	blockY        = 4
	columns       = Width / 2 / blockX
	rows          = Height / 2 / blockY
	cameras       = 2
	planes        = 6
	lumaPlanes    = 4
	blocks        = cameras * rows * columns
)

// Options of a fit.
type Options struct {
	Device hal.Device
	Seed   uint64
	Loops  int                          // that are driven in each round; 0: 64
	Rounds int                          // 0: 3; the controller drives in the first one, the model in the others
	Told   func(round int, rms float64) // is told the error of the fit in 1/m; nil: nobody is
}

// Targets are what the features are fitted to, in units of about their deviation.
var targets = []struct {
	name  string
	scale float64
	of    func(seen func(string) float64) float64
}{
	{"command", 0.005, command},
	{"offset", 0.5, func(seen func(string) float64) float64 { return seen("offset") }},
	{"heading", 0.02, func(seen func(string) float64) float64 { return seen("heading") }},
	{"road", 0.004, func(seen func(string) float64) float64 { return seen("road0") }},
	{"ahead", 0.004, func(seen func(string) float64) float64 { return seen("road3") }},
	{"bend", 0.001, func(seen func(string) float64) float64 { return seen("road3") - seen("road0") }},
}

// speed is what the model takes its own for, in m/s: it is not told.
const speed = 22

// command is the curvature, to the left in 1/m, that the model is to say: the road's, and back to the centre of the lane
// as a system of second order of 0.8 rad/s and damping 1 goes.
func command(seen func(string) float64) float64 {
	return seen("road1") - (float64(0.64/speed*seen("offset"))+float64(1.6*seen("heading")))/speed
}

// Model is what was fitted.
type Model struct {
	// Features is [len(Targets), blocks] and Bias [len(Targets)]: from means of luma to features.
	Features *mat.Dense
	Bias     []float64
	// Command is of the features of now and of those of 0.2 s ago: the curvature to the left in 1/m.
	Command []float64
	Offset  float64
}

// family is the roads of the fit.
func family() scenario.Family {
	uniform := func(low, high float64) scenario.Distribution {
		return scenario.Distribution{Uniform: []float64{low, high}}
	}
	return scenario.Family{Name: "keeper", Values: map[string]float64{"duration": 12}, Vary: map[string]scenario.Distribution{
		"curvature": uniform(-0.004, 0.004), "curve_start": uniform(0, 120), "curve_length": uniform(40, 200), "curve_ramp": uniform(30, 90),
		"speed": uniform(14, 27), "offset": uniform(-0.8, 0.8), "heading": uniform(-0.02, 0.02),
	}}
}

// drive is a round that is being driven.
type drive struct {
	model   *Model // that drives; nil: the controller does
	phase   []float64
	past    [][][]float64 // what each loop has seen, the newest last
	samples *samples
}

// samples are what was seen, and what a controller would have done that knew where the car was.
type samples struct {
	now, past [][]float64 // means of luma, and those of 0.2 s before; nil before the start
	y         [][]float64 // targets, in their units
}

// means are the averages of blocks of luma of a loop's pictures.
func means(pictures []byte) []float64 {
	const size = Width / 2 * Height / 2
	out := make([]float64, blocks)
	for camera := range cameras {
		for plane := range lumaPlanes {
			p := pictures[(camera*planes+plane)*size:]
			for y := range Height / 2 {
				for x := range Width / 2 {
					out[(camera*rows+y/blockY)*columns+x/blockX] += float64(p[y*Width/2+x])
				}
			}
		}
	}
	for i := range out {
		out[i] /= lumaPlanes * blockX * blockY
	}
	return out
}

const (
	lag   = 4 // steps between two rows of a history
	every = 6 // steps between two samples of a loop: pictures change slowly
)

// act drives a step, and keeps samples.
func (d *drive) act(step int, pictures []byte, seen, commands [][]float32) {
	size := len(pictures) / len(d.phase)
	for i := range d.phase {
		of := func(name string) float64 { return float64(seen[observation(name)][i]) }
		now, past := means(pictures[i*size:(i+1)*size]), []float64(nil)
		if len(d.past[i]) >= lag {
			past = d.past[i][len(d.past[i])-lag]
		}
		d.past[i] = append(d.past[i], now)
		curvature := command(of)
		if d.model != nil {
			curvature = d.model.curvature(now, past)
		}
		if step%every == 0 {
			y := make([]float64, len(targets))
			for k, t := range targets {
				y[k] = t.of(of) / t.scale
			}
			s := d.samples
			s.now, s.past, s.y = append(s.now, now), append(s.past, past), append(s.y, y)
		}
		// So that more is seen than the middle of the lane, the car is led astray.
		stray := float64(0.0015 * ir.Sin(d.phase[i]+float64(0.11*float64(step))))
		commands[0][i], commands[1][i] = float32(curvature+stray), 0
	}
}

// observation is the row of one, which must exist.
func observation(name string) int {
	return slices.IndexFunc(scenario.Observations, func(p scenario.Param) bool { return p.Name == name })
}

// Fit drives and fits.
func Fit(ctx context.Context, opt Options) (*Model, error) {
	if opt.Loops == 0 {
		opt.Loops = 64
	}
	if opt.Rounds == 0 {
		opt.Rounds = 3
	}
	if opt.Loops < 8 || opt.Rounds < 1 {
		return nil, fmt.Errorf("%d loops in %d rounds: want 8 and 1 at least", opt.Loops, opt.Rounds)
	}
	var m *Model
	all := &samples{}
	roads := family()
	for round := range opt.Rounds {
		d := &drive{model: m, past: make([][][]float64, opt.Loops), samples: all}
		rng := rand.New(rand.NewPCG(opt.Seed, uint64(round)))
		var list []scenario.Scenario
		for i := range opt.Loops {
			s, err := roads.Draw(opt.Seed, round*opt.Loops+i)
			if err != nil {
				return nil, err
			}
			list, d.phase = append(list, s), append(d.phase, float64(2*math.Pi*rng.Float64()))
		}
		see := &scenario.Callback{Name: "keeper", Width: Width, Height: Height,
			Look: func(_ context.Context, step int, pictures []byte, seen, commands [][]float32) error {
				d.act(step, pictures, seen, commands)
				return nil
			}}
		if _, err := (&scenario.Runner{Device: opt.Device, Batch: opt.Loops}).RunBatch(ctx, list, see, 1, opt.Seed); err != nil {
			return nil, err
		}
		var err error
		if m, err = all.fit(); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if opt.Told != nil {
			opt.Told(round, all.rms(m))
		}
	}
	return m, nil
}

// ridge is the regression of y on x with an offset: weights [columns of x + 1, columns of y], the last row the offsets.
// Columns of x are scaled to their deviation first, of which penalty is in samples.
func ridge(x, y [][]float64, penalty float64) (*mat.Dense, error) {
	n, k := len(x), len(x[0])
	mean, scale := make([]float64, k), make([]float64, k)
	for _, row := range x {
		for i, v := range row {
			mean[i] += v / float64(n)
		}
	}
	for _, row := range x {
		for i, v := range row {
			scale[i] += float64((v-mean[i])*(v-mean[i])) / float64(n)
		}
	}
	a, b := mat.NewDense(n, k+1, nil), mat.NewDense(n, len(y[0]), nil)
	for r, row := range x {
		for i, v := range row {
			a.Set(r, i, (v-mean[i])/(math.Sqrt(scale[i])+1e-3))
		}
		a.Set(r, k, 1)
		b.SetRow(r, y[r])
	}
	var square mat.SymDense
	square.SymOuterK(1, a.T())
	for i := range k {
		square.SetSym(i, i, square.At(i, i)+penalty)
	}
	var chol mat.Cholesky
	if !chol.Factorize(&square) {
		return nil, errors.New("what was seen does not tell apart what was done")
	}
	var right, w mat.Dense
	right.Mul(a.T(), b)
	if err := chol.SolveTo(&w, &right); err != nil {
		return nil, err
	}
	for c := range y[0] {
		offset := w.At(k, c)
		for i := range k {
			v := w.At(i, c) / (math.Sqrt(scale[i]) + 1e-3)
			w.Set(i, c, v)
			offset -= float64(v * mean[i])
		}
		w.Set(k, c, offset)
	}
	return &w, nil
}

// fit makes a model of samples.
func (s *samples) fit() (*Model, error) {
	w, err := ridge(s.now, s.y, 30)
	if err != nil {
		return nil, err
	}
	m := &Model{Features: mat.NewDense(len(targets), blocks, nil)}
	for k := range targets {
		for i := range blocks {
			m.Features.Set(k, i, w.At(i, k))
		}
		m.Bias = append(m.Bias, w.At(blocks, k))
	}
	var x, y [][]float64
	for i, now := range s.now {
		x = append(x, slices.Concat(m.features(now), m.features(s.past[i])))
		y = append(y, []float64{s.y[i][0]})
	}
	last, err := ridge(x, y, 1)
	if err != nil {
		return nil, err
	}
	for i := range 2 * len(targets) {
		m.Command = append(m.Command, float64(last.At(i, 0)*targets[0].scale))
	}
	m.Offset = float64(last.At(2*len(targets), 0) * targets[0].scale)
	return m, nil
}

// features are those of means of luma; zeros of nil, as a history begins.
func (m *Model) features(x []float64) []float64 {
	out := make([]float64, len(targets))
	if x == nil {
		return out
	}
	for k := range out {
		out[k] = m.Bias[k]
		for i, v := range m.Features.RawRowView(k) {
			out[k] += float64(v * x[i])
		}
	}
	return out
}

// curvature is what the model says, to the left in 1/m.
func (m *Model) curvature(now, past []float64) float64 {
	sum := m.Offset
	for i, f := range slices.Concat(m.features(now), m.features(past)) {
		sum += float64(m.Command[i] * f)
	}
	return sum
}

// rms is the root of the mean squared error of the commands, in 1/m.
func (s *samples) rms(m *Model) float64 {
	sum := 0.0
	for i, now := range s.now {
		e := m.curvature(now, s.past[i]) - float64(s.y[i][0]*targets[0].scale)
		sum += float64(e * e)
	}
	return math.Sqrt(sum / float64(len(s.now)))
}

// Damage adds noise to the features' weights, of a share of their norm.
func (m *Model) Damage(share float64, seed uint64) {
	w := m.Features.RawMatrix().Data
	rng := rand.New(rand.NewPCG(seed, 2))
	norm := 0.0
	for _, x := range w {
		norm += float64(x * x)
	}
	for i := range w {
		w[i] += float64(share * math.Sqrt(norm/float64(len(w))) * rng.NormFloat64())
	}
}
