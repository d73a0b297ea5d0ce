package calibrate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

func floatsOf(shape []int, xs ...float64) *npy.Array {
	a := &npy.Array{DType: "f32", Shape: shape}
	for _, x := range xs {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(float32(x)))
	}
	return a
}

func TestCalibrationFilesAreRefusedWithAReason(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("a", ir.T(ir.Float32, 2))
	g.AddInput("b", ir.T(ir.Uint8, 2))
	n, err := g.Add("Exp", "e", nil, g.Inputs[0])
	require.NoError(t, err)
	g.Outputs = n.Outputs
	g.Outputs[0].Name = "y"
	a, b := floatsOf([]int{2}, 1, 2), &npy.Array{DType: "u8", Shape: []int{2}, Data: []byte{1, 2}}
	for name, c := range map[string]struct {
		arrays map[string]*npy.Array
		want   string
	}{
		"missing":          {map[string]*npy.Array{"a": a}, "no array for input b u8[2]; the file contains a"},
		"extra":            {map[string]*npy.Array{"a": a, "b": b, "c": a}, "array c is neither an input of the model (a, b) nor an output"},
		"wrong shape":      {map[string]*npy.Array{"a": floatsOf([]int{1, 2}, 1, 2), "b": b}, "array a has shape [1 2], but the input is f32[2]"},
		"wrong type":       {map[string]*npy.Array{"a": a, "b": a}, "array b: elements of type f32, want u8"},
		"not a number":     {map[string]*npy.Array{"a": floatsOf([]int{2}, 1, math.NaN()), "b": b}, "array a holds NaN"},
		"infinite":         {map[string]*npy.Array{"a": floatsOf([]int{2}, 1, math.Inf(-1)), "b": b}, "array a holds -Inf"},
		"recorded outputs": {map[string]*npy.Array{"a": a, "b": b, "y": a}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.npz")
			require.NoError(t, npy.WriteZip(path, c.arrays))
			in, files, err := Load([]string{filepath.Dir(path)}, g)
			if c.want == "" {
				require.NoError(t, err)
				require.Len(t, in, 1)
				require.Equal(t, []string{path}, files)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, path)
		})
	}
	_, _, err = Load([]string{t.TempDir()}, g)
	require.ErrorContains(t, err, "no .npz files")
	_, _, err = Load([]string{"x.npy"}, g)
	require.Error(t, err)
}

// layers is x[8, 64] → MatMul with w → Relu → MatMul with v, fused into regions.
func layers(t *testing.T, w, v func(k, n int) float64) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("g")
	add := func(op string, in ...*ir.Value) *ir.Value {
		n, err := g.Add(op, op, nil, in...)
		require.NoError(t, err)
		return n.Outputs[0]
	}
	weights := func(name string, f func(k, n int) float64) *ir.Value {
		xs := make([]float64, 64*64)
		for i := range xs {
			xs[i] = f(i/64, i%64)
		}
		return g.Constant(name, ir.FromFloats(ir.T(ir.Float32, 64, 64), xs))
	}
	x := add("MatMul", g.AddInput("x", ir.T(ir.Float32, 8, 64)), weights("w", w))
	y := add("MatMul", add("Relu", x), weights("v", v))
	g.Outputs = []*ir.Value{y}
	names, err := passes.Pipeline(precision.NVFP4)
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: precision.NVFP4}, g, names[:slices.Index(names, "assign-storage")], nil))
	return g
}

func rowsOf(x func(i int) float64) map[string]*ir.Array {
	a := ir.NewArray(ir.T(ir.Float32, 8, 64))
	for i := range a.F {
		a.F[i] = x(i)
	}
	return map[string]*ir.Array{"x": a}
}

