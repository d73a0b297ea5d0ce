package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Models is an algorithm of the third tier, the model in the loop: openpilot's driving models see pictures that are drawn
// of each loop, keep histories for each loop, and command as modeld does. A step has no host step: drawing, warp, models,
// parsed commands, vehicle and metrics are one program.
//
// What is drawn is as late, as noisy and as often dropped as what other algorithms observe; noise of distances
// shakes the camera. Models see the nearest pixel of pictures of a comma 3X that is mounted straight.
type Models struct {
	Name      string
	ONNX      []*onnx.Model // a driving model, or a vision model and a policy
	Precision string        // fp32 (also "") or another one; the loop around is f32 in each
}

func (m *Models) algorithm() string { return m.Name }

// modelLoops is how many loops run at once with models. It is always the same number, since kernels for another one add
// up in another order: a loop has the same bits however many others there are.
const modelLoops = 8

// Names of what passes between the parts of a step.
const (
	keptCurvature = "model_curvature" // last command, which smoothing remembers
	keptAccel     = "model_accel"
)

// loaded are models for a batch of loops.
type loaded struct {
	step      *openpilot.Step
	batch     *ir.Graph // of the models, for all loops
	precision string
	view      *view
	row       *generation.Row
	rule      generation.Commands
	from      []*loadedOutput
}

// loadedOutput is a named part of an output of the models.
type loadedOutput struct {
	onnx.Slice
	output string
	length int // of the whole output, of a loop
}

// load makes models ready for so many loops. Errors name the file.
func (m *Models) load(loops int) (*loaded, error) {
	if len(m.ONNX) == 0 {
		return nil, fmt.Errorf("algorithm %q: there are no models", m.Name)
	}
	for _, f := range m.ONNX {
		if f == nil {
			return nil, fmt.Errorf("algorithm %q: a model is missing", m.Name)
		}
	}
	step, err := openpilot.Compose(m.ONNX, openpilot.Options{Planes: true, Sampling: runtime.Nearest})
	if err != nil {
		return nil, err
	}
	file := step.Models[len(step.Models)-1].Path
	if step.Loop.Kind != generation.Driving {
		return nil, &onnx.Error{File: file, Reason: "it is no driving model, so it cannot drive",
			Remedy: "give a driving model, or a vision model and its policy"}
	}
	chosen, err := networkPrecision(m.Name, m.Precision)
	if err != nil {
		return nil, err
	}
	row := generation.Named(step.Loop.Rule)
	l := &loaded{step: step, precision: chosen, row: row, rule: row.Commands}
	for _, in := range step.Run.Inputs {
		if _, told := row.Vector(in.Name); !told && in.Name != openpilot.Planes && in.Name != openpilot.Desire && !strings.HasPrefix(in.Name, "state_") {
			return nil, &onnx.Error{File: file, Reason: fmt.Sprintf("nothing in a simulated loop feeds input %q", in.Name),
				Remedy: "models take pictures, desires, " + strings.Join(generation.VectorInputs(), ", ")}
		}
	}
	g := step.Run.Clone()
	if err := l.promote(g); err != nil {
		return nil, err
	}
	for _, v := range g.Outputs { // the policy's come last: of a name that both have, they count
		for _, part := range step.Slices[v.Name] {
			l.from = append(l.from, &loadedOutput{part, v.Name, v.Type.Numel()})
		}
	}
	if l.part(generation.Action) == nil && l.part(generation.Plan) == nil {
		return nil, &onnx.Error{File: file, Reason: "it says neither a plan nor an action, so nothing drives",
			Remedy: "give models whose output_slices have plan or action"}
	}
	if l.batch, err = g.Batch(loops); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	l.view, err = viewOf(step.Loop.Height, step.Loop.Width)
	return l, err
}

