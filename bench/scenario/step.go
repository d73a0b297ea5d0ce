package scenario

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Names of inputs and outputs of a step.
const (
	inputParams  = "params"      // [tableRows, loops]
	inputKey     = "key"         // [2] words: the seed
	inputLoop    = "loop"        // [loops]: the number of each loop, which with the seed decides its noise
	inputRoads   = "roads"       // [loops, knots, len(roadColumns)], of a batch that has roads of knots
	inputAct     = "act"         // [2, loops]: curvature and acceleration, of the second half
	outputSeen   = "observation" // [len(Observations), loops], of entry observe
	outputResult = "metrics"     // [len(Metrics), loops]
	entryObserve = "observe"     // the first half of a step
	entryAdvance = "run"         // the second, or all of a step where no callback is asked
	entrySteps   = "steps"       // stepsAtOnce of those
)

// stepsAtOnce is how many steps a session runs at a time where it can: half a second.
const stepsAtOnce = 10

func le(x uint64) []byte { return binary.LittleEndian.AppendUint64(nil, x) }

// design says what a step of so many loops is made of.
type design struct {
	loops      int
	float      ir.DType    // of all numbers: f32, and f64 where tests compare with plain Go
	controller *Controller // nil: commands come from outside, between the halves of a step
	tier       Tier
	knots      int      // of the longest road, or samples of the longest record; 0: no loop has a road of knots
	models     *loaded  // nil: none see
	view       *view    // of what is drawn; nil: nothing is
	policy     *network // nil: no policy of a file drives

	warn        func(string)
	minCosine   *float64
	calibration string // directory of what the network sees, where its precision is calibrated
	recording   bool   // that, as outputs
}

// memory is how many numbers the controller keeps.
func (d *design) memory() int {
	if d.controller == nil {
		return 0
	}
	return d.controller.Memory
}

// numbers are the states of which a loop has one each.
func (d *design) numbers() []string {
	if d.tier == Controls {
		return slices.Concat(controlStates, remainders(controlStates))
	}
	list := slices.Concat(states, sums, held(d.view != nil))
	if d.view != nil && d.view.film != nil {
		list = append(list, leftCorridor)
	}
	if d.knots > 0 {
		list = append(list, speedErrors)
	}
	return append(list, remainders(list)...)
}

// tableShapes are the tables of a loop, with their rows.
func (d *design) tableShapes() map[string][]int {
	shapes := map[string][]int{"commands": {commandSteps, Substeps + 1}}
	if d.tier != Controls {
		shapes["seen"] = []int{seenSteps, len(seen(d.view != nil))}
	}
	if memory := d.memory(); memory > 0 {
		shapes["memory"] = []int{memory}
	}
	return shapes
}

// graph is the step of so many loops: what is seen, what the controller makes of it, what follows. Without a controller
// it is one of two halves: observe or advance.
func (d *design) graph(half string) (*ir.Graph, []codegen.StateBinding, error) {
	s := &stepGraph{design: d, half: half, g: ir.NewGraph(cmp.Or(half, "run")), inputs: map[string]*ir.Value{}}
	s.world = &world{state: map[string]num{}, tables: map[string]*ir.Value{}, view: d.view}
	s.declare()
	before, old := maps.Clone(s.state), maps.Clone(s.tables)
	err := s.g.Build("step", func(x *ir.Expansion) {
		s.builder = &builder{x: x, loops: d.loops, float: d.float}
		s.time = s.clock(0)
		s.command(s.see())
		s.drive(before)
		s.keepAll(before, old)
	})
	if err == nil {
		err = s.failed
	}
	if err != nil {
		return nil, nil, err
	}
	s.g.RemoveDead()
	return s.g, s.kept, s.g.Verify()
}

// stepGraph builds a step, or one of its halves.
type stepGraph struct {
	*design
	*world
	half   string // "": the whole step
	g      *ir.Graph
	kept   []codegen.StateBinding
	inputs map[string]*ir.Value
	names  []string // of tables

	curvature, accel num // commanded
	failed           error
}

// declare adds the inputs.
func (s *stepGraph) declare() {
	d, g := s.design, s.g
	s.params = g.AddInput(inputParams, ir.T(d.float, tableRows, d.loops))
	if d.knots > 0 {
		s.world.roads = g.AddInput(inputRoads, ir.T(d.float, d.loops, d.knots, len(roadColumns)))
	}
	keep := func(name string, t ir.Type) *ir.Value {
		s.kept = append(s.kept, codegen.StateBinding{Input: name})
		return g.AddInput(name, t)
	}
	for _, name := range d.numbers() {
		s.state[name] = num{keep(name, ir.T(d.float, d.loops))}
	}
	shapes := d.tableShapes()
	s.names = slices.Sorted(maps.Keys(shapes))
	for _, name := range s.names {
		s.tables[name] = keep(name, ir.T(d.float, append(slices.Clone(shapes[name]), d.loops)...))
	}
	if s.half == entryObserve && d.view != nil && d.view.film != nil {
		s.inputs[stateFilm] = keep(stateFilm, ir.T(ir.Uint8, len(d.view.film.data)))
	}
	switch {
	case s.half != entryAdvance:
		s.inputs[inputKey] = g.AddInput(inputKey, ir.T(ir.Uint64, 2))
		s.inputs[inputLoop] = g.AddInput(inputLoop, ir.T(ir.Uint64, d.loops))
	case d.policy != nil:
		s.inputs[policyAction] = g.AddInput(policyAction, ir.T(d.float, d.loops, 2))
	default:
		s.inputs[inputAct] = g.AddInput(inputAct, ir.T(d.float, 2, d.loops))
	}
}

