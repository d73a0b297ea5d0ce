package ir

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gradCase is a node whose gradient is held to finite differences. Inputs of floats are differentiated, but for those
// in still.
type gradCase struct {
	attrs Attrs
	in    []*Array
	still []int
}

// gradNode builds the graph of the case: inputs x0, x1 …, outputs the gradients of Σ c·y; c are inputs too.
func (c gradCase) build(t testing.TB, op string) (forward, back *Graph, xs []int) {
	t.Helper()
	g := NewGraph("g")
	vs := make([]*Value, len(c.in))
	var wrt []*Value
	for i, a := range c.in {
		if a == nil {
			continue
		}
		vs[i] = g.AddInput(fmt.Sprintf("x%d", i), a.Type)
		if a.F != nil && !slices.Contains(c.still, i) {
			wrt, xs = append(wrt, vs[i]), append(xs, i)
		}
	}
	n, err := g.Add(op, "n", c.attrs, vs...)
	require.NoError(t, err)
	for _, y := range n.Outputs {
		if y.Type.DType.IsFloat() {
			g.Outputs = append(g.Outputs, y)
		}
	}
	forward = g.Clone()
	ys := g.Outputs
	var dys []*Value
	for i, y := range ys {
		dys = append(dys, g.AddInput(fmt.Sprintf("c%d", i), y.Type))
	}
	g.Outputs, err = g.Gradients(ys, dys, wrt)
	require.NoError(t, err)
	require.NoError(t, g.Verify())
	return forward, g, xs
}

func (c gradCase) given() map[string]*Array {
	in := map[string]*Array{}
	for i, a := range c.in {
		if a != nil {
			in[fmt.Sprintf("x%d", i)] = a
		}
	}
	return in
}

// checkGradient compares with central differences of fourth order, all in float64.
func checkGradient(t *testing.T, op string, c gradCase, rng *rand.Rand) {
	t.Helper()
	forward, back, xs := c.build(t, op)
	ctx, in := context.Background(), c.given()
	y, err := Evaluate(ctx, forward, in, EvalOptions{})
	require.NoError(t, err)
	weights := map[string]*Array{}
	for i, v := range forward.Outputs {
		w := random(rng, v.Type.Shape...)
		w.DType = v.Type.DType
		weights[v.Name] = w
		in[fmt.Sprintf("c%d", i)] = w
		require.Len(t, y[v.Name].F, len(w.F))
	}
	got, err := EvaluateList(ctx, back, ordered(back, in), EvalOptions{})
	require.NoError(t, err)
	loss := func() float64 {
		y, err := Evaluate(ctx, forward, in, EvalOptions{})
		require.NoError(t, err)
		sum := 0.0
		for name, w := range weights {
			for i, v := range w.F {
				sum += v * y[name].F[i]
			}
		}
		return sum
	}
	const h = 1e-3
	for k, i := range xs {
		x := c.in[i]
		var missed, size float64
		for n, j := range rng.Perm(len(x.F)) {
			if n == 30 {
				break
			}
			v := x.F[j]
			at := func(d float64) float64 { x.F[j] = v + d; defer func() { x.F[j] = v }(); return loss() }
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			missed += (got[k].F[j] - want) * (got[k].F[j] - want)
			size += want * want
		}
		assert.LessOrEqual(t, math.Sqrt(missed), 1e-6*math.Sqrt(size)+1e-9, "%s %v: gradient of input %d of shape %v", op, c.attrs, i, x.Shape)
	}
}

// ordered lists arrays by the graph's inputs.
func ordered(g *Graph, by map[string]*Array) []*Array {
	var list []*Array
	for _, v := range g.Inputs {
		list = append(list, by[v.Name])
	}
	return list
}

// within are random numbers between lo and hi.
func within(rng *rand.Rand, lo, hi float64, shape ...int) *Array {
	a := NewArray(T(Float64, shape...))
	for i := range a.F {
		a.F[i] = lo + (hi-lo)*rng.Float64()
	}
	return a
}

// distinct returns well-separated numbers in random order, none of them near 0.
func distinct(rng *rand.Rand, shape ...int) *Array {
	a := NewArray(T(Float64, shape...))
	for i, p := range rng.Perm(len(a.F)) {
		a.F[i] = 0.1*float64(p-len(a.F)/2) + 0.05
	}
	return a
}

