package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// drawn are scenarios with every parameter drawn from what it may sensibly be.
func drawn(rng *rand.Rand, n int) (out []Scenario) {
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	for i := range n {
		s := Default(fmt.Sprint("drawn", i))
		set := func(name string, value float64) { s.Values[paramRow(name)] = value }
		for _, p := range Params {
			if p.High < never && !strings.HasPrefix(p.Name, "ask_") {
				near := p.Default + between(-0.15, 0.15)*(p.High-p.Low)
				if step, ok := paramSteps[p.Name]; ok {
					near = math.Round(near/step) * step
				}
				set(p.Name, math.Min(math.Max(near, p.Low), p.High))
			}
		}
		set("duration", between(0.1, 4))
		set("dynamic", float64(rng.IntN(2)))
		set("curvature", between(-0.02, 0.02))
		set("curve_start", between(0, 30))
		set("curve_length", between(0, 50))
		set("drop", between(0, 0.5))
		set("wind_start", between(0, 2))
		set("wind_length", between(0.1, 2))
		set("takeover_start", between(0, 5))
		for c := range Cars {
			set(car(c, "present"), float64(rng.IntN(4)/2))
			set(car(c, "idm"), float64(rng.IntN(2)))
			set(car(c, "gap"), between(-60, 60))
			set(car(c, "lateral"), between(-4, 4))
			set(car(c, "change_start"), between(0, 3))
			for k := range knots {
				set(car(c, "time"+digit(k)), float64(k)+between(0, 0.5))
				set(car(c, "speed"+digit(k)), between(0, 35))
			}
			set(car(c, "probability"), between(0.3, 1))
		}
		out = append(out, s)
	}
	return out
}

// near compares states of a loop with its twin's, relative to scale.
func near(
	t *testing.T, names []string, want map[string]*float64, got func(name string) float64, bound float64, what string,
) (worst float64) {
	t.Helper()
	for _, name := range names {
		want := *want[name]
		e := math.Abs(got(name)-want) / math.Max(1, math.Abs(want))
		worst = max(worst, e)
		if !(e < bound) {
			t.Errorf("%s: %s is %v, the twin's %v", what, name, got(name), want)
		}
	}
	return worst
}

// TestStep_IsItsTwin: 10,000 drawn loops, each from the start for some steps, by the evaluator in float64.
func TestStep_IsItsTwin(t *testing.T) {
	fulltest.Long(t)
	stepsAreTheTwins(t, drawn(rand.New(rand.NewPCG(1, 2)), 10000))
}

