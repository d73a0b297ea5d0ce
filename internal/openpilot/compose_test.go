package openpilot

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// mirror is a model whose output is its inputs, one after the other, each a slice called as the input. Of a model that sees, the slice
// hidden_state has some pixels; that of curvatures is made of what is last in the inputs.
func mirror(t *testing.T, file string, extra []string, inputs map[string][]int) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("mirror", 17)
	var parts []string
	var list []onnx.Slice
	at := 0
	add := func(name, value string, size int) {
		parts, list = append(parts, value), append(list, onnx.Slice{Name: name, Start: at, End: at + size})
		at += size
	}
	flat := b.Initializer("flat", ir.FromInts(ir.T(ir.Int64, 2), []int64{1, -1}))
	for _, name := range sortedKeys(inputs) {
		var dims []any
		for _, d := range inputs[name] {
			dims = append(dims, d)
		}
		d := ir.Float32
		if slices.Contains(generation.PictureInputs(), name) {
			d = ir.Uint8
		}
		x := b.Op("Reshape", []string{b.Input(name, d, dims...), flat})
		add(name, b.Op("Cast", []string{x}, onnx.A("to", ir.Float32)), ir.T(d, inputs[name]...).Numel())
	}
	some := func(from string, at ...int64) string {
		return b.Op("Gather", []string{from, b.Initializer(b.Name("at"), ir.FromInts(ir.T(ir.Int64, len(at)), at))}, onnx.A("axis", 1))
	}
	for _, name := range extra {
		switch name {
		case generation.HiddenState:
			add(name, some(parts[0], 0, 7, 13), 3)
		case generation.Curvature:
			add(name, some(parts[len(parts)-1], 0, 1), 2)
		}
	}
	b.Node("Concat", parts, []string{"outputs"}, onnx.A("axis", 1))
	b.Output("outputs", ir.Float32, 1, at)
	b.Metadata("output_slices", onnx.EncodeOutputSlices(list))
	m, err := b.Model()
	require.NoError(t, err)
	m.Path = file
	return m
}

func sortedKeys(m map[string][]int) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// contract is a generation of openpilot's models, and how its modeld keeps histories.
type contract struct {
	name   string
	models func(t *testing.T) []*onnx.Model
	every  int  // steps between two rows of a history
	past   bool // features of now are not among them
	rule   string
	missed string
}

func contracts() []contract {
	img := []int{1, 12, 2, 4}
	pair := func(desire string, more map[string][]int, extra ...string) func(*testing.T) []*onnx.Model {
		return func(t *testing.T) []*onnx.Model {
			policy := map[string][]int{desire: {1, 25, 8}, "traffic_convention": {1, 2}, generation.Features: {1, 25, 3}}
			for name, shape := range more {
				policy[name] = shape
			}
			return []*onnx.Model{mirror(t, "policy.onnx", extra, policy), mirror(t, "vision.onnx", []string{generation.HiddenState}, map[string][]int{"img": img, "big_img": img})}
		}
	}
	single := func(names []string, desire, rows, curv int) func(*testing.T) []*onnx.Model {
		return func(t *testing.T) []*onnx.Model {
			return []*onnx.Model{mirror(t, "supercombo.onnx", []string{generation.HiddenState, generation.Curvature}, map[string][]int{names[0]: img, names[1]: img,
				"desire": {1, desire, 8}, "traffic_convention": {1, 2}, generation.Features: {1, rows, 3}, generation.PrevCurvatures: {1, curv, 1}})}
		}
	}
	old := []string{"input_imgs", "big_input_imgs"}
	return []contract{
		{"0.10.2, vision and policy", pair("desire_pulse", nil), 4, false, "plan", generation.MissedSkips},
		{"0.10.0, vision and policy", pair("desire", map[string][]int{generation.PrevCurvatures: {1, 25, 1}}, generation.Curvature), 4, false, "curvature", generation.MissedMovesDesires},
		{"0.9.7 at 5 Hz", single(old, 25, 24, 25), 4, true, "old", generation.MissedMovesDesires},
		{"0.9.7 at 20 Hz", single(old, 100, 99, 100), 1, true, "old", generation.MissedMovesDesires},
	}
}

// modeld is openpilot's own way of keeping histories: rows of every step, moved up by one.
type modeld struct {
	desires, features, curvatures [][]float64
	pictures                      [][]float64 // newest last
}

