package loss

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// gradient is a loss and its gradient by the student's output, of the differentiated graph in float64.
func gradient(t testing.TB, terms Terms, d data) (loss float64, by []float64) {
	t.Helper()
	g := graphOf(t, terms, d.y.Shape[0])
	y := g.Outputs[len(g.Outputs)-1]
	of, err := g.Gradients([]*ir.Value{y}, []*ir.Value{nil}, g.Inputs[:1])
	require.NoError(t, err)
	of[0].Name = "gradient"
	g.Outputs = append(g.Outputs, of[0])
	out, err := ir.Evaluate(context.Background(), g, d.inputs(g), ir.EvalOptions{})
	require.NoError(t, err)
	return out["loss"].F[0], out["gradient"].F
}

// along is the difference quotient of a loss along a direction.
func along(t testing.TB, terms Terms, d data, direction []float64) float64 {
	t.Helper()
	const h = 1e-6
	at := func(h float64) float64 {
		moved := d
		moved.y = ir.NewArray(d.y.Type)
		for i, x := range d.y.F {
			moved.y.F[i] = x + h*direction[i]
		}
		return evaluate(t, terms, moved)["loss"]
	}
	return (at(h) - at(-h)) / (2 * h)
}

// TestGradientsAreDifferenceQuotients: of each term alone, along random directions within its part and along single numbers.
func TestGradientsAreDifferenceQuotients(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, name := range generations {
		all := everything(t, name)
		d := drawn(all[0].length, 2, 11)
		for _, m := range all {
			terms := Terms{m}
			_, by := gradient(t, terms, d)
			for k := range 6 {
				direction := make([]float64, len(by))
				for i := range direction {
					if at := i%m.length - m.part.from; at >= 0 && at < m.part.size {
						direction[i] = rng.NormFloat64()
					}
				}
				if k > 2 { // a single number
					i := m.part.from + rng.IntN(m.part.size)
					direction = make([]float64, len(by))
					direction[i] = 1
				}
				want, got := along(t, terms, d, direction), 0.0
				for i, g := range by {
					got += g * direction[i]
				}
				assert.InDelta(t, want, got, 1e-6*math.Max(1, math.Abs(want))+1e-7*total(by), "%s of %s", m.Name, name)
			}
			for i, g := range by {
				if at := i%m.length - m.part.from; at < 0 || at >= m.part.size {
					require.Zero(t, g, "%s pulls at what it is not about", m.Name)
				}
			}
			require.NotZero(t, total(by), m.Name)
		}
	}
}

// total is the length of a vector.
func total(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// extreme makes a tenth of all numbers, log scales among them, ±20, the student's and the teacher's.
func extreme(d data) data {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, a := range []*ir.Array{d.y, d.t} {
		for i := range a.F {
			if rng.IntN(10) == 0 {
				a.F[i] = float64(20 - 40*rng.IntN(2))
			}
		}
	}
	return d
}

// TestTheTeacherItselfHasNoGradient: divergences and unexplained parts are 0 where the student is the teacher, and least there, also for
// log scales of ±20. Likelihoods pull its scales together, since it names its own means.
func TestTheTeacherItselfHasNoGradient(t *testing.T) {
	for _, name := range generations {
		all := everything(t, name)
		terms := slices.DeleteFunc(slices.Clone(all), func(m Term) bool { return m.form != divergence })
		d := extreme(drawn(all[0].length, 2, 13))
		d.y = d.t
		loss, by := gradient(t, terms, d)
		assert.InDelta(t, 0, loss, 1e-9, name)
		for i, g := range by {
			require.InDelta(t, 0, g, 1e-12, "number %d of %s", i, name)
		}
		_, by = gradient(t, all.only("plan_nll"), d)
		assert.NotZero(t, total(by))
		moved := d
		moved.y = ir.NewArray(d.y.Type)
		for i, x := range d.y.F {
			moved.y.F[i] = x + 0.01*math.Sin(float64(i))
		}
		for _, m := range terms {
			assert.Positive(t, evaluate(t, Terms{m}, moved)["loss"], "%s of %s", m.Name, name)
		}
	}
}

// TestExtremeScalesAreFinite: log scales of ±20 and a distant teacher give finite losses, which NumPy gives too, and finite gradients.
func TestExtremeScalesAreFinite(t *testing.T) {
	for _, name := range generations {
		terms := everything(t, name)
		d := extreme(drawn(terms[0].length, 2, 17))
		for i := range 40 {
			d.t.F[i] = 1e4
		}
		want := twin(t, name, d, false)
		got := evaluate(t, terms, d)
		for _, m := range terms {
			assert.InEpsilon(t, want[m.Name], got[m.Name], 1e-6, "%s of %s", m.Name, name)
		}
		_, by := gradient(t, terms, d)
		for i, g := range by {
			require.False(t, math.IsNaN(g) || math.IsInf(g, 0), "number %d of %s", i, name)
		}
	}
}