// promote gives a graph inputs and outputs in f32, but for pictures and states, and no other outputs than those of models.
func (l *loaded) promote(g *ir.Graph) error {
	by := map[*ir.Value]*ir.Value{}
	cast := func(v *ir.Value, to ir.DType) (*ir.Value, error) {
		n, err := g.Add("Cast", "loop/"+v.Name, ir.Attrs{"to": to}, v)
		if err != nil {
			return nil, err
		}
		return n.Outputs[0], nil
	}
	for _, in := range slices.Clone(g.Inputs) {
		if strings.HasPrefix(in.Name, "state_") || in.Name == openpilot.Planes || in.Type.DType == ir.Float32 {
			continue
		}
		wide := g.AddInput(in.Name, ir.T(ir.Float32, in.Type.Shape...))
		g.Inputs = slices.DeleteFunc(g.Inputs, func(v *ir.Value) bool { return v == in })
		narrow, err := cast(wide, in.Type.DType)
		if err != nil {
			return err
		}
		by[in] = narrow
	}
	g.Substitute(by)
	var outputs []*ir.Value
	for _, v := range g.Outputs {
		switch _, ours := l.step.Slices[v.Name]; {
		case ours && v.Type.DType != ir.Float32:
			wide, err := cast(v, ir.Float32)
			if err != nil {
				return err
			}
			v.Name, wide.Name = v.Name+"_narrow", v.Name
			outputs = append(outputs, wide)
		case ours || strings.HasPrefix(v.Name, "next_state_"):
			outputs = append(outputs, v)
		}
	}
	g.Outputs = outputs
	g.RemoveDead()
	return g.Toposort()
}

// part is the named part of the outputs, or nil.
func (l *loaded) part(name string) *loadedOutput {
	for i := len(l.from) - 1; i >= 0; i-- {
		if l.from[i].Name == name {
			return l.from[i]
		}
	}
	return nil
}