// A file of a few KB can hold outputs and arrays of other shapes that would take any memory.
func TestLoad_ReadsInputsOfTheirShapesAlone(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("a", ir.T(ir.Float32, 2))
	n, err := g.Add("Exp", "e", nil, g.Inputs[0])
	require.NoError(t, err)
	g.Outputs = n.Outputs
	g.Outputs[0].Name = "y"
	defer memory.Limit(1 << 20)()
	good := floatsOf([]int{2}, 1, 2)
	bomb := &npy.Array{DType: "f32", Shape: []int{2 << 20}, Data: make([]byte, 8<<20)}
	path := filepath.Join(t.TempDir(), "x.npz")
	require.NoError(t, npy.WriteZip(path, map[string]*npy.Array{"a": good, "y": bomb}))
	hostile.Bounded(t, 0, 0, func() {
		_, _, err = Load([]string{path}, g)
		require.NoError(t, err)
	})
	require.NoError(t, npy.WriteZip(path, map[string]*npy.Array{"a": bomb}))
	hostile.Bounded(t, 0, 0, func() {
		_, _, err = Load([]string{path}, g)
		require.ErrorContains(t, err, path+": array a has shape [2097152], but the input is f32[2]")
	})
	require.NoError(t, npy.WriteZip(path, map[string]*npy.Array{"a": good}))
	defer memory.Limit(1000)()
	_, _, err = Load(slices.Repeat([]string{path}, 63), g)
	require.ErrorContains(t, err, path+": with those before it, calibration input 63 needs 1008 bytes of memory")
}

func TestActivationsThatAreNotFiniteNameLayerAndFile(t *testing.T) {
	g := layers(t, func(k, n int) float64 { return 1e30 }, func(k, n int) float64 { return 1 })
	g.Nodes[0].Name = "first"
	good := rowsOf(func(i int) float64 { return 1e-30 })
	bad := rowsOf(func(i int) float64 { return math.Inf(1) }) // as an overflow within the layer would be
	for _, precision := range calibrating() {
		c, err := New(g, precision, []map[string]*ir.Array{good, bad}, Reference{}, nil)
		require.NoError(t, err)
		c.Name([]string{"day.npz", "night.npz"})
		_, err = choose(t, c, g, []map[string]*ir.Array{good, bad}, precision, 0, Best)
		require.ErrorContains(t, err, `region "first"`)
		require.ErrorContains(t, err, "+Inf")
		require.ErrorContains(t, err, "night.npz")
	}
}

// TestZerosAreHeld calibrates layers with channels of zeros, in weights and in activations, and on inputs of zeros: their
// numbers must be finite, and zeros must stay zeros.
func TestZerosAreHeld(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	column := func(k, n int) float64 { // an output channel of zeros, so that the second layer sees an input channel of zeros
		if n == 3 {
			return 0
		}
		return rng.NormFloat64()
	}
	block := func(k, n int) float64 { // a block of zeros in every channel
		if k < 16 {
			return 0
		}
		return rng.NormFloat64()
	}
	for name, c := range map[string]struct {
		w, v func(k, n int) float64
		x    func(i int) float64
	}{
		"channel of zeros":       {column, column, func(i int) float64 { return rng.NormFloat64() }},
		"block of zeros":         {block, block, func(i int) float64 { return rng.NormFloat64() }},
		"input channel of zeros": {draw, draw, func(i int) float64 { return float64(min(i%64, 1)) * rng.NormFloat64() }},
		"inputs of zeros":        {draw, draw, func(i int) float64 { return 0 }},
		"weights of zeros":       {func(k, n int) float64 { return 0 }, draw, func(i int) float64 { return rng.NormFloat64() }},
	} {
		for _, precision := range calibrating() {
			t.Run(name+", "+precision, func(t *testing.T) {
				g := layers(t, c.w, c.v)
				in := []map[string]*ir.Array{rowsOf(c.x), rowsOf(c.x), rowsOf(c.x), rowsOf(c.x)}
				cal, err := New(g, precision, in, Reference{}, nil)
				require.NoError(t, err)
				choice, err := choose(t, cal, g, in, precision, 0, Best)
				require.NoError(t, err)
				for _, l := range choice.Layers {
					require.False(t, math.IsNaN(l.Alone) || math.IsNaN(l.InPlace), "%+v", l)
				}
				final := finish(t, g, choice.Plan)
				exact, err := ir.Evaluate(context.Background(), g, in[0], ir.EvalOptions{})
				require.NoError(t, err)
				got, err := ir.Evaluate(context.Background(), final, in[0], ir.EvalOptions{Round: true})
				require.NoError(t, err)
				want, have := exact[g.Outputs[0].Name], got[g.Outputs[0].Name]
				var miss, norm float64
				for i, x := range want.F {
					require.False(t, math.IsNaN(have.F[i]) || math.IsInf(have.F[i], 0))
					miss += (have.F[i] - x) * (have.F[i] - x)
					norm += x * x
				}
				require.LessOrEqual(t, math.Sqrt(miss), .25*math.Sqrt(norm), "zeros stay zeros, others within rounding to 4 bits")
			})
		}
	}
}