// gridBetween are coordinates of points within and beyond an image of some size, none of them within 0.05 of a pixel,
// of the middle between two or of an edge.
func gridBetween(rng *rand.Rand, size []int, align bool, points ...int) *Array {
	r := len(size)
	a := NewArray(T(Float64, append(points, r)...))
	for i := range a.F {
		d := float64(size[r-1-i%r])
		u := float64(rng.Intn(3*size[r-1-i%r])) - d + 0.05 + 0.4*rng.Float64() // pixels
		if rng.Intn(2) == 0 {
			u += 0.5
		}
		switch {
		case !align:
			a.F[i] = (2*u + 1 - d) / d
		case d > 1:
			a.F[i] = 2*u/(d-1) - 1
		default:
			a.F[i] = u
		}
	}
	return a
}

func indices(shape []int, xs ...int64) *Array { return &Array{Type: T(Int64, shape...), I: xs} }

// pairs are operands that broadcast against each other.
func pairs(rng *rand.Rand, draw func(shape ...int) *Array) []gradCase {
	var cases []gradCase
	for _, s := range [][2][]int{{{2, 3}, {2, 3}}, {{2, 1, 3}, {4, 1}}, {{3}, {2, 3}}, {{}, {2, 2}}, {{1}, {1}}} {
		cases = append(cases, gradCase{in: []*Array{draw(s[0]...), draw(s[1]...)}})
	}
	return cases
}