func newModeld() *modeld {
	zeros := func(rows, columns int) (z [][]float64) {
		for range rows {
			z = append(z, make([]float64, columns))
		}
		return z
	}
	return &modeld{zeros(100, 8), zeros(100, 3), zeros(100, 1), zeros(8, 2*6*2*4)}
}

func moved(rows [][]float64, row []float64) [][]float64 { return append(slices.Clone(rows[1:]), row) }

// every takes each so many rows, the newest included.
func every(rows [][]float64, n int) (out []float64) {
	for i := (len(rows) - 1) % n; i < len(rows); i += n {
		out = append(out, rows[i]...)
	}
	return out
}

// TestHistoriesAreThoseOfModeld: 230 steps of models that show what they were given, some frames missed, against modeld's own arrays.
func TestHistoriesAreThoseOfModeld(t *testing.T) {
	for _, c := range contracts() {
		t.Run(c.name, func(t *testing.T) {
			s, err := Compose(c.models(t), Options{Largest: runtime.FrameLayout{Width: 8, Height: 6, Stride: 8, UV: 48}})
			require.NoError(t, err)
			require.Equal(t, c.rule, s.Loop.Rule)
			require.Equal(t, c.missed, s.Loop.Missed)
			runAsModeld(t, c, s)
		})
		t.Run(c.name+", planes", func(t *testing.T) {
			s, err := Compose(c.models(t), Options{Planes: true})
			require.NoError(t, err)
			require.Nil(t, s.Skip)
			runAsModeld(t, c, s)
		})
	}
}

func runAsModeld(t *testing.T, c contract, s *Step) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	m, past := newModeld(), map[string][]*ir.Array{} // new values of states, by state, newest last
	for step := range 230 {
		g, skips := s.Run, s.Skip != nil && step%17 == 9
		if skips {
			g = s.Skip
		}
		in := draw(rng, g, past)
		out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		for name, a := range out {
			if state, ok := strings.CutPrefix(name, "next_"); ok {
				past[state] = append(past[state], a)
			}
		}
		seen := out["next_"+OldPlanes]
		if planes := in[Planes]; planes != nil { // who gives them keeps them
			seen, past[OldPlanes] = planes, append(past[OldPlanes], planes)
		}
		m.pictures = moved(m.pictures, seen.Floats())
		desire := make([]float64, 8)
		if a := in[Desire]; a != nil {
			desire = a.F
		}
		if !skips || c.missed == generation.MissedMovesDesires {
			m.desires = moved(m.desires, desire)
		}
		if skips {
			continue
		}
		got := named(s, out)
		m.check(t, step, c, got)
	}
}

// draw fills inputs: states with what they hold, others with random numbers.
func draw(rng *rand.Rand, g *ir.Graph, past map[string][]*ir.Array) map[string]*ir.Array {
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		a := ir.NewArray(v.Type)
		in[v.Name] = a
		if strings.HasPrefix(v.Name, "state_") {
			delay := max(1, v.Delay)
			if have := past[v.Name]; len(have) >= delay {
				in[v.Name] = have[len(have)-delay]
			}
			continue
		}
		for i := range a.I {
			a.I[i] = rng.Int64N(256)
		}
		for i := range a.F {
			a.F[i] = float64(rng.IntN(64))
		}
		switch v.Name {
		case runtime.TransformsInput:
			copy(a.F, []float64{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1})
		case runtime.CameraInput:
			copy(a.I, []int64{8, 6, 8, 48})
		}
	}
	return in
}

// named are the slices of all outputs.
func named(s *Step, out map[string]*ir.Array) map[string][]float64 {
	got := map[string][]float64{}
	for output, list := range s.Slices {
		for _, sl := range list {
			got[sl.Name] = out[output].F[sl.Start:sl.End]
		}
	}
	return got
}

