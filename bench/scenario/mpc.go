package scenario

import (
	"math"
)

// Of the lateral model-predictive controller: a double integrator of offset y and lateral speed w, moved by an
// acceleration relative to the road's. That is the kinematic car at small angles, at any speed: w is speed times
// heading.
const (
	mpcStages     = 5
	mpcStage      = 0.25 // s, the interval of the first previews of the road
	mpcIterations = 16
	mpcDelay      = 0.2 // s, from a command to half its effect: delay and lag of steering by default

	mpcOffsetCost = 0.4 // of y², 1/s⁴; acceleration² costs 1
	mpcSpeedCost  = 1.2 // of w², 1/s²
)

// mpcProblem is the controller's quadratic program, condensed to the accelerations of all stages: least ½aᵀHa +
// aᵀFx within bounds. The terminal cost is that of the unbounded infinite-horizon optimum (Riccati), so without
// bounds the first acceleration is that of the linear-quadratic regulator.
type mpcProblem struct {
	h     [mpcStages][mpcStages]float64
	f     [mpcStages][2]float64
	start [mpcStages][2]float64 // a = start·x is the unbounded optimum
	gain  [2]float64            // of the regulator: a = -gain·x

	// Of the projected gradient with constant momentum (Nesterov, Introductory Lectures on Convex Optimization, 2004,
	// scheme 2.2.11).
	step, momentum float64
}

var lateralMPC = newMPCProblem()

func newMPCProblem() (p mpcProblem) {
	const t = mpcStage
	type matrix = [2][2]float64
	a, b := matrix{{1, t}, {0, 1}}, [2]float64{t * t / 2, t}
	q := matrix{{mpcOffsetCost, 0}, {0, mpcSpeedCost}}
	times := func(m matrix, x [2]float64) [2]float64 {
		return [2]float64{float64(m[0][0]*x[0]) + float64(m[0][1]*x[1]), float64(m[1][0]*x[0]) + float64(m[1][1]*x[1])}
	}
	dot := func(x, y [2]float64) float64 { return float64(x[0]*y[0]) + float64(x[1]*y[1]) }
	column := func(m matrix, j int) [2]float64 { return [2]float64{m[0][j], m[1][j]} }
	// Riccati's equation, by iteration.
	cost := q
	for range 500 {
		pb := times(cost, b)
		size := 1 + dot(b, pb)
		for j := range p.gain {
			p.gain[j] = dot(pb, column(a, j)) / size
		}
		var next matrix
		for i := range next {
			for j := range next[i] {
				next[i][j] = q[i][j] + dot(column(a, i), times(cost, column(a, j))) - float64(p.gain[i]*p.gain[j]*size)
			}
		}
		cost = next
	}
	// state is the effect of each stage's acceleration, and of the first state, on the state after stage k.
	var effect [mpcStages][2]float64
	power := matrix{{1, 0}, {0, 1}}
	for i := range p.h {
		p.h[i][i] = 1
	}
	for k := range mpcStages {
		for j := range k {
			effect[j] = times(a, effect[j])
		}
		effect[k] = b
		power = matrix{times(a, column(power, 0)), times(a, column(power, 1))}
		power[0][1], power[1][0] = power[1][0], power[0][1]
		weight := q
		if k == mpcStages-1 {
			weight = cost
		}
		for i := range k + 1 {
			for j := range k + 1 {
				p.h[i][j] += dot(effect[i], times(weight, effect[j]))
			}
			for j := range p.f[i] {
				p.f[i][j] += dot(effect[i], times(weight, column(power, j)))
			}
		}
	}
	for j := range 2 {
		x := [2]float64{}
		x[j] = 1
		for k := range p.start {
			p.start[k][j] = -dot(p.gain, x)
			x = times(a, x)
			x[0], x[1] = x[0]+float64(b[0]*p.start[k][j]), x[1]+float64(b[1]*p.start[k][j])
		}
	}
	// The greatest eigenvalue of H, by the power method; the least is 1 or more.
	greatest, x := 0.0, [mpcStages]float64{1, 1, 1, 1, 1}
	for range 200 {
		var y [mpcStages]float64
		greatest = 0
		for i, row := range p.h {
			for j, h := range row {
				y[i] += float64(h * x[j])
			}
			greatest = max(greatest, math.Abs(y[i]))
		}
		for i := range x {
			x[i] = y[i] / greatest
		}
	}
	root := math.Sqrt(greatest)
	p.step, p.momentum = 1/greatest, (root-1)/(root+1)
	return p
}

// mpc steers by lateralMPC, within 3 m/s² of all lateral acceleration at each stage, from where the car will be when
// the command has an effect.
func mpc(b *builder, seen map[string]num, _ []num) (curvature, accel num, next []num) {
	p := &lateralMPC
	v := b.max(seen["speed"], b.c(5))
	squared := b.mul(v, v)
	now := b.mul(squared, b.sub(seen["curvature"], seen["road0"]))
	across := b.mul(v, seen["heading"])
	y := b.sum(seen["offset"], b.mul(b.c(mpcDelay), across), b.mul(b.c(mpcDelay*mpcDelay/2), now))
	w := b.sum(across, b.mul(b.c(mpcDelay), now))
	roads := [mpcStages]num{
		seen["road1"], seen["road2"], b.mul(b.c(0.5), b.sum(seen["road2"], seen["road3"])), seen["road3"], seen["road3"],
	}
	var low, high, a, before, linear [mpcStages]num
	for k, road := range roads {
		by := b.mul(squared, road)
		low[k], high[k] = b.sub(b.c(-maxLateralAccel), by), b.sub(b.c(maxLateralAccel), by)
		at := b.sum(b.mul(b.c(p.start[k][0]), y), b.mul(b.c(p.start[k][1]), w))
		a[k] = b.clip(at, low[k], high[k])
		linear[k] = b.sum(b.mul(b.c(p.f[k][0]), y), b.mul(b.c(p.f[k][1]), w))
	}
	before = a
	for range mpcIterations {
		var extrapolated, new [mpcStages]num
		for k := range a {
			extrapolated[k] = b.sum(a[k], b.mul(b.c(p.momentum), b.sub(a[k], before[k])))
		}
		for k := range a {
			slope := linear[k]
			for j := range extrapolated {
				slope = b.sum(slope, b.mul(b.c(p.h[k][j]), extrapolated[j]))
			}
			new[k] = b.clip(b.sub(extrapolated[k], b.mul(b.c(p.step), slope)), low[k], high[k])
		}
		before, a = a, new
	}
	return b.sum(seen["road1"], b.div(a[0], squared)), follow(b, seen), nil
}