// gradCases are cases of every op that has a gradient.
func gradCases(rng *rand.Rand) map[string][]gradCase {
	one := func(lo, hi float64) []gradCase { return []gradCase{{in: []*Array{within(rng, lo, hi, 2, 7)}}} }
	positive := func(shape ...int) *Array { return within(rng, 0.3, 2, shape...) }
	cases := map[string][]gradCase{
		"Abs": {{in: []*Array{distinct(rng, 5)}}}, "Neg": one(-2, 2), "Reciprocal": one(0.5, 2), "Sqrt": one(0.5, 3), "Exp": one(-2, 2), "Log": one(0.5, 3),
		"Log1p": one(-0.5, 2), "Sin": one(-3, 3), "Cos": one(-3, 3), "Tan": one(-1, 1), "Asin": one(-0.8, 0.8), "Acos": one(-0.8, 0.8),
		"Atan": one(-2, 2), "Sinh": one(-2, 2), "Cosh": one(-2, 2), "Tanh": one(-2, 2), "Asinh": one(-2, 2), "Acosh": one(1.5, 3),
		"Atanh": one(-0.8, 0.8), "Erf": one(-2, 2), "Sigmoid": one(-3, 3), "Silu": one(-3, 3),
		"Relu": {{in: []*Array{distinct(rng, 8)}}},
		"Gelu": {{in: []*Array{within(rng, -3, 3, 9)}}, {attrs: Attrs{"sqrt2": 1.41}, in: []*Array{within(rng, -3, 3, 9)}},
			{attrs: Attrs{"tanh": true}, in: []*Array{within(rng, -3, 3, 9)}}},
		"Cast": {{attrs: Attrs{"to": Float32}, in: []*Array{random(rng, 4)}}},
		"Add":  pairs(rng, positive), "Sub": pairs(rng, positive), "Mul": pairs(rng, positive), "Div": pairs(rng, positive), "Pow": pairs(rng, positive),
		"Where": {{in: []*Array{{Type: T(Bool, 2, 1), I: []int64{1, 0}}, random(rng, 3), random(rng, 2, 3)}}},
	}
	for _, fmod := range []bool{false, true} {
		a, b := distinct(rng, 6), within(rng, 0.31, 0.33, 6)
		cases["Mod"] = append(cases["Mod"], gradCase{attrs: Attrs{"fmod": fmod}, in: []*Array{a, b}})
	}
	separate := distinct(rng, 12)
	for _, op := range []string{"Min", "Max"} {
		cases[op] = []gradCase{{in: []*Array{f64([]int{6}, separate.F[:6]...), f64([]int{6}, separate.F[6:]...)}}, {in: []*Array{f64([]int{2, 3}, separate.F[:6]...), f64([]int{}, separate.F[6])}}}
	}
	for _, op := range []string{"Sign", "Ceil", "Floor", "Round"} {
		cases[op] = []gradCase{{in: []*Array{within(rng, 0.1, 0.4, 5)}}}
	}
	cases["BatchNorm"] = []gradCase{{in: []*Array{random(rng, 2, 3, 2), random(rng, 3), random(rng, 3), random(rng, 3), positive(3)}},
		{attrs: Attrs{"axis": 2}, in: []*Array{random(rng, 2, 3, 2), random(rng, 2), random(rng, 2), random(rng, 2), positive(2)}}}
	for _, axis := range []int{0, 1, 2} {
		a := Attrs{"axis": axis}
		x := func() *Array { return random(rng, 3, 2, 4) }
		cases["Softmax"] = append(cases["Softmax"], gradCase{attrs: a, in: []*Array{x()}})
		cases["LogSoftmax"] = append(cases["LogSoftmax"], gradCase{attrs: a, in: []*Array{x()}})
		cases["LayerNorm"] = append(cases["LayerNorm"], gradCase{attrs: a, in: []*Array{x(), random(rng, 4), random(rng, 2, 4)}}, gradCase{attrs: a, in: []*Array{x()}})
		cases["RMSNorm"] = append(cases["RMSNorm"], gradCase{attrs: a, in: []*Array{x(), random(rng, 4)}})
		cases["SoftmaxGrad"] = append(cases["SoftmaxGrad"], gradCase{attrs: a, in: []*Array{x(), x()}})
		for _, op := range []string{"LayerNormGrad", "RMSNormGrad"} {
			cases[op] = append(cases[op], gradCase{attrs: a, in: []*Array{x(), x(), random(rng, 2, 4)}}, gradCase{attrs: a, in: []*Array{x(), x()}})
		}
	}

	// Movement.
	x234 := func() *Array { return random(rng, 2, 3, 4) }
	add := func(op string, attrs Attrs, in ...*Array) {
		cases[op] = append(cases[op], gradCase{attrs: attrs, in: in})
	}
	add("Reshape", Attrs{"shape": []int{4, 6}}, x234())
	add("Transpose", Attrs{"perm": []int{2, 0, 1}}, x234())
	add("Expand", Attrs{"shape": []int{2, 3, 2, 4}}, random(rng, 3, 1, 4))
	add("Slice", Attrs{"starts": []int{1, 0, 1}, "sizes": []int{1, 2, 2}}, x234())
	add("Slice", Attrs{"starts": []int{1, 0, 3}, "sizes": []int{2, 2, 2}, "steps": []int{-1, 2, -2}}, x234())
	add("Slice", Attrs{"starts": []int{1, 8}, "sizes": []int{2, 3}, "steps": []int{4, -3}}, random(rng, 7, 10))
	add("Concat", Attrs{"axis": 1}, random(rng, 2, 1, 2), random(rng, 2, 3, 2), random(rng, 2, 2, 2))
	for _, mode := range []string{"constant", "reflect", "edge", "wrap"} {
		add("Pad", Attrs{"begin": []int{0, 2}, "end": []int{1, 3}, "mode": mode, "value": 2.5}, random(rng, 3, 5))
		add("Pad", Attrs{"begin": []int{-1, 2}, "end": []int{1, -2}, "mode": mode}, random(rng, 3, 5))
	}
	add("Tile", Attrs{"repeats": []int{2, 1, 3}}, x234())
	add("Gather", Attrs{"axis": 1}, x234(), indices([]int{2, 2}, 0, -1, 2, 0))
	add("Gather", Attrs{"axis": 0}, x234(), indices([]int{}, 1))
	add("GatherElements", Attrs{"axis": 1}, random(rng, 2, 3), indices([]int{2, 4}, 0, -1, 2, 0, 1, 1, 1, 0))
	add("GatherND", nil, x234(), indices([]int{3, 2}, 0, 1, 1, -1, 0, 1))
	add("GatherND", Attrs{"batch_dims": 1}, x234(), indices([]int{2, 2, 1}, 0, 2, 1, 1))
	for _, reduction := range []string{"none", "add"} {
		a := Attrs{"reduction": reduction, "axis": 1}
		add("ScatterElements", a, random(rng, 2, 4), indices([]int{2, 3}, 0, 3, -4, 1, 1, 2), random(rng, 2, 3))
		add("ScatterND", Attrs{"reduction": reduction}, random(rng, 3, 4), indices([]int{4, 1}, 2, 0, 2, -3), random(rng, 4, 4))
		add("ScatterND", Attrs{"reduction": reduction}, random(rng, 3, 4), indices([]int{3, 2}, 2, 0, 1, 1, 2, 0), random(rng, 3))
	}
	add("Trilu", Attrs{"upper": false, "k": 1}, random(rng, 2, 3, 4))
	add("Trilu", nil, random(rng, 4, 3))
	add("OneHot", Attrs{"depth": 4, "axis": 1}, ints64(Int64, 1, -1, 9), random(rng, 2))
	add("ReverseSequence", nil, random(rng, 4, 3, 2), ints64(Int64, 4, 2, 1))
	for _, mode := range []string{"nearest", "linear", "cubic"} {
		for _, coordinate := range []string{"half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"} {
			for _, sizes := range [][]int{{1, 2, 8, 10}, {1, 2, 7, 3}, {1, 3, 2, 5}} {
				in := []int{1, 2, 4, 5}
				scales := make([]float64, 4)
				for i := range scales {
					scales[i] = float64(sizes[i]) / float64(in[i])
				}
				a := Attrs{"sizes": sizes, "scales": scales, "mode": mode, "coordinate": coordinate, "roi": []float64{0, 0, 0.2, -0.4, 1, 1, 0.9, 1.1}, "extrapolation": 3.0}
				if mode == "cubic" {
					a["exclude_outside"] = true
				}
				if mode == "linear" && coordinate == "half_pixel" {
					a["antialias"] = true
				}
				add("Resize", a, random(rng, in...))
			}
		}
	}

	for _, mode := range []string{"nearest", "linear", "cubic"} {
		for _, padding := range []string{"zeros", "border", "reflection"} {
			for _, align := range []bool{false, true} {
				a := Attrs{"mode": mode, "padding": padding, "align_corners": align}
				for _, size := range [][]int{{5}, {4, 3}, {1, 5}, {2, 3, 3}} {
					points := slices.Concat([]int{2}, []int{3, 2, 2}[:len(size)])
					add("GridSample", a, random(rng, slices.Concat([]int{2, 2}, size)...), gridBetween(rng, size, align, points...))
				}
				edges := NewArray(T(Float64, 1, 5, 7, 2)) // and pixels, and beyond; by x they have a gradient
				for i := range edges.F {
					edges.F[i] = float64(i*3%17-8) / 4
				}
				cases["GridSample"] = append(cases["GridSample"], gradCase{attrs: a, in: []*Array{random(rng, 1, 2, 4, 4), edges}, still: []int{1}})
			}
		}
	}
	for _, half := range []bool{false, true} {
		a := Attrs{"height": 2, "width": 3, "sampling_ratio": 2, "scale": 0.5, "half_pixel": half}
		rois := f64([]int{4, 4}, 1, 2, 6, 9, -3, 0, 4.5, 3, 7, 5, 14, 13, 2, 2, 2.5, 2.2)
		cases["RoiAlign"] = append(cases["RoiAlign"], gradCase{attrs: a, in: []*Array{random(rng, 2, 3, 5, 6), rois, indices([]int{4}, 1, 0, -1, 1)}, still: []int{1}})
	}

	// Reductions.
	for _, axes := range [][]int{{}, {0}, {1, 2}, {0, 2}, {0, 1, 2}} {
		for _, keep := range []bool{false, true} {
			a := Attrs{"axes": axes, "keepdims": keep}
			add("ReduceSum", a, x234())
			add("ReduceMean", a, x234())
			add("ReduceMax", a, distinct(rng, 2, 3, 4))
			add("ReduceMin", a, distinct(rng, 2, 3, 4))
			x := x234()
			x.F[5], x.F[7] = 0, 0
			add("ReduceProd", a, x)
		}
	}
	for _, flags := range []Attrs{{}, {"exclusive": true}, {"reverse": true}, {"exclusive": true, "reverse": true}} {
		a := flags.Clone()
		a["axis"] = 1
		add("CumSum", a, x234())
		x := x234()
		x.F[5] = 0
		add("CumProd", a, x)
	}
	add("TopK", Attrs{"k": 2, "axis": 1}, distinct(rng, 2, 5, 2))
	add("TopK", Attrs{"k": 3, "axis": 2, "largest": false}, distinct(rng, 2, 2, 5))

	// Products.
	for _, s := range [][2][]int{{{3, 4}, {4, 2}}, {{2, 1, 3, 4}, {5, 4, 2}}, {{4}, {4, 2}}, {{3, 4}, {4}}, {{4}, {4}}, {{2, 3, 4}, {4}}, {{4}, {2, 4, 3}}} {
		for _, transA := range []bool{false, true} {
			for _, transB := range []bool{false, true} {
				a, b := slices.Clone(s[0]), slices.Clone(s[1])
				if transA && len(a) == 1 || transB && len(b) == 1 {
					continue
				}
				swapLast(a, transA)
				swapLast(b, transB)
				add("MatMul", Attrs{"transA": transA, "transB": transB}, random(rng, a...), random(rng, b...))
			}
		}
	}
	add("Einsum", Attrs{"equation": "abc,cd,ad->bd"}, random(rng, 2, 3, 4), random(rng, 4, 2), random(rng, 2, 2))
	add("Einsum", Attrs{"equation": "iij->j"}, random(rng, 3, 3, 2))
	for i := range 40 {
		addConvolutions(rng, i, add)
	}
	for _, c := range []struct {
		heads, kv int
		attrs     Attrs
		mask      []int
	}{{2, 2, Attrs{}, nil}, {4, 2, Attrs{"causal": true}, nil}, {4, 1, Attrs{"softcap": 1.5}, []int{2, 1, 3, 5}}, {2, 2, Attrs{"causal": true, "softcap": 0.7}, []int{5}}} {
		c.attrs["scale"] = 0.4
		in := []*Array{random(rng, 2, c.heads, 3, 4), random(rng, 2, c.kv, 5, 4), random(rng, 2, c.kv, 5, 6)}
		if c.mask != nil {
			in = append(in, random(rng, c.mask...))
		}
		add("Attention", c.attrs, in...)
	}
	for _, causal := range []bool{false, true} { // a mask that is not trained
		cases["Attention"] = append(cases["Attention"], gradCase{attrs: Attrs{"scale": 0.3, "causal": causal}, still: []int{3},
			in: []*Array{random(rng, 2, 3, 6, 4), random(rng, 2, 3, 4, 4), random(rng, 2, 3, 4, 2), random(rng, 3, 1, 4)}})
		add("AttentionGrad", Attrs{"scale": 0.3, "causal": causal}, random(rng, 1, 2, 3, 2), random(rng, 1, 2, 2, 2), random(rng, 1, 2, 2, 3), random(rng, 1, 2, 3, 3))
	}

	add("MatMulSum", Attrs{"transB": true}, random(rng, 2, 3, 5), random(rng, 4, 5), random(rng, 2, 3, 2), random(rng, 2, 4))
	add("MatMulSum", Attrs{"transD": true}, random(rng, 3, 5), random(rng, 5, 4), random(rng, 3, 2), random(rng, 4, 2), random(rng, 5))

	// Recurrent layers.
	for _, direction := range []string{"forward", "reverse", "bidirectional"} {
		d := 1
		if direction == "bidirectional" {
			d = 2
		}
		a := func(more Attrs) Attrs { more["direction"] = direction; return more }
		x, lengths := random(rng, 3, 2, 2), ints64(Int32, 3, 2)
		small := func(shape ...int) *Array { return within(rng, -0.7, 0.7, shape...) }
		add("GRU", a(Attrs{"linear_before_reset": d == 1}), x, small(d, 9, 2), small(d, 9, 3), small(d, 18), lengths, small(d, 2, 3))
		add("LSTM", a(Attrs{}), x, small(d, 12, 2), small(d, 12, 3), small(d, 24), nil, small(d, 2, 3), small(d, 2, 3), small(d, 9))
		add("RNN", a(Attrs{}), x, small(d, 3, 2), small(d, 3, 3), nil, lengths)
	}
	return cases
}

