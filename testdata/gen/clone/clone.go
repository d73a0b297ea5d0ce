// Package clone fits a policy of simulated loops: a perceptron that learns by imitation what the built-in controller
// pid does, but for its integral. It drives a part of the time while it learns, so that it sees what its own errors
// lead to (DAgger: Ross, Gordon and Bagnell, AISTATS 2011). The same seed gives the same bits.
package clone

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal"
)

// Options of Fit. A zero field but Seed takes the default named.
type Options struct {
	Loops  int    // of each family that drive in a round: 8
	Rounds int    // of driving and learning: 3
	Epochs int    // of each round: 20
	Hidden int    // width of both hidden layers: 32
	Seed   uint64 // of draws, noise, first weights and order
}

// Policy is what was learnt.
type Policy struct {
	net *perceptron
	// Seen are observations of the last round, in which the policy drove: what an adapter of it can be trained on.
	Seen [][]float64
}

// Scales of what the layers say: lateral and longitudinal acceleration in m/s² for 1.
const (
	lateralScale = 2
	accelScale   = 2
)

// Fit makes a policy: in each round loops of all built-in families and of a wider one drive, first by the teacher with
// noise on its commands, then more and more by the policy, and the policy learns the teacher's commands for all that
// was seen so far.
func Fit(ctx context.Context, d hal.Device, opt Options) (*Policy, error) {
	if opt.Loops == 0 {
		opt.Loops = 8
	}
	if opt.Rounds == 0 {
		opt.Rounds = 3
	}
	if opt.Epochs == 0 {
		opt.Epochs = 20
	}
	if opt.Hidden == 0 {
		opt.Hidden = 32
	}
	if opt.Loops < 0 || opt.Rounds < 0 || opt.Epochs < 0 || opt.Hidden < 0 {
		return nil, fmt.Errorf("clone: %+v: counts must not be negative", opt)
	}
	p := &Policy{net: newPerceptron(rand.New(rand.NewPCG(opt.Seed, 1)), opt.Hidden)}
	var lessons []lesson
	for round := range opt.Rounds {
		rng := rand.New(rand.NewPCG(opt.Seed, 2+uint64(round)))
		c := &collector{policy: p.net, share: float64(round) / float64(opt.Rounds), rng: rng}
		if err := c.drive(ctx, d, opt, round); err != nil {
			return nil, fmt.Errorf("clone: round %d: %w", round, err)
		}
		lessons = append(lessons, c.lessons...)
		p.net.learn(rand.New(rand.NewPCG(opt.Seed, 100+uint64(round))), lessons, opt.Epochs)
		p.Seen = c.seen
	}
	return p, nil
}

// wide is a family of everything at once.
var wide = scenario.Family{
	Name:   "wide",
	Values: map[string]float64{"curve_start": 30, "curve_length": 150, "car0_present": 1, "car0_time1": 4},
	Vary: map[string]scenario.Distribution{
		"speed": {Uniform: []float64{3, 35}}, "cruise": {Uniform: []float64{10, 35}},
		"offset":  {Uniform: []float64{-1.5, 1.5}},
		"heading": {Uniform: []float64{-.05, .05}}, "curvature": {Uniform: []float64{-.006, .006}},
		"car0_gap": {Uniform: []float64{15, 150}}, "car0_speed0": {Uniform: []float64{5, 30}},
		"car0_time2":   {Uniform: []float64{6, 12}},
		"car0_speed2":  {Uniform: []float64{0, 30}},
		"noise_offset": {Uniform: []float64{0, .1}}, "noise_heading": {Uniform: []float64{0, .005}},
	},
}

// Of driving while learning.
const (
	seconds = 16 // that a scenario lasts
	every   = 8  // steps between lessons of a loop
)

// collector is the callback that drives, and keeps what it sees with what the teacher does.
type collector struct {
	policy  *perceptron
	share   float64 // of loops that the policy drives
	rng     *rand.Rand
	wander  [][2]float64 // of each loop: noise on the teacher's commands
	lessons []lesson
	seen    [][]float64
}