// out makes a value an output, of a step that is recorded a second one.
func (s *stepGraph) out(v *ir.Value, as string) {
	names := []string{as}
	if s.half == entryObserve && s.recording && s.sees(as) {
		names = append(names, recordedPrefix+as)
	}
	for _, name := range names {
		if err := nameOutput(s.builder, s.g, v, name); err != nil && s.failed == nil {
			s.failed = err
		}
	}
}

// see is what controllers are told.
func (s *stepGraph) see() map[string]num {
	switch {
	case s.half == entryAdvance:
		return nil
	case s.tier == Controls:
		return s.asked()
	}
	s.draw(s.inputs)
	return s.observe()
}

// command asks the controller; half a step says what it sees, or is told what to do.
func (s *stepGraph) command(see map[string]num) {
	switch {
	case s.half == entryObserve:
		s.show(see)
	case s.half == entryAdvance && s.policy != nil:
		act := s.transposed(s.inputs[policyAction])
		s.curvature, s.accel = s.row(act, 0), s.row(act, 1)
	case s.half == entryAdvance:
		s.curvature, s.accel = s.row(s.inputs[inputAct], 0), s.row(s.inputs[inputAct], 1)
	default:
		var mem []num
		for i := range s.memory() {
			mem = append(mem, s.row(s.tables["memory"], i))
		}
		s.curvature, s.accel, mem = s.controller.build(s.builder, see, mem)
		if s.memory() > 0 {
			s.tables["memory"] = s.rows(mem...)
		}
	}
}

// show adds what is seen as outputs: numbers, and pictures for models.
func (s *stepGraph) show(see map[string]num) {
	var list []num
	for _, o := range Observations {
		list = append(list, see[o.Name])
	}
	if s.policy != nil {
		s.out(s.transposed(s.rows(list...)), networkSeen)
		return
	}
	s.out(s.rows(list...), outputSeen)
	switch view := s.design.view; {
	case view == nil:
	case view.film != nil:
		s.out(s.reprojected(view, s.inputs[stateFilm], see), openpilot.Planes)
	default:
		s.out(s.picture(view, see), openpilot.Planes)
	}
	if s.models != nil {
		s.models.tell(s.world, see, s.out)
	}
}

// drive moves the loops that still run on.
func (s *stepGraph) drive(before map[string]num) {
	results := s.results
	switch {
	case s.half == entryObserve:
	case s.tier == Controls:
		s.issue(s.curvature, s.accel)
		s.respond()
		s.track(before)
		results = s.tracked
	default:
		s.issue(s.takeover(s.curvature), s.accel)
		s.move()
		s.measure(before)
	}
	alive := s.less(s.c(0.5), before["alive"])
	for _, name := range s.numbers() {
		if s.state[name].v != before[name].v {
			s.state[name] = s.where(alive, s.state[name], before[name])
		}
	}
	if s.half != entryObserve {
		s.out(s.rows(results()...), outputResult)
	}
}

// keepAll makes what has changed the new value of the input that it was.
func (s *stepGraph) keepAll(before map[string]num, old map[string]*ir.Value) {
	next := func(input string, v, was *ir.Value) {
		if v != was {
			i := slices.IndexFunc(s.kept, func(k codegen.StateBinding) bool { return k.Input == input })
			s.kept[i].Output = "next:" + input
			s.out(v, s.kept[i].Output)
		}
	}
	for _, name := range s.numbers() {
		next(name, s.state[name].v, before[name].v)
	}
	for _, name := range s.names {
		next(name, s.tables[name], old[name])
	}
}

// draw makes the random words of a step: of each loop's own number, so that no other loop matters.
func (w *world) draw(in map[string]*ir.Value) {
	half := func(x *ir.Value, shift uint64) *ir.Value {
		return w.add("BitAnd", nil, w.add("ShiftRight", nil, x, w.word(shift)), w.word(math.MaxUint32))
	}
	all := func(x *ir.Value) *ir.Value { return w.add("Expand", ir.Attrs{"shape": []int{w.loops}}, x) }
	key := func(i int) *ir.Value {
		return all(w.add("Slice", ir.Attrs{"starts": []int{i}, "sizes": []int{1}, "steps": []int{1}}, in[inputKey]))
	}
	count := w.add("Cast", ir.Attrs{"to": ir.Uint64}, w.state["steps"].v)
	for stream := range w.random {
		c := [4]*ir.Value{count, w.word(uint64(stream)), half(in[inputLoop], 0), half(in[inputLoop], 32)}
		w.random[stream] = w.philox(c, [2]*ir.Value{key(0), key(1)})
	}
}