// addConvolutions draws a convolution, its transpose and pools of one geometry.
func addConvolutions(rng *rand.Rand, i int, add func(op string, attrs Attrs, in ...*Array)) {
	r := 1 + i%3
	group, in, out := 1+rng.Intn(3), 1+rng.Intn(2), 1+rng.Intn(2)
	var size, kernel, strides, dilations, begin, end, extra []int
	for range r {
		k, s, d := 1+rng.Intn(3), 1+rng.Intn(3), 1+rng.Intn(2)
		kernel, strides, dilations = append(kernel, k), append(strides, s), append(dilations, d)
		begin, end = append(begin, rng.Intn(k)), append(end, rng.Intn(k))
		size = append(size, (k-1)*d+1+rng.Intn(3))
		extra = append(extra, rng.Intn(s))
	}
	image := func(channels int, layout string, size []int) []int {
		if layout == "NHWC" {
			return slices.Concat([]int{2}, size, []int{channels})
		}
		return slices.Concat([]int{2, channels}, size)
	}
	for _, layout := range []string{"NCHW", "NHWC"} {
		a := Attrs{"strides": strides, "dilations": dilations, "pads": slices.Concat(begin, end), "layout": layout}
		c := a.Clone()
		c["group"] = group
		add("Conv", c, random(rng, image(group*in, layout, size)...), random(rng, slices.Concat([]int{group * out, in}, kernel)...), random(rng, group*out))
		c = c.Clone()
		c["output_padding"] = extra
		add("ConvTranspose", c, random(rng, image(group*in, layout, size)...), random(rng, slices.Concat([]int{group * in, out}, kernel)...), random(rng, group*out))
		for _, ceil := range []bool{false, true} {
			p := a.Clone()
			p["kernel"], p["ceil"] = kernel, ceil
			x := image(3, layout, size)
			add("MaxPool", p, distinct(rng, x...))
			q := p.Clone()
			q["p"] = 1 + i%3
			add("LpPool", q, distinct(rng, x...))
			q = p.Clone()
			q["include_pad"] = i%2 == 0
			add("AveragePool", q, random(rng, x...))
		}
	}
}