func stepsAreTheTwins(t *testing.T, list []Scenario) {
	const steps, seed = 8, 0x123456789abcdef
	loops := len(list)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	d := &design{loops: loops, float: ir.Float64, controller: c, knots: knotsOf(list)}
	g, kept, err := d.graph("")
	require.NoError(t, err)
	worst := 0.0
	names := slices.DeleteFunc(d.numbers(), func(name string) bool { return strings.HasPrefix(name, heldOf("")) })
	twins := make([]*twin, loops)
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		in[v.Name] = ir.NewArray(v.Type)
	}
	for i, s := range list {
		twins[i] = newTwin(s)
		for k, x := range s.table() {
			in[inputParams].F[k*loops+i] = x
		}
		for _, name := range names {
			in[name].F[i] = *twins[i].numbers[name]
		}
		if s.Road != nil {
			for k, c := range roadColumns {
				for j, x := range *c.of(s.Road) {
					in[inputRoads].F[(i*d.knots+j)*len(roadColumns)+k] = x
				}
			}
		}
		in[inputLoop].I[i] = int64(i)<<32 | 7
	}
	in[inputKey].I[0], in[inputKey].I[1] = seed&math.MaxUint32, seed>>32
	for step := range steps {
		out, err := ir.Evaluate(t.Context(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		for _, k := range kept {
			if k.Output != "" {
				in[k.Input] = out[k.Output]
			}
		}
		for i, tw := range twins {
			tw.step(seed, uint64(i)<<32|7)
			got := func(name string) float64 { return in[name].F[i] }
			what := fmt.Sprint(step, " ", list[i].Name)
			worst = max(worst, near(t, names, tw.numbers, got, 1e-9, what))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d steps of %d loops: worst %.2g", steps, loops, worst)
}

// TestRunBatch_IsTheSameInAnyBatch, to the bit: sizes of batches, what else is in them, and the device's checks change
// nothing.
func TestRunBatch_IsTheSameInAnyBatch(t *testing.T) {
	fulltest.Long(t)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	list := drawn(rand.New(rand.NewPCG(3, 4)), 9)
	for i := range list {
		list[i].Values[paramRow("duration")] = min(1.5, list[i].Get("duration"))
	}
	var want [][]float64
	for _, size := range []int{0, 1, 7, 64} {
		r, err := (&Runner{Device: d, Batch: size}).RunBatch(t.Context(), list, c, 3, 5)
		require.NoError(t, err)
		if want == nil {
			want = r.Metrics
		}
		require.Equal(t, want, r.Metrics, "batches of %d", size)
	}
	require.NotEqual(t, want[0], want[1], "seeds differ")
	alone, err := (&Runner{Device: d}).RunBatch(t.Context(), list[:1], c, 2, 5)
	require.NoError(t, err)
	require.Equal(t, want[:2], alone.Metrics)
	other, err := (&Runner{Device: d}).RunBatch(t.Context(), list[:1], c, 2, 6)
	require.NoError(t, err)
	require.NotEqual(t, want[:2], other.Metrics)
	checked, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer checked.Close()
	for i := range list {
		list[i].Values[paramRow("duration")] = 0.3
	}
	fast, err := (&Runner{Device: d}).RunBatch(t.Context(), list, c, 1, 5)
	require.NoError(t, err)
	slow, err := (&Runner{Device: checked}).RunBatch(t.Context(), list, c, 1, 5)
	require.NoError(t, err)
	require.Equal(t, fast.Metrics, slow.Metrics)
}

// TestStep_OnTheDevice compares kernels in f32 with the twin, one step from the same 12,000 states.
func TestStep_OnTheDevice(t *testing.T) {
	kernelsAreTheTwins(t, drawn(rand.New(rand.NewPCG(5, 6)), 1000))
}

func kernelsAreTheTwins(t *testing.T, list []Scenario) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	const seed = 11
	loops := len(list)
	design := &design{loops: loops, float: ir.Float32, controller: c, knots: knotsOf(list)}
	program, err := design.compiled(t.Context(), nil)
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), program.Program, d, runtime.ModelOptions{})
	require.NoError(t, err)
	defer s.Close()
	b := &batch{design: design, session: s, size: loops, seed: seed, list: list}
	twins := make([]*twin, loops)
	for i := range list {
		b.numbers = append(b.numbers, uint64(i))
		twins[i] = newTwin(rounded(list[i]))
	}
	require.NoError(t, b.begin())
	read := func(name string) []float32 {
		raw, err := s.State(name)
		require.NoError(t, err)
		return runtime.View[float32](raw)
	}
	worst, where, flips := 0.0, "", 0
	for step := range 12 {
		commands, past, sum := read("commands"), read("seen"), read("memory")
		from := map[string][]float32{}
		for _, name := range design.numbers() {
			from[name] = read(name)
		}
		for i, tw := range twins {
			for name, x := range tw.numbers {
				if from[name] != nil {
					*x = float64(from[name][i])
				}
			}
			// The last commands and sights, from the rings of the step into those of the twin.
			steps := int(tw.state.steps)
			for n := steps*Substeps - 1; n >= max(0, steps*Substeps-commandRows); n-- {
				at := n / Substeps % commandSteps * (Substeps + 1)
				tw.commands[n%commandRows] = command{
					float64(commands[(at+n%Substeps)*loops+i]), float64(commands[(at+Substeps)*loops+i]),
				}
			}
			for j, name := range seen(false) {
				for k := range tw.past {
					*tw.past[k].number(name) = float64(past[(k*len(seen(false))+j)*loops+i])
				}
				*tw.held.number(name) = float64(from[heldOf(name)][i])
			}
			tw.sum = float64(sum[i])
		}
		require.NoError(t, b.step(t.Context(), step))
		for _, name := range states {
			got := read(name)
			for i, tw := range twins {
				if name == states[0] {
					tw.step(seed, uint64(i))
				}
				want := *tw.numbers[name]
				scale := math.Max(1, math.Abs(want))
				if name == gapOf(0) && tw.road != nil && tw.road.lead != nil { // a difference of places on the road
					scale = math.Max(scale, tw.state.station)
				}
				e := math.Abs(float64(got[i])-want) / scale
				if name == "alive" && e > 0 {
					flips++
				}
				if e > worst {
					worst, where = e, fmt.Sprintf("%s of %s in step %d", name, list[i].Name, step)
				}
			}
		}
	}
	t.Logf("worst: %.2g, %s; %d loops end a step apart", worst, where, flips)
	require.Less(t, worst, 1e-6)
}

// rounded is the scenario with values that f32 has.
func rounded(s Scenario) Scenario {
	s.Values = slices.Clone(s.Values)
	for i, x := range s.Values {
		s.Values[i] = float64(float32(x))
	}
	if s.Road != nil {
		r := *s.Road
		for _, c := range roadColumns {
			list := slices.Clone(*c.of(&r))
			for i, x := range list {
				list[i] = float64(float32(x))
			}
			*c.of(&r) = list
		}
		s.Road = &r
	}
	return s
}