// check compares what models were given with modeld's arrays, and keeps what they computed.
func (m *modeld) check(t *testing.T, step int, c contract, got map[string][]float64) {
	t.Helper()
	then := m.pictures[len(m.pictures)-1-c.every]
	now := m.pictures[len(m.pictures)-1]
	half := len(now) / 2
	for camera, names := range [][]string{generation.RoadInputs(), generation.WideInputs()} {
		for _, name := range names {
			if x, ok := got[name]; ok {
				require.Equal(t, slices.Concat(then[camera*half:(camera+1)*half], now[camera*half:(camera+1)*half]), x, "step %d: %s", step, name)
			}
		}
	}
	want := every(m.desires, 1)
	if c.every > 1 { // the greatest of each group of four
		want = nil
		for i := 0; i < 100; i += 4 {
			row := slices.Clone(m.desires[i])
			for _, other := range m.desires[i+1 : i+4] {
				for k := range row {
					row[k] = max(row[k], other[k])
				}
			}
			want = append(want, row...)
		}
	}
	for _, name := range generation.DesireInputs() {
		if x, ok := got[name]; ok {
			require.Equal(t, want, x, "step %d: %s", step, name)
		}
	}
	if c.past && c.every > 1 { // the last row is of four steps ago
		require.Equal(t, every(m.features[:97], 4)[3:], got[generation.Features], "step %d", step)
	} else if c.past {
		require.Equal(t, every(m.features[1:], 1), got[generation.Features], "step %d", step)
	}
	m.features = moved(m.features, got[generation.HiddenState])
	if !c.past {
		require.Equal(t, every(m.features[3:], 4), got[generation.Features], "step %d", step)
	}
	if x, ok := got[generation.PrevCurvatures]; ok {
		from := 0
		if c.every > 1 {
			from = 3
		}
		require.Equal(t, every(m.curvatures[from:], c.every), x, "step %d", step)
		m.curvatures = moved(m.curvatures, got[generation.Curvature][:1])
	}
}

// TestOtherModelsAreRefused: the error says which inputs there are, and which are missing.
func TestOtherModelsAreRefused(t *testing.T) {
	img := []int{1, 12, 2, 4}
	vision := mirror(t, "vision.onnx", []string{generation.HiddenState}, map[string][]int{"img": img, "big_img": img})
	policy := func(shape ...int) *onnx.Model {
		return mirror(t, "policy.onnx", nil, map[string][]int{generation.Features: shape})
	}
	for name, c := range map[string]struct {
		models []*onnx.Model
		want   string
	}{
		"none":              {nil, "0 models: give one, or a vision model and a policy"},
		"two policies":      {[]*onnx.Model{policy(1, 25, 3), policy(1, 25, 3)}, "policy.onnx and policy.onnx are no vision model and policy"},
		"a policy alone":    {[]*onnx.Model{policy(1, 25, 3)}, "policy.onnx: it is no driving model: want pictures"},
		"a vision alone":    {[]*onnx.Model{vision}, "vision.onnx: it is no driving model"},
		"one camera":        {[]*onnx.Model{mirror(t, "v.onnx", []string{generation.HiddenState}, map[string][]int{"img": img}), policy(1, 25, 3)}, "v.onnx: it has 0 inputs for one of two cameras: want input_imgs and big_input_imgs, or img and big_img; its inputs are img"},
		"other features":    {[]*onnx.Model{vision, policy(1, 25, 4)}, `policy.onnx: input "features_buffer" is f32[1,25,4], want [1,steps,3] as vision.onnx's hidden_state`},
		"no features":       {[]*onnx.Model{mirror(t, "v.onnx", nil, map[string][]int{"img": img, "big_img": img}), policy(1, 25, 3)}, `v.onnx: it has no slice "hidden_state" among its output_slices`},
		"planes":            {[]*onnx.Model{mirror(t, "v.onnx", []string{generation.HiddenState}, map[string][]int{"img": {1, 3, 8, 8}, "big_img": img}), policy(1, 25, 3)}, `v.onnx: input "img" is u8[1,3,8,8], want [1,12,height/2,width/2]`},
		"desires":           {[]*onnx.Model{vision, mirror(t, "policy.onnx", nil, map[string][]int{generation.Features: {1, 25, 3}, "desire": {1, 25, 7}})}, `policy.onnx: input "desire" is f32[1,25,7], want 8 desires a row`},
		"monitoring's face": {[]*onnx.Model{mirror(t, "dm.onnx", nil, map[string][]int{generation.DriverPicture: {1, 3, 4}})}, `dm.onnx: input "input_img" is f32[1,3,4], want u8[1,width·height] or floats`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compose(c.models, Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Compose([]*onnx.Model{vision, policy(1, 25, 3)}, Options{Largest: runtime.FrameLayout{Width: 7, Height: 6, Stride: 8, UV: 48}})
	require.ErrorContains(t, err, "the largest picture: 7 × 6 pixels: want even sizes")
	_, err = Compose([]*onnx.Model{vision, policy(1, 25, 3)}, Options{Sampling: "cubic"})
	require.ErrorContains(t, err, `sampling "cubic": want nearest or linear`)
}