// TestGradientsAgreeWithDifferences holds every gradient rule to central differences in float64.
func TestGradientsAgreeWithDifferences(t *testing.T) {
	for op, cases := range gradCases(rand.New(rand.NewSource(1))) {
		t.Run(op, func(t *testing.T) {
			rng := rand.New(rand.NewSource(2))
			for _, c := range cases {
				checkGradient(t, op, c, rng)
			}
		})
	}
}

// TestEveryOpHasAGradientOrIsKnownToHaveNone: an op without one is refused by name; the list says why there is none.
func TestEveryOpHasAGradientOrIsKnownToHaveNone(t *testing.T) {
	none := map[string]string{
		"BlockQuantize": "made by assign-storage, after differentiation", "SegmentedMatVec": "made by group-gemv, after differentiation", "Region": "made by fuse, after differentiation",
		"BitCast": "bits are no numbers", "WarpFrame": "pictures are bytes",
		"RoiAlignWeights": "the corners of regions have none",
	}
	tested := gradCases(rand.New(rand.NewSource(1)))
	for _, op := range Ops() {
		discrete := slices.Contains([]string{"Not", "BitNot", "IsNaN", "IsInf", "And", "Or", "Xor", "BitAnd", "BitOr", "BitXor", "ShiftLeft", "ShiftRight",
			"Equal", "Less", "LessEqual", "Greater", "GreaterEqual", "ArgMax", "ArgMin"}, op.Name)
		straight := slices.Contains([]string{"QuantizeLinear", "DequantizeLinear", "FakeQuantize", "Detach"}, op.Name)
		switch {
		case none[op.Name] != "":
			assert.True(t, op.Grad == nil && op.Expand == nil, "%s has a gradient", op.Name)
		case discrete:
			assert.Nil(t, op.Grad, op.Name)
		default:
			assert.True(t, op.Grad != nil || op.Expand != nil, "%s has no gradient", op.Name)
			assert.True(t, straight || len(tested[op.Name]) > 0, "the gradient of %s is not tested", op.Name)
		}
	}
}