// compiled is the program of a batch.
func (d *design) compiled(ctx context.Context, targets []string) (*compile.Result, error) {
	if len(targets) == 0 {
		targets = []string{target.Default().Name}
	}
	opt := compile.Options{Precision: precision.FP32, Targets: targets, Warn: d.warn}
	if d.models != nil || d.policy != nil {
		e, err := d.whole(&opt)
		if err != nil {
			return nil, err
		}
		r, err := compile.Entries(ctx, "scenario", []compile.Entry{e}, opt)
		if err == nil && d.atOnce() {
			err = again(r.Program)
		}
		return r, err
	}
	halves := []string{""}
	if d.controller == nil {
		halves = []string{entryObserve, entryAdvance}
	}
	var entries []compile.Entry
	for _, half := range halves {
		g, kept, err := d.graph(half)
		if err != nil {
			return nil, fmt.Errorf("step of %d loops: %w", d.loops, err)
		}
		entries = append(entries, compile.Entry{Name: g.Name, States: kept, Parts: []compile.Part{{Graph: g, Precision: precision.FP32}}})
	}
	r, err := compile.Entries(ctx, "scenario", entries, opt)
	if err == nil && d.atOnce() {
		err = again(r.Program)
	}
	return r, err
}

// atOnce reports whether a session may run several steps without the host: nothing in Go is asked between them, and they
// are not so long that none would notice what it costs to start one.
func (d *design) atOnce() bool { return d.controller != nil || d.policy != nil }

// again adds the entry that runs several steps.
func again(p *runtime.Program) error {
	for i := range p.Variants {
		if err := p.Variants[i].AddAgain(p, entrySteps, entryAdvance, stepsAtOnce); err != nil {
			return err
		}
	}
	return nil
}

// whole is the step with networks between its halves; opt gets their precision.
func (d *design) whole(opt *compile.Options) (compile.Entry, error) {
	if d.models != nil {
		opt.Precision = d.models.precision
		return d.modelled()
	}
	opt.Precision = d.policy.precision
	return d.around([]compile.Part{d.part()}, d.policy.kept())
}

// around is the step with parts between its halves. They keep own, and more, which may be what a half keeps too.
func (d *design) around(parts []compile.Part, own []codegen.StateBinding, more ...codegen.StateBinding) (compile.Entry, error) {
	e := compile.Entry{Name: "run"}
	watch, kept, err := d.graph(entryObserve)
	if err != nil {
		return e, fmt.Errorf("step of %d loops: what is seen: %w", d.loops, err)
	}
	advance, next, err := d.graph(entryAdvance)
	if err != nil {
		return e, fmt.Errorf("step of %d loops: what follows: %w", d.loops, err)
	}
	e.States = append(slices.Clone(own), kept...)
	for _, k := range append(next, more...) {
		i := slices.IndexFunc(e.States, func(o codegen.StateBinding) bool { return o.Input == k.Input })
		switch {
		case i < 0:
			e.States = append(e.States, k)
		case k.Output != "":
			e.States[i] = k
		}
	}
	half := func(g *ir.Graph) compile.Part { return compile.Part{Graph: g, Precision: precision.FP32} }
	e.Parts = slices.Concat([]compile.Part{half(watch)}, parts, []compile.Part{half(advance)})
	return e, nil
}

// start gives a session the states of loops at their beginning.
func (d *design) start(s *runtime.Session, list []Scenario) error {
	loops := d.loops
	set := func(state string, of func(Scenario) float64) error {
		x := make([]float32, loops)
		for i := range list {
			x[i] = float32(of(list[i]))
		}
		return s.SetState(state, runtime.Bytes(x))
	}
	initial := map[string]func(Scenario) float64{
		"alive":      func(Scenario) float64 { return 1 },
		"least_ttc":  func(Scenario) float64 { return 100 },
		"offset":     func(s Scenario) float64 { return s.Get("offset") },
		"heading":    func(s Scenario) float64 { return s.Get("heading") },
		"speed":      func(s Scenario) float64 { return s.Get("speed") },
		"car_speed0": func(s Scenario) float64 { return s.car0().speed },
		"car_speed1": func(s Scenario) float64 { return s.Get("car1_speed0") },
		"gap0":       func(s Scenario) float64 { return s.car0().gap },
		"gap1":       func(s Scenario) float64 { return s.Get("car1_gap") },
	}
	initial["least_headway"] = initial["least_ttc"]
	for _, name := range d.numbers() {
		of, ok := initial[name]
		if !ok {
			of = func(Scenario) float64 { return 0 }
		}
		if err := set(name, of); err != nil {
			return err
		}
	}
	for name, size := range d.stateSizes() {
		if err := s.SetState(name, make([]byte, size)); err != nil {
			return err
		}
	}
	return nil
}
