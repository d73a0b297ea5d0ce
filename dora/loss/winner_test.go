package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

const planNumbers = modeld.Points * modeld.PlanColumns

// spread are outputs of policy010 whose five paths lie at 0, 10, 20, 30 and 40, equally likely, with scales of 1;
// what was driven is at another place for each sample.
func spread(t testing.TB, driven ...float64) (Terms, data) {
	t.Helper()
	terms := everything(t, "policy010")
	d := data{ir.NewArray(ir.T(ir.Float32, len(driven), terms[0].length)), ir.NewArray(ir.T(ir.Float32, len(driven), terms[0].length)),
		ir.NewArray(ir.T(ir.Float32, len(driven), modeld.Points, modeld.PlanColumns))}
	for i, x := range driven {
		for k := range 5 {
			for n := range planNumbers {
				d.y.F[i*terms[0].length+k*(2*planNumbers+1)+n] = float64(10 * k)
			}
		}
		for n := range planNumbers {
			d.truth.F[i*planNumbers+n] = x
		}
	}
	return terms, d
}

// logits are where policy010 says of sample i how likely path k is.
func logit(terms Terms, i, k int) int {
	return i*terms[0].length + (k+1)*(2*planNumbers+1) - 1
}

// TestTheNearestPathWins: it is made likelier, its means are pulled, and those of others a millionth as strongly. Where the measured path moves on, the
// next one wins; of two that are equally near, the first.
func TestTheNearestPathWins(t *testing.T) {
	for winner, driven := range map[int][]float64{0: {-3, 5}, 1: {9, 15}, 4: {38, 99}, 2: {19, 25}} {
		terms, d := spread(t, driven...)
		_, by := gradient(t, terms.only("plan_truth"), d)
		for i := range driven {
			for k := range 5 {
				likelier, mean := by[logit(terms, i, k)], math.Abs(by[logit(terms, i, k)-1-2*planNumbers+1])
				if k == winner {
					assert.InDelta(t, -0.8/2, likelier, 1e-9, "path %d, driven at %g", k, driven[i])
					assert.InDelta(t, 1./2, mean, 0.01)
				} else {
					assert.InDelta(t, 0.2/2, likelier, 1e-9, "path %d, driven at %g", k, driven[i])
					assert.InDelta(t, runnersUp/2, mean, 1e-8)
				}
			}
		}
	}
}

// TestTheTeachersLikeliestPathIsTheMeasure: of plan_nll, whichever hypothesis of the student is nearest to it wins.
func TestTheTeachersLikeliestPathIsTheMeasure(t *testing.T) {
	for likeliest, winner := range []int{4, 3, 2, 1, 0} {
		terms, d := spread(t, 0)
		for k := range 5 { // the teacher has the paths in the other order
			for n := range planNumbers {
				d.t.F[k*(2*planNumbers+1)+n] = float64(10*(4-k)) + 1
			}
		}
		d.t.F[logit(terms, 0, likeliest)] = 2
		_, by := gradient(t, terms.only("plan_nll"), d)
		for k := range 5 {
			assert.Equal(t, k == winner, by[logit(terms, 0, k)] < 0, "%d of %d", k, likeliest)
		}
	}
}

// TestOnlyWhatIsKnownCounts: unknown numbers change neither loss nor gradient, also where they are all that speaks for another path, and a sample without any
// known one gives nothing; both with hypotheses and without.
func TestOnlyWhatIsKnownCounts(t *testing.T) {
	terms, d := spread(t, 10, 0, 0)
	for n := range planNumbers {
		d.truth.F[planNumbers+n] = math.NaN()
		if n > 0 {
			d.truth.F[2*planNumbers+n] = math.NaN()
		}
	}
	d.truth.F[2*planNumbers] = 31
	loss, by := gradient(t, terms.only("plan_truth"), d)
	row := terms[0].length
	assert.Zero(t, total(by[row:2*row]))
	assert.Positive(t, total(by[:row]))
	assert.Negative(t, by[logit(terms, 2, 3)])
	assert.Equal(t, 1, count(by[2*row+3*(2*planNumbers+1):][:planNumbers]))
	require.False(t, math.IsNaN(loss))

	all := data{d.y, d.t, ir.NewArray(d.truth.Type)}
	for i := range all.truth.F {
		all.truth.F[i] = math.NaN()
	}
	loss, by = gradient(t, terms.only("plan_truth"), all)
	assert.Zero(t, loss)
	assert.Zero(t, total(by))

	plain := everything(t, "policy").only("plan_truth")
	d = drawn(plain[0].length, 2, 5)
	for n := range planNumbers {
		d.truth.F[n] = math.NaN()
	}
	_, by = gradient(t, plain, d)
	assert.Zero(t, total(by[:plain[0].length]))
	for n := range planNumbers {
		assert.Equal(t, math.IsNaN(d.truth.F[planNumbers+n]), by[plain[0].length+n] == 0)
	}
}

func count(x []float64) (n int) {
	for _, v := range x {
		if v != 0 {
			n++
		}
	}
	return n
}

// TestABatchIsTheMeanOfItsSamples: of each term, so that it makes no difference how samples are spread over batches and ranks.
func TestABatchIsTheMeanOfItsSamples(t *testing.T) {
	for _, name := range generations {
		terms := everything(t, name)
		const samples = 3
		d := drawn(terms[0].length, samples, 23)
		got := evaluate(t, terms, d)
		mean := map[string]float64{}
		for i := range samples {
			one := func(a *ir.Array) *ir.Array {
				n := len(a.F) / samples
				out := ir.NewArray(ir.T(ir.Float32, append([]int{1}, a.Shape[1:]...)...))
				copy(out.F, a.F[i*n:])
				return out
			}
			for term, v := range evaluate(t, terms, data{one(d.y), one(d.t), one(d.truth)}) {
				mean[term] += v / samples
			}
		}
		for term, v := range mean {
			assert.InEpsilon(t, v, got[term], 1e-12, "%s of %s", term, name)
		}
	}
}