// TestGradientsThatAreOneOpAgreeWithTheParts: the rules of norms and Softmax, in float64, give what the rules of the
// ops give that they stand for.
func TestGradientsThatAreOneOpAgreeWithTheParts(t *testing.T) {
	cases := gradCases(rand.New(rand.NewSource(3)))
	for _, op := range []string{"Softmax", "LayerNorm", "RMSNorm"} {
		for _, c := range append(cases[op], gradCase{attrs: Attrs{"axis": 1}, in: []*Array{f64([]int{2, 1}, 3, -1)}}) {
			_, one, _ := c.build(t, op)
			require.True(t, slices.ContainsFunc(one.Nodes, func(n *Node) bool { return n.Op.Name == op+"Grad" }))

			parts := NewGraph("parts")
			var in []*Value
			for i, a := range c.in {
				in = append(in, parts.AddInput(fmt.Sprintf("x%d", i), a.Type))
			}
			n, err := parts.NewNode(op, "n", c.attrs, in...)
			require.NoError(t, err)
			var ys []*Value
			parts.Nodes, ys, err = n.Expand(parts)
			require.NoError(t, err)
			dy := parts.AddInput("c0", ys[0].Type)
			parts.Outputs, err = parts.Gradients(ys, []*Value{dy}, in)
			require.NoError(t, err)

			given := c.given()
			given["c0"] = random(rand.New(rand.NewSource(4)), dy.Type.Shape...)
			got, err := EvaluateList(context.Background(), one, ordered(one, given), EvalOptions{})
			require.NoError(t, err)
			want, err := EvaluateList(context.Background(), parts, ordered(parts, given), EvalOptions{})
			require.NoError(t, err)
			for i := range want {
				assert.InDeltaSlice(t, want[i].F, got[i].F, 1e-12, "%s %v input %d", op, c.attrs, i)
			}
		}
	}
}

