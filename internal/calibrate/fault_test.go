package calibrate

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// at makes a fault of one stage.
func at(where stage, change func(x float64) float64) Technique {
	t := Best
	t.fault = func(s stage, x float64) float64 {
		if s == where {
			return change(x)
		}
		return x
	}
	return t
}

func negative(x float64) float64 { return -x }

func by(factor float64) func(float64) float64 {
	return func(x float64) float64 { return factor * x }
}

// codes moves the scale of a block to another number of its format.
func codes(by int) func(float64) float64 {
	return func(x float64) float64 {
		top := int(blockScale.Encode(blockScale.Max(), true))
		return blockScale.Decode(uint32(min(max(int(blockScale.Encode(x, true))+by, 0), top)))
	}
}

// The least errors that count as faults, between those measured without a fault and with the least one (the geometric mean):
// related networks 0.0436 and 0.0480 (block scales a code too great), exact ones 6.4e-8 and 0.055 (scales × 0.9).
const (
	relatedBound = 0.0457
	exactBound   = 6e-5
)

// TestFaultsOfCalibrationAreNoticed measures calibration as it is, which must stay below the bounds, and broken in one place
// after another, which must not.
func TestFaultsOfCalibrationAreNoticed(t *testing.T) {
	notices := map[string]func(t *testing.T, tech Technique) bool{
		"related": func(t *testing.T, tech Technique) bool { return relatedError(t, tech) > relatedBound },
		"exact":   func(t *testing.T, tech Technique) bool { return exactError(t, tech) > exactBound },
	}
	for name, notice := range notices {
		require.False(t, notice(t, Best), "%s networks: calibration is worse than it was", name)
	}
	for _, c := range []struct {
		fault   string
		tech    Technique
		noticed string // by which networks
	}{
		{"all techniques off", Technique{}, "related"},
		{"feedback off", Technique{Recover: true, Bias: true}, "related"},
		{"means not corrected", Technique{Feedback: true, Recover: true}, "related"},
		{"sign of the error feedback", at(feedbacks, negative), "related"},
		{"sign of recovery", at(recovery, negative), "related"},
		{"sign of the means", at(means, negative), "related"},
		{"block scales a code too great", at(blocks, codes(+1)), "related"},
		{"block scales a code too small", at(blocks, codes(-1)), "related"},
		{"activation scales × 0.9", at(scales, by(.9)), "exact"},
		{"activation scales halved", at(scales, by(.5)), "exact"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			require.True(t, notices[c.noticed](t, c.tech), "nobody notices")
		})
	}
}

// relatedError is the mean relative L2, on unseen inputs, of networks with NVFP4 weights whose inputs are related: a dozen
// causes make 64 features, so that errors of weights can make up for each other, and have a level, so that they move means.
func relatedError(t *testing.T, tech Technique) float64 {
	const networks = 6
	mean := 0.0
	for seed := range uint64(networks) {
		rng := rand.New(rand.NewPCG(1, seed))
		var mix [64][12]float64
		for i := range mix {
			for k := range mix[i] {
				mix[i][k] = rng.NormFloat64()
			}
		}
		draw := func(k, n int) float64 { return rng.NormFloat64() / 8 }
		g := layers(t, draw, draw)
		inputs := func() (out []map[string]*ir.Array) {
			for range 16 {
				var causes [12]float64
				out = append(out, rowsOf(func(i int) float64 {
					if i%64 == 0 {
						for k := range causes {
							causes[k] = rng.NormFloat64()
						}
					}
					x := 1 + .1*rng.NormFloat64()
					for k, c := range causes {
						x += mix[i%64][k] * c
					}
					return x
				}))
			}
			return out
		}
		in, unseen := inputs(), inputs()
		c, err := New(g, precision.NVFP4, in, Reference{}, nil)
		require.NoError(t, err)
		mean += errorOn(t, c, precision.NVFP4, tech, unseen) / networks
	}
	t.Logf("related networks: relative L2 %.4f", mean)
	return mean
}

// exactError is the relative L2, in fp8, of a network that fp8 holds exactly: permutations of inputs that are e4m3 numbers. It
// is judged on inputs that are four times as great, for which scales leave room.
func exactError(t *testing.T, tech Technique) float64 {
	permutation := func(by int) func(k, n int) float64 {
		return func(k, n int) float64 {
			if (n+by)%64 == k {
				return 1
			}
			return 0
		}
	}
	g := layers(t, permutation(5), permutation(11))
	eighths := func(scale float64) []map[string]*ir.Array { // 1, 1.125, … 1.875, whose greatest has the bits of e4m3's greatest: 1.75
		return []map[string]*ir.Array{rowsOf(func(i int) float64 { return scale * (1 + float64(i*5%7)/8) })}
	}
	in := eighths(1)
	c, err := New(g, precision.FP8, in, Reference{}, nil)
	require.NoError(t, err)
	// Perturbed inputs are no e4m3 numbers.
	c.walk, err = newWalk(g, in)
	require.NoError(t, err)
	c.memory, c.given, c.held = newExactRun(c.walk, false), len(in), nil
	e := errorOn(t, c, precision.FP8, tech, eighths(headroom))
	t.Logf("exact network: relative L2 %.2g", e)
	return e
}

// errorOn fits a plan with everything in low precision and measures it on other inputs.
func errorOn(t *testing.T, c *Calibration, precision string, tech Technique, unseen []map[string]*ir.Array) float64 {
	t.Helper()
	f, err := c.fit(context.Background(), forced(t, c, precision, false), tech)
	require.NoError(t, err)
	q, err := measured(t, c.walk.g, f.Plan, unseen)
	require.NoError(t, err)
	require.Len(t, q, 1)
	return q[0].RelL2
}
