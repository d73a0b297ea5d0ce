package scenario

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// horizon is the first acceleration of the least cost over so many stages without bounds, from x, by elimination in the
// equations of all stages' accelerations.
func horizon(stages int, x [2]float64) float64 {
	const t = mpcStage
	y := make([]float64, stages) // gradient at zero
	h := make([][]float64, stages)
	reach := func(from, to int) [2]float64 { // of a unit acceleration in a stage, on the state before a later one
		return [2]float64{t*t/2 + float64(to-from-1)*t*t, t}
	}
	for i := range h {
		h[i] = make([]float64, stages)
		h[i][i] = 1
		for k := i + 1; k <= stages; k++ {
			e := reach(i, k)
			free := [2]float64{x[0] + float64(k)*t*x[1], x[1]}
			y[i] += mpcOffsetCost*e[0]*free[0] + mpcSpeedCost*e[1]*free[1]
			for j := range k {
				o := reach(j, k)
				h[i][j] += mpcOffsetCost*e[0]*o[0] + mpcSpeedCost*e[1]*o[1]
			}
		}
	}
	for i := stages - 1; i >= 0; i-- { // upwards, so that the first unknown is left
		for k := range i {
			share := h[k][i] / h[i][i]
			for j := range h[k] {
				h[k][j] -= share * h[i][j]
			}
			y[k] -= share * y[i]
		}
	}
	return -y[0] / h[0][0]
}

// TestMPC_IsTheRegulatorWithoutBounds: its unbounded optimum is stationary, and begins as that of a horizon of a
// minute.
func TestMPC_IsTheRegulatorWithoutBounds(t *testing.T) {
	p := newMPCProblem()
	for j := range 2 {
		for i := range p.h {
			slope := p.f[i][j]
			for k := range p.h[i] {
				slope += p.h[i][k] * p.start[k][j]
			}
			require.InDelta(t, 0, slope, 1e-12)
		}
		x := [2]float64{}
		x[j] = 1
		require.InDelta(t, horizon(240, x), -p.gain[j], 1e-10)
	}
	t.Logf("gains %.4f", p.gain)
}

// exactly is the first acceleration of the bounded problem, by Gauss-Seidel until nothing changes.
func (p *mpcProblem) exactly(x [2]float64, low, high [mpcStages]float64) float64 {
	var a [mpcStages]float64
	for range 10000 {
		change := 0.0
		for i := range a {
			slope := p.f[i][0]*x[0] + p.f[i][1]*x[1]
			for j := range a {
				slope += p.h[i][j] * a[j]
			}
			new := clamp(a[i]-slope/p.h[i][i], low[i], high[i])
			change = math.Max(change, math.Abs(new-a[i]))
			a[i] = new
		}
		if change < 1e-13 {
			break
		}
	}
	return a[0]
}

// TestMPC_SolvesItsProblem: what the step commands is the optimum within bounds, in 10,000 states, many of them at
// bounds.
func TestMPC_SolvesItsProblem(t *testing.T) {
	const loops = 10000
	g := ir.NewGraph("mpc")
	table := g.AddInput("seen", ir.T(ir.Float64, len(Observations), loops))
	require.NoError(t, g.Build("mpc", func(x *ir.Expansion) {
		b := &builder{x: x, loops: loops, float: ir.Float64}
		seen := map[string]num{}
		for i, o := range Observations {
			seen[o.Name] = b.row(table, i)
		}
		curvature, accel, _ := mpc(b, seen, nil)
		out := b.rows(curvature, accel)
		out.Name = "out"
		g.Outputs = []*ir.Value{out}
	}))
	in := ir.NewArray(table.Type)
	rng := rand.New(rand.NewPCG(31, 32))
	between := map[string][2]float64{
		"speed": {0, 40}, "offset": {-2, 2}, "heading": {-.1, .1}, "curvature": {-.01, .01},
		"road0": {-.01, .01}, "road1": {-.01, .01},
		"road2": {-.01, .01}, "road3": {-.01, .01}, "gap": {5, 100}, "lead_speed": {0, 30}, "lead": {0, 1}, "cruise": {5, 35},
	}
	for i, o := range Observations {
		for k := range loops {
			w := between[o.Name]
			in.F[i*loops+k] = w[0] + (w[1]-w[0])*rng.Float64()
		}
	}
	out, err := ir.Evaluate(t.Context(), g, map[string]*ir.Array{"seen": in}, ir.EvalOptions{})
	require.NoError(t, err)
	p := newMPCProblem()
	worst, atBounds := 0.0, 0
	for k := range loops {
		o := func(name string) float64 { return in.F[observed(name)*loops+k] }
		v := math.Max(o("speed"), 5)
		now := v * v * (o("curvature") - o("road0"))
		x := [2]float64{o("offset") + .2*v*o("heading") + .02*now, v*o("heading") + .2*now}
		var low, high [mpcStages]float64
		for i, road := range []float64{o("road1"), o("road2"), (o("road2") + o("road3")) / 2, o("road3"), o("road3")} {
			low[i], high[i] = -3-v*v*road, 3-v*v*road
		}
		want := p.exactly(x, low, high)
		if want == low[0] || want == high[0] {
			atBounds++
		}
		worst = math.Max(worst, math.Abs((out["out"].F[k]-o("road1"))*v*v-want))
	}
	t.Logf("worst %.2g m/s², %d of %d at a bound", worst, atBounds, loops)
	require.Greater(t, atBounds, loops/10)
	require.Less(t, atBounds, loops*9/10)
	require.Less(t, worst, 1.5e-3)
}

// TestMPC_Drives: it fails in no more loops than pid does on the same draws, give or take one, and recovers from an
// offset.
func TestMPC_Drives(t *testing.T) {
	fulltest.Long(t)
	r := &Runner{Device: device(t)}
	var list []Scenario
	for _, name := range []string{"curve", "offset-recovery", "crosswind", "latency"} {
		f, err := FamilyOf(name)
		require.NoError(t, err)
		for k := range 8 {
			s, err := f.Draw(5, k)
			require.NoError(t, err)
			list = append(list, s)
		}
	}
	var failed [2]int
	for k, name := range []string{"pid", "mpc"} {
		c, err := BuiltIn(name)
		require.NoError(t, err)
		out, err := r.RunBatch(t.Context(), list, c, 1, 5)
		require.NoError(t, err)
		for i := range list {
			if out.Failed(i) {
				failed[k]++
			}
		}
	}
	t.Log(failed)
	require.LessOrEqual(t, failed[1], failed[0]+1)
}