// TestQuantisationIsPassedStraight: the gradient of codes that are not clipped is that of the identity.
func TestQuantisationIsPassedStraight(t *testing.T) {
	x := f64([]int{2, 4}, -40, -1, 0.26, 1, 0.9, 31.7, 40, 12)
	for _, text := range []string{
		`graph "g" {
  input %x: f64[2,4]
  input %s: f64[2]
  input %z: i8[2]
  %q: i8[2,4] = QuantizeLinear(%x, %s, %z) {axis=0, to=i8}
  %r: i8[4,2] = Transpose(%q) {perm=[1,0]}
  %y: f64[4,2] = DequantizeLinear(%r, %s, %z) {axis=1, to=f64}
  output %y
}`,
	} {
		g, err := Parse(text)
		require.NoError(t, err)
		dy := g.AddInput("dy", T(Float64, 4, 2))
		g.Outputs, err = g.Gradients(g.Outputs, []*Value{dy}, g.Inputs[:1])
		require.NoError(t, err)
		require.NoError(t, g.Verify())
		out, err := EvaluateList(context.Background(), g, []*Array{x, f64([]int{2}, 0.25, 0.25), ints64(Int8, 0, 10), f64([]int{4, 2}, 1, 5, 2, 6, 3, 7, 4, 8)}, EvalOptions{})
		require.NoError(t, err)
		assert.Equal(t, []float64{0, 2, 3, 4, 5, 0, 0, 8}, out[0].F) // codes -160, 127+10 and 170 are clipped
	}
	fake := `graph "g" {
  input %x: f32[3]
  %y: f32[3] = FakeQuantize(%x) {codes=CODES, scale=0.5, to=TO, zero=ZERO}
  output %y
}`
	for _, c := range []struct {
		codes, to, zero string
		want            []float64
	}{{"false", "u8", "3.0", []float64{0, 1, 1}}, {"true", "u8", "3.0", []float64{0, 2, 2}}, {"false", "e4m3", "0.0", []float64{1, 1, 0}}} {
		g, err := Parse(strings.NewReplacer("CODES", c.codes, "TO", c.to, "ZERO", c.zero).Replace(fake))
		require.NoError(t, err)
		g.Outputs, err = g.Gradients(g.Outputs, []*Value{g.Constant("dy", Splat(T(Float32, 3), 1))}, g.Inputs)
		require.NoError(t, err)
		out, err := EvaluateList(context.Background(), g, []*Array{{Type: T(Float32, 3), F: []float64{-2, 126, 230}}}, EvalOptions{})
		require.NoError(t, err)
		if c.to != "e4m3" { // 230·2+3 is beyond 255
			c.want[2] = 0
		}
		assert.Equal(t, c.want, out[0].F, "%+v", c)
	}
}

