package calibrate

import (
	"math"
	"math/rand"
	rand2 "math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// TestPerturbedInputsAreLikeNoneGiven perturbs images, bytes, rows and integers.
func TestPerturbedInputsAreLikeNoneGiven(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("photo", ir.T(ir.Float32, 1, 3, 16, 24))
	g.AddInput("bytes", ir.T(ir.Uint8, 1, 6, 8, 8))
	g.AddInput("row", ir.T(ir.Float16, 1, 40))
	g.AddInput("which", ir.T(ir.Int64, 1))
	rng := rand.New(rand.NewSource(5))
	var given []map[string]*ir.Array
	for range 5 {
		in := map[string]*ir.Array{}
		for _, v := range g.Inputs {
			a := ir.NewArray(v.Type)
			for i := range a.F {
				a.F[i] = ir.RoundTo(v.Type.DType, 2*rng.Float64()-1)
			}
			for i := range a.I {
				a.I[i] = rng.Int63n(256)
			}
			in[v.Name] = a
		}
		given = append(given, in)
	}
	kept := given[0]["photo"].F[7]
	out, from := Perturb(g, given, fittedDraw)
	require.Equal(t, []int{0, 1, 2, 3, 4}, from)
	require.Equal(t, kept, given[0]["photo"].F[7], "the given ones stay")
	again, _ := Perturb(g, given, fittedDraw)
	require.Equal(t, out, again)
	for i, in := range out {
		require.Equal(t, given[i]["which"], in["which"])
		for _, name := range []string{"photo", "bytes", "row"} {
			x, y := given[i][name].Floats(), in[name].Floats()
			lo, hi := bounds(given, name)
			if name == "bytes" {
				lo, hi = 0, 255
			}
			moved := 0
			for k := range y {
				require.True(t, lo <= y[k] && y[k] <= hi, "%s: %v", name, y[k])
				if x[k] != y[k] {
					moved++
				}
			}
			require.Greater(t, moved, len(y)/2, "%s %d", name, i)
		}
		require.False(t, slices.ContainsFunc(in["row"].F, func(x float64) bool { return x != ir.RoundTo(ir.Float16, x) }), "numbers of the input's type")
	}
	many, from := Perturb(g, slices.Repeat(given, 8), fittedDraw)
	require.Len(t, many, perturbedAtMost)
	require.True(t, slices.IsSorted(from))
	require.Equal(t, 37, from[len(from)-1], "spread over all of the inputs")
}

// TestPerturbedInputsCount calibrates on perturbed inputs and their originals, and holds both out together. It
// uses two draws where that is cheap, unless weights are coarse.
func TestPerturbedInputsCount(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	var in []map[string]*ir.Array
	for range 5 {
		in = append(in, rowsOf(func(i int) float64 { return rng.NormFloat64() }))
	}
	g := layers(t, draw, draw)
	one := []bool{false, false, false, true, false}
	for name, want := range map[string]int{precision.FP8: 2, precision.FP6: 2, precision.NVFP4: 1} {
		c, err := New(g, name, in, Reference{}, nil)
		require.NoError(t, err)
		require.Equal(t, slices.Concat(one, slices.Repeat([]bool{false, false, false, true, false}, want)), c.held, name)
		require.Equal(t, len(c.held), c.walk.inputs)
	}
	macs := int64(0)
	for _, n := range g.Nodes {
		macs += n.MACs()
	}
	many := make([]map[string]*ir.Array, secondWork/macs+1)
	for i := range many {
		many[i] = in[i%5]
	}
	got, from := fittedTo(g, precision.FP8, many)
	require.Len(t, got, perturbedAtMost)
	require.Len(t, from, perturbedAtMost)
	got, _ = fittedTo(g, precision.FP8, many[1:])
	require.Len(t, got, 2*perturbedAtMost)
}

// TestPerturbedInputsStayInTheRangeOfThoseFittedTo: one that is held out does not widen it.
func TestPerturbedInputsStayInTheRangeOfThoseFittedTo(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("x", ir.T(ir.Float32, 64))
	in := Generate(g, 4)
	lo, hi := bounds(in[:3], "x")
	for i := range in[3]["x"].F {
		in[3]["x"].F[i] *= 100
	}
	got, _ := fittedTo(g, precision.FP8, in)
	require.Len(t, got, 8)
	for _, x := range got {
		a, b := bounds([]map[string]*ir.Array{x}, "x")
		require.True(t, lo <= a && b <= hi, "%v to %v are outside of %v to %v", a, b, lo, hi)
	}
}

// TestDrawsAreIndependent: what is judged on is not what is fitted to, nor are two draws of that the same.
func TestDrawsAreIndependent(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("x", ir.T(ir.Float32, 64))
	in := Generate(g, 4)
	fitted, _ := fittedTo(g, precision.FP8, in)
	require.Len(t, fitted, 8)
	require.Zero(t, Same(fitted[:4], fitted[4:]))
	judged, _ := Perturb(g, in, JudgedDraw)
	require.Zero(t, Same(judged, fitted))
}

// TestTextureIsForCoarseWeights: with texture, pixels differ more the greater their distance. Only the inputs that
// 4-bit weights are fitted to have it.
func TestTextureIsForCoarseWeights(t *testing.T) {
	require.Equal(t, texturedDraw, drawFor(precision.NVFP4))
	for _, name := range []string{precision.FP6, precision.FP8, precision.FP16} {
		require.Equal(t, fittedDraw, drawFor(name), name)
	}
	var differ [6]float64 // by distance of pixels: 1, 2, 4 … 32
	for seed := range uint64(40) {
		p := &picture{f: make([]float64, 2*64*96), height: 64, width: 96}
		p.texture(rand2.New(rand2.NewPCG(1, seed)), 1)
		require.Equal(t, p.f[:64*96], p.f[64*96:], "planes have the same texture")
		for i := range differ {
			for at := range 64 * 96 {
				if offset := 1 << i; at%96 >= offset {
					d := p.f[at] - p.f[at-offset]
					differ[i] += d * d / float64(64*(96-offset))
				}
			}
		}
	}
	for i, x := range differ[1:] {
		require.Greater(t, x, 1.1*differ[i], "mean squared differences %v", differ)
	}
	small := &picture{f: make([]float64, 8*9), height: 8, width: 9}
	small.texture(rand2.New(rand2.NewPCG(1, 2)), 1)
	require.NotEqual(t, small.f[0], small.f[71])
}

// TestFlatPatchesStandForWhatIsHeldOut: the second draw has pictures of flat patches, whose edges are where they are in all planes,
// instead of copies of inputs that are held out.
func TestFlatPatchesStandForWhatIsHeldOut(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("photo", ir.T(ir.Float32, 1, 3, 48, 64))
	rng := rand2.New(rand2.NewPCG(5, 6))
	var given []map[string]*ir.Array
	for range 5 {
		p := &picture{f: make([]float64, 3*48*64), height: 48, width: 64}
		for c := range 3 { // smooth, each of its own
			a, b, light := uniform(rng, -.3, .3), uniform(rng, -.3, .3), uniform(rng, 0, 6)
			for i := range 48 * 64 {
				p.f[c*48*64+i] = math.Sin(light + a*float64(i/64) + b*float64(i%64))
			}
		}
		given = append(given, map[string]*ir.Array{"photo": {Type: g.Inputs[0].Type, F: p.f}})
	}
	out, from := fittedTo(g, precision.FP8, given)
	require.Equal(t, []int{0, 1, 2, 3, 4, 0, 1, 2, 2, 4}, from)
	given[3] = given[0]
	again, _ := fittedTo(g, precision.FP8, given)
	require.Equal(t, out[5:], again[5:], "nothing of what is held out is in the second draw")
	lo, hi := bounds(given[:3], "photo")
	for i, in := range out {
		x, differences := in["photo"].F, map[float64]bool{} // of two planes
		for at, y := range x[48*64 : 2*48*64] {
			if lo < min(x[at], y) && max(x[at], y) < hi {
				differences[math.Round(1e4*(x[at]-y))] = true
			}
		}
		if i == 8 {
			require.LessOrEqual(t, len(differences), 2*mostPatches, "a number or two neighbours for each patch")
			require.Greater(t, len(differences), 1)
		} else {
			require.Greater(t, len(differences), 20*mostPatches, "%d", i)
		}
	}
	rows := ir.NewGraph("g")
	rows.AddInput("x", ir.T(ir.Float32, 64))
	_, from = fittedTo(rows, precision.FP8, Generate(rows, 4))
	require.Equal(t, []int{0, 1, 2, 3, 0, 1, 2, 3}, from, "no pictures, no patches")
}

// TestPerturbedChannelsKeepTheirMagnitude to within a factor: a row may hold both metres and curvatures, and
// curvatures must not get noise of metres.
func TestPerturbedChannelsKeepTheirMagnitude(t *testing.T) {
	g := ir.NewGraph("g")
	g.AddInput("row", ir.T(ir.Float32, 4, 3))
	rng := rand.New(rand.NewSource(6))
	magnitude := []float64{1000, 1e-3, 1}
	var given []map[string]*ir.Array
	for range 6 {
		a := ir.NewArray(ir.T(ir.Float32, 4, 3))
		for i := range a.F {
			a.F[i] = ir.RoundTo(ir.Float32, magnitude[i%3]*(2*rng.Float64()-1))
		}
		given = append(given, map[string]*ir.Array{"row": a})
	}
	out, _ := Perturb(g, given, fittedDraw)
	changed := [3]int{}
	for n, in := range out {
		for i, x := range in["row"].F {
			was := given[n]["row"].F[i]
			require.LessOrEqual(t, math.Abs(x), furthest*magnitude[i%3])
			if x != was {
				changed[i%3]++
			}
		}
	}
	require.Greater(t, changed[0], 12)
	require.Greater(t, changed[1], 12)
	require.Greater(t, changed[2], 12)
}