func (c *collector) drive(ctx context.Context, d hal.Device, opt Options, round int) error {
	var list []scenario.Scenario
	families := append([]scenario.Family{wide, wide}, scenario.Families...)
	for i, f := range families {
		for k := range opt.Loops {
			s, err := f.Draw(opt.Seed, opt.Loops*(round*len(families)+i)+k)
			if err == nil {
				s, err = s.With("duration", seconds)
			}
			if err != nil {
				return err
			}
			list = append(list, s)
		}
	}
	r := &scenario.Runner{Device: d}
	_, err := r.RunBatch(ctx, list, &scenario.Callback{Name: "clone", Act: c.act}, 1, opt.Seed+uint64(round))
	return err
}

// act is a step of all loops. Loops are shared out between policy and teacher by their number.
func (c *collector) act(_ context.Context, step int, seen, commands [][]float32) error {
	n := len(seen[0])
	if len(c.wander) != n {
		c.wander = make([][2]float64, n)
	}
	for i := range n {
		x := make([]float64, len(seen))
		for k := range seen {
			x[k] = float64(seen[k][i])
		}
		f, wanted := features(x), teach(x)
		if step%every == i%every {
			c.lessons = append(c.lessons, lesson{f, wanted.scaled(x)})
			c.seen = append(c.seen, x)
		}
		does := wanted
		if float64(i%8) < float64(8*c.share) {
			does = c.policy.command(f, x)
		}
		w := &c.wander[i] // an Ornstein-Uhlenbeck process of about 1 s
		for k, deviation := range [2]float64{.5, .3} {
			w[k] = float64(.95*w[k]) + float64(.3*deviation*c.rng.NormFloat64())
		}
		v := max(x[at["speed"]], 5)
		commands[0][i] = float32(does.curvature + w[0]/float64(v*v))
		commands[1][i] = float32(does.accel + w[1])
	}
	return nil
}

// command is what drives: curvature in 1/m and acceleration in m/s².
type command struct{ curvature, accel float64 }

// scaled is a command as the layers say it.
func (c command) scaled(x []float64) [2]float64 {
	v := max(x[at["speed"]], 5)
	return [2]float64{float64(c.curvature*v*v) / lateralScale, c.accel / accelScale}
}

// at is the place of an observation.
var at = func() map[string]int {
	places := map[string]int{}
	for i, o := range scenario.Observations {
		places[o.Name] = i
	}
	return places
}()

// teach is what the built-in pid does, but for its integral.
func teach(x []float64) command {
	o := func(name string) float64 { return x[at[name]] }
	v := max(o("speed"), 5)
	back := float64(.64*o("offset")) + float64(1.6*v*o("heading"))
	accel := min(max(.5*(o("cruise")-o("speed")), -2), 1.5)
	if o("lead") > .5 {
		wanted := 4 + float64(1.45*o("speed"))
		accel = min(accel, float64(.25*(o("gap")-wanted))+float64(.8*(o("lead_speed")-o("speed"))))
	}
	return command{o("road1") - back/float64(v*v), min(max(accel, -4), 2)}
}

// features are what the first layer reads; Model.ONNX has the same.
func features(x []float64) []float64 {
	o := func(name string) float64 { return x[at[name]] }
	v := max(o("speed"), 5)
	across := float64(v*v) / lateralScale
	return []float64{
		o("offset"), float64(v * o("heading")), float64(across * o("curvature")),
		float64(across * o("road0")), float64(across * o("road1")),
		float64(across * o("road2")), float64(across * o("road3")),
		o("speed") / 20, min(o("gap"), nearest) / 40, (o("lead_speed") - o("speed")) / 5, o("lead"),
		(o("cruise") - o("speed")) / 5, o("accel") / accelScale,
	}
}

const nearest = 120 // m: of gaps beyond, features say no more

// lesson is a sample: features, and the teacher's command as the layers say it.
type lesson struct {
	features []float64
	wanted   [2]float64
}

// command is what the layers make of features, of observations x.
func (p *perceptron) command(f []float64, x []float64) command {
	y := p.forward(f)
	v := max(x[at["speed"]], 5)
	return command{lateralScale * y[0] / float64(v*v), accelScale * y[1]}
}