// TestGradientsOfAGraph: fan-out is summed, what does not reach the loss is left out, constants may be variables.
func TestGradientsOfAGraph(t *testing.T) {
	g, err := Parse(`graph "g" {
  input %x: f32[2]
  input %unused: f32[3]
  %a: f32[2] = Mul(%x, %x)
  %b: f32[2] = Add(%a, %x)
  %i: i64[] = ArgMax(%b) {axis=0}
  %p: f32[2] = Mul(%a, %b)
  %loss: f32[] = ReduceSum(%p) {axes=[0]}
  %other: f32[2] = Exp(%b)
  output %loss
  output %i
  output %other
}`)
	require.NoError(t, err)
	before := len(g.Nodes)
	grads, err := g.Gradients(g.Outputs[:1], []*Value{nil}, g.Inputs)
	require.NoError(t, err)
	assert.Greater(t, len(g.Nodes), before)
	g.Outputs = grads
	require.NoError(t, g.Verify())
	out, err := EvaluateList(context.Background(), g, []*Array{{Type: T(Float32, 2), F: []float64{2, -3}}, NewArray(T(Float32, 3))}, EvalOptions{})
	require.NoError(t, err)
	assert.Equal(t, []float64{4*8 + 3*4, 4*-27 + 3*9}, out[0].F) // of x⁴ + x³
	assert.Equal(t, []float64{0, 0, 0}, out[1].F)
	again, err := Parse(g.String())
	require.NoError(t, err)
	assert.Empty(t, g.Diff(again))
}

func TestGradientsThatThereAreNot(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"%y: f32[1,1,2,2] = RoiAlign(%x, %boxes, %b) {mode=\"max\", sampling_ratio=1, height=2, width=2}", `gradient of node "y" (RoiAlign): mode "max" has no gradient, only avg has`},
		{"%r: f32[1,4] = Reshape(%x) {shape=[1,4]}\n  %y: f32[1,1,2,2] = RoiAlign(%image, %r, %b) {sampling_ratio=1, height=2, width=2}", `(RoiAlign): the corners of regions have no gradient, only x has`},
		{"%y: f32[1,1,2,2] = BitCast(%x) {to=f32}", `(BitCast): the op has no gradient`},
		{"%y: f32[1,1,2,2] = ScatterElements(%x, %i, %x) {reduction=\"mul\"}", `(ScatterElements): reduction "mul" has no gradient`},
	} {
		g, err := Parse("graph \"g\" {\n  input %x: f32[1,1,2,2]\n  input %grid: f32[1,2,2,2]\n  input %i: i64[1,1,2,2]\n  input %boxes: f32[1,4]\n  input %image: f32[1,1,3,3]\n  input %b: i64[1]\n  " + c.body + "\n  output %y\n}")
		require.NoError(t, err)
		nodes := len(g.Nodes)
		g.Nodes[nodes-1].Name = "y"
		_, err = g.Gradients(g.Outputs, []*Value{g.Constant("dy", Splat(T(Float32, 1, 1, 2, 2), 1))}, g.Inputs[:1])
		assert.ErrorContains(t, err, c.want)
		assert.Len(t, g.Nodes, nodes, "nothing half-built")
		_, err = g.Gradients(g.Outputs, []*Value{nil}, g.Inputs[:1])
		assert.ErrorContains(t, err, "a loss is one number")
	}
}
