package clone

import (
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/ir"
)

// layer is y = W·x + b.
type layer struct {
	in, out int
	weight  []float64 // [out, in]
	bias    []float64

	input, output []float64 // of the last sample
	gradient      moments
}

// moments are the gradient of a batch, of weights and then biases, and the averages of Adam.
type moments struct{ sum, first, second []float64 }

// perceptron has two hidden layers, with max(0, x) between them.
type perceptron struct {
	layers [3]*layer
	steps  int
}

func newPerceptron(rng *rand.Rand, hidden int) *perceptron {
	p := &perceptron{}
	sizes := [4]int{len(features(make([]float64, len(at)))), hidden, hidden, 2}
	for i := range p.layers {
		in, out := sizes[i], sizes[i+1]
		l := &layer{in: in, out: out, weight: make([]float64, in*out), bias: make([]float64, out)}
		l.output = make([]float64, out)
		for k := range l.weight {
			l.weight[k] = math.Sqrt(2/float64(in)) * rng.NormFloat64()
		}
		n := in*out + out
		l.gradient = moments{make([]float64, n), make([]float64, n), make([]float64, n)}
		p.layers[i] = l
	}
	return p
}

func (p *perceptron) forward(x []float64) [2]float64 {
	for i, l := range p.layers {
		l.input = x
		for o := range l.out {
			l.output[o] = l.bias[o] + blas.Dot(l.weight[o*l.in:(o+1)*l.in], x)
			if i < len(p.layers)-1 {
				l.output[o] = max(l.output[o], 0)
			}
		}
		x = l.output
	}
	return [2]float64(x)
}

// backward adds the gradient of half the squared error of the last sample.
func (p *perceptron) backward(wanted [2]float64) {
	last := p.layers[len(p.layers)-1]
	error := []float64{last.output[0] - wanted[0], last.output[1] - wanted[1]}
	for i := len(p.layers) - 1; i >= 0; i-- {
		l := p.layers[i]
		before := make([]float64, l.in)
		for o, e := range error {
			if e == 0 {
				continue
			}
			row, sum := l.weight[o*l.in:(o+1)*l.in], l.gradient.sum[o*l.in:(o+1)*l.in]
			for k, x := range l.input {
				sum[k] += float64(e * x)
				before[k] += float64(e * row[k])
			}
			l.gradient.sum[len(l.weight)+o] += e
		}
		if i > 0 {
			for k, x := range l.input {
				if x == 0 {
					before[k] = 0
				}
			}
		}
		error = before
	}
}

// Of learning: Adam (Kingma and Ba, ICLR 2015), with a rate that falls along half a cosine.
const (
	samples    = 64 // of a step
	rate       = 4e-3
	decayOne   = .9
	decayTwo   = .999
	notZero    = 1e-8
	leastShare = .01 // of the rate, at the end
)

func (p *perceptron) step(rate float64, samples int) {
	p.steps++
	one, two := 1-ir.Pow(decayOne, float64(p.steps)), 1-ir.Pow(decayTwo, float64(p.steps))
	for _, l := range p.layers {
		m := &l.gradient
		for i, g := range m.sum {
			g /= float64(samples)
			m.sum[i] = 0
			m.first[i] = float64(decayOne*m.first[i]) + float64((1-decayOne)*g)
			m.second[i] = float64(decayTwo*m.second[i]) + float64((1-decayTwo)*g*g)
			change := rate * (m.first[i] / one) / (math.Sqrt(m.second[i]/two) + notZero)
			if i < len(l.weight) {
				l.weight[i] -= change
			} else {
				l.bias[i-len(l.weight)] -= change
			}
		}
	}
}

// learn runs over the lessons, in another order each time.
func (p *perceptron) learn(rng *rand.Rand, lessons []lesson, epochs int) {
	total := epochs * ((len(lessons) + samples - 1) / samples)
	done := 0
	for range epochs {
		order := rng.Perm(len(lessons))
		for from := 0; from < len(order); from += samples {
			batch := order[from:min(from+samples, len(order))]
			for _, i := range batch {
				p.forward(lessons[i].features)
				p.backward(lessons[i].wanted)
			}
			share := leastShare + float64((1-leastShare)*.5*(1+ir.Cos(float64(math.Pi*float64(done)/float64(total)))))
			p.step(rate*share, len(batch))
			done++
		}
	}
}