// TestAChoiceIsData writes what a calibration chose as JSON and reads it again: nothing of it is lost, types are named.
func TestAChoiceIsData(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	g := layers(t, draw, draw)
	in := []map[string]*ir.Array{rowsOf(func(i int) float64 { return rng.NormFloat64() })}
	for _, name := range calibrating() {
		c, err := New(g, name, in, Reference{}, nil)
		require.NoError(t, err)
		choice, err := choose(t, c, g, in, name, 0, Best)
		require.NoError(t, err)
		text, err := json.Marshal(choice)
		require.NoError(t, err)
		p, err := precision.Lookup(name)
		require.NoError(t, err)
		require.Contains(t, string(text), `"DType":"`+p.Candidates[0].Weights.Name)
		var again Outcome
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, choice, &again)
	}
}

// choose is Choose with the evaluator as the device.
func choose(t testing.TB, c *Calibration, g *ir.Graph, in []map[string]*ir.Array, precision string, budget float64, tech Technique) (*Outcome, error) {
	t.Helper()
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	return c.Choose(context.Background(), evaluator{t, g, in, sm121}, Options{Precision: precision, MinCosine: budget, Target: sm121, Technique: tech})
}

// micros guesses a layer's time in microseconds: reading weights from DRAM, reading activations from L2 or arithmetic,
// whichever takes longest.
func micros(f precision.Layer, s *passes.Site, t *target.Target) float64 {
	bits := float64(f.Activations.Bits())
	if f.Activations.Blocks {
		bits += 8.0 / ir.BlockSize
	}
	terms := 1.0
	if f.Activations.HiLo {
		terms = 2
	}
	if f.Weights.HiLo {
		terms *= 2
	}
	m, read := cost.Of(t), float64(s.Node.Inputs[s.X].Type.Numel())*bits/8
	return terms * max(weightBytes(f, s)/m.MemoryGBps/1e3, read/m.L2ReadGBps/1e3, 2*float64(s.MACs)/max(m.TFLOPS[f.Activations.Name], 1)/1e6)
}

// evaluator is the trial of these tests: the graph that a plan becomes is evaluated.
type evaluator struct {
	t  testing.TB
	g  *ir.Graph
	in []map[string]*ir.Array
	on *target.Target
}

// Times has no kernels to take them from: it guesses.
func (e evaluator) Times(_ context.Context, plan *passes.Quantisation) (map[string]float64, error) {
	us := map[string]float64{}
	for _, s := range passes.Sites(e.g) {
		l := plan.Layers[s.Name()]
		for _, f := range precision.Layers() {
			weights, acts := precision.Half.Weights, precision.Half.Activations
			if l.Weights != nil {
				weights = precision.Operand{Format: l.Weights.DType.Format(), Blocks: l.Blocks != nil}
				if l.Split {
					weights = layerNamed(e.t, "fp8 split weights").Weights
				}
			}
			if v, ok := plan.Values[s.Node.Inputs[s.X].Name]; ok {
				acts = precision.Operand{Format: v.DType.Format(), Blocks: v.Block > 0}
			} else if l.Read != (ir.Storage{}) {
				acts = precision.Operand{Format: l.Read.DType.Format(), HiLo: l.Read.SplitTerms == 2}
			}
			if f.Weights == weights && f.Activations == acts {
				us[s.Name()] = micros(f, &s, e.on)
			}
		}
	}
	return us, nil
}

func (e evaluator) Measure(_ context.Context, plan *passes.Quantisation, _ float64) ([]Quality, error) {
	return measured(e.t, e.g, plan, e.in)
}