// TestPhilox: the vectors that its authors publish (Random123, kat_vectors), in Go and as kernels' words.
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		require.Equal(t, c.want, philox(c.counter, c.key))
		g := ir.NewGraph("philox")
		in := map[string]*ir.Array{}
		var words [6]*ir.Value
		for i := range words {
			name := fmt.Sprint("w", i)
			words[i] = g.AddInput(name, ir.T(ir.Uint64, 1))
			in[name] = ir.NewArray(words[i].Type)
			if i < 4 {
				in[name].I[0] = int64(c.counter[i])
			} else {
				in[name].I[0] = int64(c.key[i-4])
			}
		}
		require.NoError(t, g.Build("philox", func(x *ir.Expansion) {
			b := &builder{x: x, loops: 1, float: ir.Float32}
			out := b.philox([4]*ir.Value(words[:4]), [2]*ir.Value(words[4:]))
			g.Outputs = out[:]
		}))
		require.NoError(t, g.Verify())
		out, err := ir.Evaluate(t.Context(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		for i, v := range g.Outputs {
			require.Equal(t, int64(c.want[i]), out[v.Name].I[0])
		}
	}
}

// programOf is the program of 1,024 loops for the default target, compiled once for all tests.
func programOf(t *testing.T, c *Controller, tier Tier) *runtime.Program {
	name := tier.String()
	if c != nil {
		name += " " + c.Name
	}
	made, _ := programs.LoadOrStore(name, sync.OnceValues(func() (*compile.Result, error) {
		d := &design{loops: 1024, float: ir.Float32, controller: c, tier: tier}
		return d.compiled(context.Background(), nil)
	}))
	r, err := made.(func() (*compile.Result, error))()
	require.NoError(t, err)
	return r.Program
}

var programs sync.Map // of functions, by tier and controller

// assemble gives a step's kernels to ptxas, for every target in the long tests, and wants no spills.
func assemble(t *testing.T, d *design) {
	t.Helper()
	tool, err := toolchain.FindPtxas(t.Context())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	targets := []string{target.Default().Name}
	if fulltest.Runs(t.Name()) {
		targets = target.Names()
	}
	r, err := d.compiled(t.Context(), targets)
	require.NoError(t, err)
	for _, v := range r.Program.Variants {
		out, err := tool.Assemble(t.Context(), string(v.PTX), v.Target)
		require.NoError(t, err)
		require.NotEmpty(t, out.Usage)
		for _, u := range out.Usage {
			require.Zero(t, u.Spills, "%s of %s", u.Kernel, v.Target)
		}
	}
}

func TestStep_IsTakenByPtxas(t *testing.T) {
	fulltest.Long(t)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	m, err := BuiltIn("mpc")
	require.NoError(t, err)
	for _, d := range []*design{{controller: c}, {controller: m}, {}, {controller: Asked, tier: Controls}} {
		d.loops, d.float = 1024, ir.Float32
		assemble(t, d)
	}
}

// TestStep_IsThreeLaunches: one kernel for all that a loop computes, and one for a row of each of its rings, of which tier
// controls has one.
func TestStep_IsThreeLaunches(t *testing.T) {
	fulltest.Long(t)
	launches := func(p *runtime.Program) int { return len(p.Variants[0].Entries[0].Launches) }
	for i := range Controllers {
		require.Equal(t, 3, launches(programOf(t, &Controllers[i], Planner)), Controllers[i].Name)
	}
	require.Equal(t, 2, launches(programOf(t, Asked, Controls)), Controls)
	for _, e := range programOf(t, nil, Planner).Variants[0].Entries {
		want := map[string]int{entryObserve: 3, entryAdvance: 2}[e.Name] // observations are a table of their own
		require.Equal(t, want, len(e.Launches), e.Name)
	}
}

// TestSteps_AreOneEntry: ten steps that the device runs without the host leave what ten runs of one step leave, to the bit.
func TestSteps_AreOneEntry(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer d.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	const loops = 3
	design := &design{loops: loops, float: ir.Float32, controller: c}
	program, err := design.compiled(t.Context(), nil)
	require.NoError(t, err)
	list := drawn(rand.New(rand.NewPCG(9, 10)), loops)
	var sessions [2]*batch
	for i := range sessions {
		s, err := runtime.Open(t.Context(), program.Program, d, runtime.ModelOptions{})
		require.NoError(t, err)
		defer s.Close()
		sessions[i] = &batch{design: design, session: s, size: loops, seed: 3, list: list, numbers: []uint64{4, 5, 6}}
		require.NoError(t, sessions[i].begin())
	}
	for step := range stepsAtOnce {
		require.NoError(t, sessions[0].step(t.Context(), step))
	}
	require.NoError(t, sessions[1].session.RunEntry(t.Context(), entrySteps))
	for _, s := range program.Program.States {
		one, err := sessions[0].session.State(s.Input)
		require.NoError(t, err)
		ten, err := sessions[1].session.State(s.Input)
		require.NoError(t, err)
		require.Equal(t, one, ten, s.Input)
	}
	require.Equal(t, sessions[0].session.Output(outputResult), sessions[1].session.Output(outputResult))
}
