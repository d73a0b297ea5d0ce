package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Environment is a batch of loops that the caller drives, a step at a time: it observes, commands, and starts loops again
// one by one. A loop that is driven so has the same bits as in RunBatch. It is for one goroutine.
type Environment struct {
	b       *batch
	started bool
	alive   []bool
}

// NewEnvironment compiles the step of a loop for each scenario and opens it on a device, which must stay open. Reset
// decides what each loop runs: any scenario whose road has no more knots than the longest of these.
func NewEnvironment(ctx context.Context, d hal.Device, scenarios []Scenario) (*Environment, error) {
	const most = 1 << 16
	loops := len(scenarios)
	if loops < 1 || loops > most {
		return nil, fmt.Errorf("an environment of %d loops; want 1 to %d", loops, most)
	}
	callback := &Callback{Name: "environment"}
	plan := &design{loops: loops, float: ir.Float32, knots: knotsOf(scenarios)}
	if err := plan.checkRoads(scenarios); err != nil {
		return nil, err
	}
	program, err := plan.compiled(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, program.Program, d, runtime.ModelOptions{})
	if err != nil {
		return nil, err
	}
	b := &batch{design: plan, session: s, size: loops, callback: callback, list: make([]Scenario, loops), numbers: make([]uint64, loops)}
	return &Environment{b: b, alive: make([]bool, loops)}, nil
}

// Close closes the program.
func (e *Environment) Close() error { return e.b.session.Close() }

// Loops is how many there are.
func (e *Environment) Loops() int { return e.b.size }

// Reset starts loops: loop i runs scenarios[i], with noise of its stream and the seed. A scenario without values leaves
// its loop as it is; all loops must be started at first, and they must be started all at once with another seed.
func (e *Environment) Reset(scenarios []Scenario, seed uint64) error {
	b := e.b
	if len(scenarios) != b.size {
		return fmt.Errorf("%d scenarios for %d loops", len(scenarios), b.size)
	}
	all := true
	for _, s := range scenarios {
		if s.Values == nil {
			all = false
		} else if err := s.check(); err != nil {
			return err
		}
	}
	if need := knotsOf(scenarios); need > b.knots {
		return fmt.Errorf("a scenario has a road of %d knots or samples, and the environment was made for %d: make it with that "+
			"scenario", need, b.knots)
	}
	switch {
	case !all && !e.started:
		return errors.New("not all loops have a scenario: start all of them at first")
	case !all && seed != b.seed:
		return fmt.Errorf("the seed is %d, and loops that go on have seed %d: start all loops", seed, b.seed)
	}
	kept := map[string][]byte{}
	if !all {
		for _, name := range b.kept() {
			x, err := b.session.State(name)
			if err != nil {
				return err
			}
			kept[name] = append([]byte{}, x...)
		}
	}
	for i, s := range scenarios {
		if s.Values != nil {
			b.list[i], b.numbers[i], e.alive[i] = s, s.stream(i), true
		}
	}
	b.seed = seed
	if err := b.begin(); err != nil {
		return err
	}
	for name, was := range kept {
		x, err := b.session.State(name)
		if err != nil {
			return err
		}
		x = append([]byte{}, x...)
		old, now := runtime.View[float32](was), runtime.View[float32](x)
		for k := range now { // loops are the last axis
			if scenarios[k%b.size].Values == nil {
				now[k] = old[k]
			}
		}
		if err := b.session.SetState(name, x); err != nil {
			return err
		}
	}
	e.started = true
	return nil
}

// kept are the names of all states.
func (b *batch) kept() []string {
	names := append([]string{}, b.design.numbers()...)
	for name := range b.design.tableShapes() {
		names = append(names, name)
	}
	return names
}

// Observe is what loops see now, [len(Observations)][loops], until the next call. It must be called once before
// each Step, since it draws and drops frames.
func (e *Environment) Observe(ctx context.Context) ([][]float32, error) {
	if !e.started {
		return nil, errors.New("loops have not been started: call Reset")
	}
	if err := e.b.session.RunEntry(ctx, entryObserve); err != nil {
		return nil, err
	}
	return rowsOf(runtime.View[float32](e.b.session.Output(outputSeen)), e.b.size), nil
}

// Step drives all loops for 50 ms by commands, [2][loops]: curvature in 1/m and acceleration in m/s². A loop that has
// ended stays as it is. It returns which loops go on, and the metrics of each, as they are so far.
func (e *Environment) Step(ctx context.Context, commands [][]float32) (alive []bool, metrics [][]float64, err error) {
	b := e.b
	if !e.started {
		return nil, nil, errors.New("loops have not been started: call Reset")
	}
	if len(commands) != 2 {
		return nil, nil, fmt.Errorf("%d rows of commands, want curvature and acceleration", len(commands))
	}
	act := make([]float32, 2*b.size)
	for k, what := range []string{"curvature", "acceleration"} {
		if len(commands[k]) != b.size {
			return nil, nil, fmt.Errorf("%d values of %s for %d loops", len(commands[k]), what, b.size)
		}
		for i, x := range commands[k] {
			if f := float64(x); e.alive[i] && (math.IsNaN(f) || math.IsInf(f, 0)) {
				step, _ := b.state("steps")
				return nil, nil, fmt.Errorf("step %.0f: %s of loop %d, scenario %q, is %v", step[i], what, i, b.list[i].Name, x)
			}
			act[k*b.size+i] = x
		}
	}
	if err := b.session.Set(inputAct, runtime.Bytes(act)); err != nil {
		return nil, nil, err
	}
	if err := b.session.RunEntry(ctx, entryAdvance); err != nil {
		return nil, nil, err
	}
	goes, err := b.state("alive")
	if err != nil {
		return nil, nil, err
	}
	b.metrics = runtime.View[float32](b.session.Output(outputResult))
	for i := range b.size {
		e.alive[i] = goes[i] != 0
		metrics = append(metrics, b.row(i))
	}
	return e.alive, metrics, nil
}