// measured compares what a plan makes of a graph with the graph.
func measured(t testing.TB, g *ir.Graph, q *passes.Quantisation, in []map[string]*ir.Array) ([]Quality, error) {
	t.Helper()
	final := finish(t, g, q)
	var out []Quality
	for _, v := range g.Outputs {
		var got, want [][]float64
		for _, one := range in {
			e, err := ir.Evaluate(context.Background(), g, one, ir.EvalOptions{})
			require.NoError(t, err)
			o, err := ir.Evaluate(context.Background(), final, one, ir.EvalOptions{Round: true})
			require.NoError(t, err)
			got, want = append(got, o[v.Name].Floats()), append(want, e[v.Name].Floats())
		}
		one, err := Measure(Slice{Output: v.Name, Slice: runtime.Slice{Stop: v.Type.Numel()}}, got, want)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// TestDoubtfulInputsAreNamedWithNumbers looks at inputs that are copies, constant or saturated, and at good ones.
func TestDoubtfulInputsAreNamedWithNumbers(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("photo", ir.T(ir.Uint8, 1, 1, 16, 16))
	g.AddInput("row", ir.T(ir.Float32, 1, 4))
	files := []string{"a.npz", "b.npz", "c.npz", "d.npz"}
	for name, c := range map[string]struct {
		photo, row func(input, i int) float64
		want       []string
	}{
		"good":      {func(n, i int) float64 { return float64((i*(7+n) + n) % 251) }, func(n, i int) float64 { return float64(n + i) }, nil},
		"copies":    {func(n, i int) float64 { return float64(i * 7 % 251) }, func(n, i int) float64 { return float64(max(n, 1) + i) }, []string{"calibration inputs are copies of others and left out, 1 of 4 (b.npz of a.npz)"}},
		"constant":  {func(n, i int) float64 { return float64((i*(7+n) + n) % 251) }, func(n, i int) float64 { return float64(min(n, 1) * n) }, []string{"input row is one constant number in 4 of 4 calibration inputs (a.npz first)"}},
		"saturated": {func(n, i int) float64 { return float64(min((i*(7+n)+n)%251*(1+n%2*3), 255)) }, func(n, i int) float64 { return float64(n + i) }, []string{"input photo is saturated in 2 of 4 calibration inputs: up to 73 % of its numbers are its least or greatest (b.npz first)"}},
	} {
		t.Run(name, func(t *testing.T) {
			var in []map[string]*ir.Array
			for n := range files {
				photo, row := ir.NewArray(g.Inputs[0].Type), ir.NewArray(g.Inputs[1].Type)
				for i := range photo.I {
					photo.I[i] = int64(c.photo(n, i))
				}
				for i := range row.F {
					row.F[i] = c.row(n, i)
				}
				in = append(in, map[string]*ir.Array{"photo": photo, "row": row})
			}
			got := Doubts(g, in, files)
			require.Len(t, got, len(c.want), "%q", got)
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

// TestHeldOutInputsAreNotFittedTo changes an input that is held out, too little to choose other strengths: the plan stays the
// same; a change of another input changes it.
func TestHeldOutInputsAreNotFittedTo(t *testing.T) {
	plan := func(changed int) *Outcome {
		rng := rand.New(rand.NewSource(4))
		draw := func(k, n int) float64 { return rng.NormFloat64() }
		g := layers(t, draw, draw)
		var in []map[string]*ir.Array
		for range 4 {
			in = append(in, rowsOf(func(i int) float64 { return rng.NormFloat64() }))
		}
		if changed >= 0 {
			for i := range in[changed]["x"].F {
				in[changed]["x"].F[i] *= .9999
			}
		}
		fitted, held := Split(in)
		require.Len(t, fitted, 3)
		require.Equal(t, in[3:], held)
		c, err := New(g, precision.FP8, in, Reference{}, nil)
		require.NoError(t, err)
		choice, err := choose(t, c, g, in, precision.FP8, 0, Best)
		require.NoError(t, err)
		return choice
	}
	before, other, held := plan(-1), plan(0), plan(3)
	require.NotEqual(t, before.Plan, other.Plan)
	require.Equal(t, before.Plan, held.Plan)
}

// TestMomentsIgnoreWhatIsHeldOut: those that weights are fitted to are the same to the bit, however great what is held out is.
func TestMomentsIgnoreWhatIsHeldOut(t *testing.T) {
	rng := rand.New(rand.NewSource(6))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	g := layers(t, draw, draw)
	s, ok := passes.SiteOf(g.Nodes[0])
	require.True(t, ok)
	p, held := patchesOf(&s), []bool{false, true, false}
	var x, hat []*ir.Tensor
	for range held {
		x = append(x, rowsOf(func(i int) float64 { return 3 + rng.NormFloat64() })["x"].Tensor())
		hat = append(hat, rowsOf(func(i int) float64 { return 3 + rng.NormFloat64() })["x"].Tensor())
	}
	fitted, tried := p.measure(t.Context(), x, hat, held, 0, 0, true)
	for _, list := range [][]*ir.Tensor{x, hat} {
		for i, v := range floats(list[1]) {
			floats(list[1])[i] = 1000 * v
		}
	}
	again, other := p.measure(t.Context(), x, hat, held, 0, 0, true)
	require.Equal(t, fitted, again)
	require.NotEqual(t, tried, other)
}