// input is one of the batch, or nil.
func (l *loaded) input(name string) *ir.Value {
	i := slices.IndexFunc(l.batch.Inputs, func(v *ir.Value) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return l.batch.Inputs[i]
}

// delays are those that a car tells openpilot: from a command to its effect, lags included.
func (w *world) delays() (lateral, longitudinal num) {
	return w.sum(w.p("steer_delay"), w.p("steer_lag")), w.sum(w.p("accel_delay"), w.p("accel_lag"))
}

// tell makes what models are told besides pictures, in the half of a step that observes.
func (l *loaded) tell(w *world, see map[string]num, out func(v *ir.Value, as string)) {
	lateral, longitudinal := w.delays()
	told := map[string][]num{openpilot.Desire: slices.Repeat([]num{w.all(0)}, generation.Desires)}
	for _, v := range l.row.Vectors() {
		for _, t := range v.Terms {
			told[v.Name] = append(told[v.Name], w.signal(t, see, lateral, longitudinal))
		}
	}
	for _, in := range l.batch.Inputs {
		if list := told[in.Name]; list != nil {
			table := w.transposed(w.rows(list...))
			out(w.shape(table, in.Type.Shape...), in.Name)
		}
	}
}

// signal is what a model is told. A speed is that of the sensors, which noise can put below 0.
func (w *world) signal(t generation.Term, see map[string]num, lateral, longitudinal num) num {
	switch t.Signal {
	case generation.LeftHandDrive:
		return w.all(1)
	case generation.RightHandDrive:
		return w.all(0)
	case generation.LateralDelay:
		return w.sum(lateral, w.c(t.Plus))
	case generation.LongitudinalDelay:
		return w.sum(longitudinal, w.c(t.Plus))
	}
	return w.max(see["speed"], w.c(0))
}

// states adds the sizes of what models and commands keep, of all runs to come.
func (l *loaded) states(sizes map[string]int) {
	for _, k := range l.kept() {
		sizes[k.Input] = max(1, k.Delay) * l.input(k.Input).Type.Bytes()
	}
	for _, name := range []string{keptCurvature, keptAccel} {
		sizes[name] = 4 * l.loops()
	}
}

// loops is how many there are.
func (l *loaded) loops() int {
	planes := l.input(openpilot.Planes).Type.Shape
	return planes[0] / cameras
}

// kept is what models keep: as they say themselves, and pictures of some steps ago.
func (l *loaded) kept() []codegen.StateBinding {
	kept := compile.States(l.batch)
	if old := l.input(openpilot.OldPlanes); old != nil {
		kept = append(kept, codegen.StateBinding{Input: old.Name, Output: openpilot.Planes, Delay: max(1, old.Delay)})
	}
	return kept
}

// modelled is the step with models between its halves.
func (d *design) modelled() (e compile.Entry, err error) {
	l := d.models
	command, err := l.command(d)
	if err != nil {
		return e, fmt.Errorf("step of %d loops: commands: %w", d.loops, err)
	}
	parts := []compile.Part{d.part(), {Graph: command, Precision: precision.FP32}}
	return d.around(parts, l.kept(), codegen.StateBinding{Input: keptCurvature, Output: "next:" + keptCurvature},
		codegen.StateBinding{Input: keptAccel, Output: "next:" + keptAccel})
}

// command is the part of a step that makes commands of what models say, as modeld of their release does
// (generation.Commands): f32 [2, loops], curvature to the left in 1/m and acceleration in m/s².
func (l *loaded) command(d *design) (*ir.Graph, error) {
	g := ir.NewGraph("command")
	w := &world{state: map[string]num{}}
	w.params = g.AddInput(inputParams, ir.T(d.float, tableRows, d.loops))
	seen := g.AddInput(outputSeen, ir.T(d.float, len(Observations), d.loops))
	last := map[string]num{}
	for _, name := range []string{keptCurvature, keptAccel} {
		last[name] = num{g.AddInput(name, ir.T(d.float, d.loops))}
	}
	outputs := map[string]*ir.Value{}
	for _, p := range l.from {
		if outputs[p.output] == nil {
			outputs[p.output] = g.AddInput(p.output, ir.T(ir.Float32, d.loops, p.length))
		}
	}
	var failed error
	err := g.Build("command", func(x *ir.Expansion) {
		w.builder = &builder{x: x, loops: d.loops, float: d.float}
		c := &commander{world: w, loaded: l, outputs: outputs, speed: w.max(w.row(seen, observed("speed")), w.c(0))}
		curvature, accel := c.commands()
		r := l.rule
		accel = c.smooth(accel, last[keptAccel], r.LongitudinalTau)
		moves := w.less(w.c(modeld.LeastSteering), c.speed)
		curvature = w.where(moves, c.smooth(curvature, last[keptCurvature], r.LateralTau), last[keptCurvature])
		for _, kept := range []struct {
			name string
			num
		}{{keptCurvature, curvature}, {keptAccel, accel}} {
			// What is not finite is commanded, but not remembered.
			x := w.where(w.finite(kept.num), kept.num, last[kept.name])
			if err := nameOutput(w.builder, g, x.v, "next:"+kept.name); err != nil && failed == nil {
				failed = err
			}
		}
		act := w.rows(w.mul(w.c(-1), curvature), accel) // openpilot's curvature is to the right
		if err := nameOutput(w.builder, g, act, inputAct); err != nil && failed == nil {
			failed = err
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v *ir.Value) bool { return len(g.Uses()[v]) == 0 })
	return g, g.Verify()
}

// observed is the row of an observation, which must exist.
func observed(name string) int {
	return slices.IndexFunc(Observations, func(p Param) bool { return p.Name == name })
}

// commander makes commands.
type commander struct {
	*world
	*loaded
	outputs map[string]*ir.Value // [loops, length]
	speed   num                  // not below 0
}

// slice is columns of a [loops, n] table.
func (c *commander) slice(x *ir.Value, from, size int) *ir.Value {
	n := c.world.loops
	return c.add("Slice", ir.Attrs{"starts": []int{0, from}, "sizes": []int{n, size}, "steps": []int{1, 1}}, x)
}

// named is a named part: [loops, size].
func (c *commander) named(p *loadedOutput) *ir.Value {
	x := c.slice(c.outputs[p.output], p.Start, p.End-p.Start)
	if c.float != ir.Float32 {
		x = c.add("Cast", ir.Attrs{"to": c.float}, x)
	}
	return x
}

// number is a column of a table as a number of every loop.
func (c *commander) number(x *ir.Value, column int) num {
	return num{c.shape(c.slice(x, column, 1), c.world.loops)}
}

// commands are curvature to the right and acceleration, before smoothing.
func (c *commander) commands() (curvature, accel num) {
	r := c.rule
	lateral, longitudinal := c.delays()
	v := c.max(c.speed, c.c(modeld.LeastSpeed))
	if p := c.part(generation.Action); p != nil {
		x := c.named(p)
		return c.div(c.number(x, 0), c.mul(v, v)), c.number(x, 1)
	}
	plan := c.plan(c.named(c.part(generation.Plan)))
	accel = c.accelerate(plan, c.sum(longitudinal, c.c(r.Longitudinal)))
	if p := c.part(generation.Curvature); p != nil && r.Curvature {
		return c.number(c.named(p), 0), accel
	}
	return c.steer(plan, v, c.sum(lateral, c.c(r.Lateral))), accel
}

// plan is the likeliest hypothesis' means: [loops, Points·PlanColumns].
func (c *commander) plan(x *ir.Value) *ir.Value {
	const means = modeld.Points * modeld.PlanColumns
	length := x.Type.Shape[1]
	if length == 2*means {
		return c.slice(x, 0, means)
	}
	const one = 2*means + 1
	best, weight := c.slice(x, 0, means), c.number(x, one-1)
	for from := one; from+one <= length; from += one {
		w := c.number(x, from+one-1)
		better := c.less(weight, w)
		wide := c.shape(better.v, c.world.loops, 1)
		best, weight = c.add("Where", nil, wide, c.slice(x, from, means), best), c.where(better, w, weight)
	}
	return best
}

// path is a column of a plan: [loops, Points].
func (c *commander) path(plan *ir.Value, column int) *ir.Value {
	n := c.world.loops
	table := c.shape(plan, n, modeld.Points, modeld.PlanColumns)
	at := ir.Attrs{"starts": []int{0, 0, column}, "sizes": []int{n, modeld.Points, 1}, "steps": []int{1, 1, 1}}
	return c.shape(c.add("Slice", at, table), n, modeld.Points)
}

// at is what a path has at a time: a line between its points, before and after them its ends.
func (c *commander) at(path *ir.Value, t num) num {
	const last = modeld.Points - 1
	times := modeld.TIndex()
	var begin, each []float64
	for i := range last {
		begin, each = append(begin, times[i]), append(each, 1/(times[i+1]-times[i]))
	}
	row := func(x []float64) num { return num{c.x.Constant(ir.FromFloats(ir.T(c.float, last), x))} }
	share := c.clip(c.mul(c.sub(num{c.shape(t.v, c.world.loops, 1)}, row(begin)), row(each)), c.c(0), c.c(1))
	rise := c.sub(num{c.slice(path, 1, last)}, num{c.slice(path, 0, last)})
	sum := c.add("ReduceSum", ir.Attrs{"axes": []int{1}, "keepdims": false}, c.mul(share, rise).v)
	return c.sum(c.number(path, 0), num{sum})
}

// early is what a path's change up to t is, where it is not read before the rule's time: the share of it.
func (c *commander) early(t num) (read, share num) {
	if c.rule.Stable == 0 {
		return t, c.c(1)
	}
	return c.max(t, c.c(c.rule.Stable)), c.min(c.mul(t, c.c(1/c.rule.Stable)), c.c(1))
}

// accelerate is the acceleration that reaches the plan's speed at the time t.
func (c *commander) accelerate(plan *ir.Value, t num) num {
	speed := c.path(plan, modeld.PlanVelocity)
	read, share := c.early(t)
	change := c.mul(share, c.sub(c.at(speed, read), c.number(speed, 0)))
	return c.sub(c.div(c.mul(c.c(2), change), t), c.number(c.path(plan, modeld.PlanAcceleration), 0))
}

// steer is the curvature to the right that reaches the plan's heading at the time t.
func (c *commander) steer(plan *ir.Value, v, t num) num {
	read, share := c.early(t)
	heading := c.mul(share, c.at(c.path(plan, modeld.PlanOrientation+2), read))
	rate := c.number(c.path(plan, modeld.PlanOrientationRate+2), 0)
	return c.sub(c.div(c.mul(c.c(2), heading), c.mul(v, t)), c.div(rate, v))
}

// smooth is modeld's filter of the first order, a step long.
func (c *commander) smooth(x, last num, tau float64) num {
	if tau == 0 {
		return x
	}
	return c.lerp(last, x, c.c(modeld.Share(tau)))
}
