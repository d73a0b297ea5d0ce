package ir

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/blas"
)

// run evaluates a graph given as text on inputs in order.
func run(t testing.TB, text string, opt EvalOptions, in ...*Array) []*Array {
	t.Helper()
	g, err := Parse(text)
	require.NoError(t, err)
	out, err := EvaluateList(context.Background(), g, in, opt)
	require.NoError(t, err)
	return out
}

// apply makes a graph of one node and evaluates it.
func apply(t testing.TB, op string, attrs Attrs, in ...*Array) []*Array {
	t.Helper()
	g := NewGraph("g")
	vs := make([]*Value, len(in))
	var given []*Array
	for i, a := range in {
		if a != nil {
			vs[i] = g.AddInput(fmt.Sprintf("x%d", i), a.Type)
			given = append(given, a)
		}
	}
	n, err := g.Add(op, "n", attrs, vs...)
	require.NoError(t, err)
	g.Outputs = n.Outputs
	require.NoError(t, g.Verify())
	out, err := EvaluateList(context.Background(), g, given, EvalOptions{})
	require.NoError(t, err)
	return out
}

func f64(shape []int, xs ...float64) *Array { return &Array{Type: T(Float64, shape...), F: xs} }

func ints64(d DType, xs ...int64) *Array { return &Array{Type: T(d, len(xs)), I: xs} }

func random(rng *rand.Rand, shape ...int) *Array {
	a := NewArray(T(Float64, shape...))
	for i := range a.F {
		a.F[i] = rng.NormFloat64()
	}
	return a
}

func TestOpsOnSmallInputs(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	v := func(xs ...float64) *Array { return f64([]int{len(xs)}, xs...) }
	i8 := func(xs ...int64) *Array { return ints64(Int8, xs...) }
	one := []int{1}
	window := func(extra Attrs) Attrs {
		a := Attrs{"kernel": []int{3}, "strides": []int{2}, "pads": []int{1, 1}, "dilations": one}
		for k, x := range extra {
			a[k] = x
		}
		return a
	}
	for _, c := range []struct {
		name  string
		op    string
		attrs Attrs
		in    []*Array
		want  []float64
	}{
		{"rows and columns broadcast", "Add", nil, []*Array{f64([]int{2, 1}, 1, 2), v(10, 20)}, []float64{11, 21, 12, 22}},
		{"integers wrap", "Add", nil, []*Array{i8(127), i8(1)}, []float64{-128}},
		{"unsigned integers wrap", "Sub", nil, []*Array{ints64(Uint8, 1), ints64(Uint8, 2)}, []float64{255}},
		{"uint64 compares as unsigned", "Less", nil, []*Array{ints64(Uint64, 1), ints64(Uint64, -1)}, []float64{1}},
		{"division truncates, by zero is 0", "Div", nil, []*Array{i8(-7, 7, 5), i8(2, -2, 0)}, []float64{-3, -3, 0}},
		{"remainder has the divisor's sign", "Mod", nil, []*Array{i8(-7, 7), i8(3, -3)}, []float64{2, -2}},
		{"fmod has the dividend's", "Mod", Attrs{"fmod": true}, []*Array{v(-7, 7.5), v(3, -2)}, []float64{-1, 1.5}},
		{"integer power", "Pow", nil, []*Array{ints64(Int64, 3, -1, 2), ints64(Int64, 39, -3, -1)}, []float64{4052555153018976267, -1, 0}},
		{"NaN wins", "Max", nil, []*Array{v(nan, 1), v(1, nan)}, []float64{nan, nan}},
		{"relu keeps NaN", "Relu", nil, []*Array{v(-1, nan, 2)}, []float64{0, nan, 2}},
		{"ties round to even", "Round", nil, []*Array{v(0.5, 1.5, 2.5, -0.5)}, []float64{0, 2, 2, 0}},
		{"shift by the width is 0", "ShiftLeft", nil, []*Array{ints64(Uint8, 1, 255), ints64(Uint8, 8, 1)}, []float64{0, 254}},
		{"gelu with the file's root", "Gelu", Attrs{"sqrt2": 1.4140625}, []*Array{v(1)}, []float64{0.5 * (1 + math.Erf(1/1.4140625))}},
		{"where", "Where", nil, []*Array{ints64(Bool, 1, 0), v(1, 2), v(3, 4)}, []float64{1, 4}},
		{"float to narrow int keeps the low bits", "Cast", Attrs{"to": Uint8}, []*Array{v(-1, 3.9, 300)}, []float64{255, 3, 44}},
		{"and so does float to u32", "Cast", Attrs{"to": Uint32}, []*Array{v(-1, 2.5, 1<<32+7)}, []float64{1<<32 - 1, 2, 7}},
		{"float to e4m3 saturates", "Cast", Attrs{"to": Float8E4M3FN}, []*Array{v(1e6, -inf, 1.06)}, []float64{448, -448, 1}},
		{"or not", "Cast", Attrs{"to": Float8E4M3FN, "saturate": false}, []*Array{v(1e6)}, []float64{nan}},
		{"bits of f64", "BitCast", Attrs{"to": Int64}, []*Array{v(1)}, []float64{0x3FF0000000000000}},
		{"slice backwards", "Slice", Attrs{"starts": []int{3}, "sizes": []int{2}, "steps": []int{-2}}, []*Array{v(0, 1, 2, 3)}, []float64{3, 1}},
		{"reflect beyond the period", "Pad", Attrs{"begin": []int{3}, "end": []int{3}, "mode": "reflect"}, []*Array{v(1, 2, 3)}, []float64{2, 3, 2, 1, 2, 3, 2, 1, 2}},
		{"pad with a value and crop", "Pad", Attrs{"begin": []int{1}, "end": []int{-1}, "value": 9.0}, []*Array{v(1, 2, 3)}, []float64{9, 1, 2}},
		{"wrap", "Pad", Attrs{"begin": []int{1}, "end": []int{2}, "mode": "wrap"}, []*Array{v(1, 2, 3)}, []float64{3, 1, 2, 3, 1, 2}},
		{"negative indices", "Gather", nil, []*Array{v(1, 2, 3), ints64(Int64, -1, 0)}, []float64{3, 1}},
		{"the last of equal indices wins", "ScatterElements", nil, []*Array{v(1, 2), ints64(Int64, 0, 0), v(7, 8)}, []float64{8, 2}},
		{"scatter adds", "ScatterElements", Attrs{"reduction": "add"}, []*Array{v(1, 2), ints64(Int64, 0, 0), v(7, 8)}, []float64{16, 2}},
		{"lower triangle", "Trilu", Attrs{"upper": false}, []*Array{f64([]int{2, 2}, 1, 2, 3, 4)}, []float64{1, 0, 3, 4}},
		{"one hot, outside is off", "OneHot", Attrs{"depth": 2, "axis": 1}, []*Array{ints64(Int64, -1, 5), v(0, 1)}, []float64{0, 1, 0, 0}},
		{"mean of integers truncates", "ReduceMean", Attrs{"axes": []int{0}}, []*Array{i8(-1, -2)}, []float64{-1}},
		{"maximum of nothing", "ReduceMax", Attrs{"axes": []int{0}}, []*Array{v()}, []float64{-inf}},
		{"first of equals", "ArgMax", nil, []*Array{v(1, 3, 3)}, []float64{1}},
		{"last of equals", "ArgMax", Attrs{"last": true}, []*Array{v(1, 3, 3)}, []float64{2}},
		{"exclusive reverse sums", "CumSum", Attrs{"axis": 0, "exclusive": true, "reverse": true}, []*Array{v(1, 2, 3)}, []float64{5, 3, 0}},
		{"softmax does not overflow", "Softmax", Attrs{"axis": 0}, []*Array{v(1000, 1000)}, []float64{0.5, 0.5}},
		{"max pool, padding never wins", "MaxPool", window(nil), []*Array{f64([]int{1, 1, 4}, -1, -2, -3, -4)}, []float64{-1, -2}},
		{"ceil adds a window that starts inside", "MaxPool", window(Attrs{"ceil": true}), []*Array{f64([]int{1, 1, 5}, 1, 2, 3, 4, 5)}, []float64{2, 4, 5}},
		{"ceil adds none that starts in the padding", "MaxPool",
			Attrs{"kernel": one, "strides": []int{3}, "pads": []int{0, 1}, "dilations": one, "ceil": true},
			[]*Array{f64([]int{1, 1, 3}, 1, 2, 3)}, []float64{1}},
		{"average without padding", "AveragePool", window(nil), []*Array{f64([]int{1, 1, 4}, 3, 3, 3, 3)}, []float64{3, 3}},
		{"average with padding", "AveragePool", window(Attrs{"include_pad": true}), []*Array{f64([]int{1, 1, 4}, 3, 3, 3, 3)}, []float64{2, 3}},
		{"segments", "SegmentedMatVec", nil, []*Array{v(1, 2, 3), f64([]int{2, 2}, 1, 1, 5, 9), v(10, 20), ints64(Int32, 1, 0), ints64(Int32, 2, 1)}, []float64{15, 25}},
		{"quantise rounds half to even", "QuantizeLinear", Attrs{"to": Uint8}, []*Array{v(1, 3, -9, 1e9), v(2), ints64(Uint8, 10)}, []float64{10, 12, 6, 255}},
		{"dequantise blocks", "DequantizeLinear", Attrs{"to": Float64, "axis": 0, "block": 2}, []*Array{i8(1, 2, 3), v(10, 100)}, []float64{10, 20, 300}},
		{"resize linearly", "Resize", Attrs{"sizes": []int{4}, "scales": []float64{2}, "mode": "linear"}, []*Array{v(1, 3)}, []float64{1, 1.5, 2.5, 3}},
		{"einsum of a diagonal", "Einsum", Attrs{"equation": "ii->i"}, []*Array{f64([]int{2, 2}, 1, 2, 3, 4)}, []float64{1, 4}},
		{"lengths reverse only their part", "ReverseSequence", Attrs{"batch_axis": 0, "time_axis": 1}, []*Array{f64([]int{1, 3}, 1, 2, 3), ints64(Int64, 2)}, []float64{2, 1, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := apply(t, c.op, c.attrs, c.in...)[0].Floats()
			require.Len(t, got, len(c.want))
			for i := range got {
				if math.IsNaN(c.want[i]) != math.IsNaN(got[i]) || math.Abs(got[i]-c.want[i]) > 1e-15*math.Abs(c.want[i]) {
					t.Fatalf("%v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestTopKPutsEqualsInOrder(t *testing.T) {
	out := apply(t, "TopK", Attrs{"k": 3, "axis": 0}, f64([]int{5, 1}, 1, 4, 4, 0, 9))
	assert.Equal(t, []float64{9, 4, 4}, out[0].F)
	assert.Equal(t, []int64{4, 1, 2}, out[1].I)
}

// naiveConv is the definition of a grouped 2-d convolution, index by index.
func naiveConv(x, w, y *Array, stride, pad, dil, group int) {
	c, h, wd := x.Shape[1], x.Shape[2], x.Shape[3]
	per := w.Shape[0] / group
	for i := range y.F {
		ox, oy := i%y.Shape[3], i/y.Shape[3]%y.Shape[2]
		o, b := i/y.Shape[3]/y.Shape[2]%y.Shape[1], i/y.Shape[3]/y.Shape[2]/y.Shape[1]
		s := 0.0
		for k := range len(w.F) / w.Shape[0] {
			kx, ky, ch := k%w.Shape[3], k/w.Shape[3]%w.Shape[2], k/w.Shape[3]/w.Shape[2]
			iy, ix := oy*stride-pad+ky*dil, ox*stride-pad+kx*dil
			if iy >= 0 && iy < h && ix >= 0 && ix < wd {
				s += float64(x.F[((b*c+o/per*(c/group)+ch)*h+iy)*wd+ix] * w.F[o*len(w.F)/w.Shape[0]+k])
			}
		}
		y.F[i] = s
	}
}

func TestConvolutionIsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	for _, c := range []struct{ in, out, size, kernel, stride, pad, dil, group int }{
		{3, 8, 9, 3, 2, 1, 1, 1}, {8, 8, 7, 3, 1, 1, 1, 8}, {6, 9, 8, 2, 1, 0, 3, 3}, {5, 7, 6, 1, 1, 0, 1, 1}, {64, 5, 12, 5, 1, 2, 1, 1},
	} {
		x, w := random(rng, 2, c.in, c.size, c.size+1), random(rng, c.out, c.in/c.group, c.kernel, c.kernel)
		two := func(v int) []int { return []int{v, v} }
		attrs := Attrs{"strides": two(c.stride), "dilations": two(c.dil), "pads": []int{c.pad, c.pad, c.pad, c.pad}, "group": c.group}
		got := apply(t, "Conv", attrs, x, w)[0]
		want := NewArray(got.Type)
		naiveConv(x, w, want, c.stride, c.pad, c.dil, c.group)
		assert.InDeltaSlice(t, want.F, got.F, 1e-12, "%+v", c)

		// The same in NHWC.
		nhwc := apply(t, "Transpose", Attrs{"perm": []int{0, 2, 3, 1}}, x)[0]
		attrs["layout"] = "NHWC"
		y := apply(t, "Conv", attrs, nhwc, w)[0]
		back := apply(t, "Transpose", Attrs{"perm": []int{0, 3, 1, 2}}, y)[0]
		assert.Equal(t, got.F, back.F)

		// And on integers.
		xi, wi := NewArray(T(Int32, x.Shape...)), NewArray(T(Int32, w.Shape...))
		for i, v := range x.F {
			xi.I[i] = int64(v * 100)
			x.F[i] = float64(xi.I[i])
		}
		for i, v := range w.F {
			wi.I[i] = int64(v * 100)
			w.F[i] = float64(wi.I[i])
		}
		delete(attrs, "layout")
		assert.Equal(t, apply(t, "Conv", attrs, x, w)[0].F, apply(t, "Conv", attrs, xi, wi)[0].Floats())
	}
}

// A transposed convolution is the adjoint of the convolution: <conv(x), y> = <x, convᵀ(y)>.
func TestConvTransposeIsTheAdjoint(t *testing.T) {
	rng := rand.New(rand.NewSource(8))
	attrs := Attrs{"strides": []int{2, 1}, "dilations": []int{1, 2}, "pads": []int{1, 0, 1, 2}, "group": 2}
	x, w := random(rng, 1, 4, 9, 9), random(rng, 6, 2, 3, 2)
	y := apply(t, "Conv", attrs, x, w)[0]
	z := random(rng, y.Shape...)
	back := attrs.Clone()
	back["output_padding"] = []int{0, 0}
	xt := apply(t, "ConvTranspose", back, z, w)[0]
	require.Equal(t, x.Shape, xt.Shape)
	assert.InDelta(t, blas.Dot(y.F, z.F), blas.Dot(x.F, xt.F), 1e-10)
}

// sumOverLetters is an Einsum by its definition: every product over all letters, added at the output's.
func sumOverLetters(eq string, in ...*Array) *Array {
	left, out, _ := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	letters, shape := "", []int{}
	for i, term := range terms {
		for j := range len(term) {
			at := strings.IndexByte(letters, term[j])
			if at < 0 {
				at, letters, shape = len(letters), letters+term[j:j+1], append(shape, 1)
			}
			shape[at] = max(shape[at], in[i].Shape[j])
		}
	}
	index := make([]int, len(letters))
	position := func(term string, shape []int) int {
		at := 0
		for j := range len(term) {
			at = at*shape[j] + index[strings.IndexByte(letters, term[j])]%shape[j]
		}
		return at
	}
	outShape := []int{}
	for j := range len(out) {
		outShape = append(outShape, shape[strings.IndexByte(letters, out[j])])
	}
	y := NewArray(T(Float64, outShape...))
	for p := range T(Bool, shape...).Numel() {
		for i := len(shape) - 1; i >= 0; i-- {
			index[i], p = p%shape[i], p/shape[i]
		}
		v := 1.0
		for i, term := range terms {
			v *= in[i].F[position(term, in[i].Shape)]
		}
		y.F[position(out, outShape)] += v
	}
	return y
}

func TestEinsumSumsOverLetters(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for _, c := range []struct {
		eq     string
		shapes [][]int
	}{
		{"abc->ca", [][]int{{2, 3, 4}}},
		{"ii->", [][]int{{3, 3}}},
		{"iji->j", [][]int{{3, 2, 3}}},
		{"aibia->ab", [][]int{{2, 3, 4, 3, 2}}},
		{"iii->i", [][]int{{3, 3, 3}}},
		{"ab,cd->ca", [][]int{{2, 3}, {4, 5}}},
		{"ab,ab->ab", [][]int{{2, 3}, {2, 3}}},
		{"ab,bc->ac", [][]int{{2, 1}, {3, 4}}},
		{"aab,bc->ac", [][]int{{2, 2, 1}, {3, 4}}},
		{"ab,bc,cd->ad", [][]int{{2, 3}, {3, 4}, {4, 5}}},
		{"ab,ac,ad->dbc", [][]int{{2, 3}, {2, 4}, {2, 5}}},
		{"a,b,ab,abc->c", [][]int{{2}, {3}, {2, 3}, {2, 3, 4}}},
	} {
		var in []*Array
		for _, s := range c.shapes {
			in = append(in, random(rng, s...))
		}
		want, got := sumOverLetters(c.eq, in...), apply(t, "Einsum", Attrs{"equation": c.eq}, in...)[0]
		assert.Equal(t, want.Shape, got.Shape, c.eq)
		assert.InDeltaSlice(t, want.F, got.F, 1e-12, c.eq)
	}
}

func TestMatMulOfTransposesIsEinsum(t *testing.T) {
	rng := rand.New(rand.NewSource(9))
	for _, c := range []struct {
		a, b   []int
		ta, tb bool
		eq     string
	}{
		{[]int{5, 7}, []int{7, 3}, false, false, "ik,kj->ij"},
		{[]int{7, 5}, []int{3, 7}, true, true, "ki,jk->ij"},
		{[]int{2, 1, 5, 7}, []int{4, 7, 3}, false, false, "bzik,ckj->bcij"},
		{[]int{7}, []int{2, 7, 3}, false, false, "k,bkj->bj"},
		{[]int{2, 5, 7}, []int{7}, false, false, "bik,k->bi"},
		{[]int{1, 300}, []int{9, 300}, false, true, "ik,jk->ij"},
		{[]int{70, 33}, []int{33, 6}, false, false, "ik,kj->ij"},
	} {
		a, b := random(rng, c.a...), random(rng, c.b...)
		got := apply(t, "MatMul", Attrs{"transA": c.ta, "transB": c.tb}, a, b)[0]
		want := sumOverLetters(c.eq, a, b)
		assert.Equal(t, want.Shape, got.Shape)
		assert.InDeltaSlice(t, want.F, got.F, 1e-12, c.eq)
	}
}

func TestRoundingHappensAtNodesAndRegionOutputs(t *testing.T) {
	const text = `graph "g" {
  input %x: f16[1]
  const %c: f16[1] = [0.000488]
  %s: f16[1] = Add(%x, %c)
  %d: f16[1] = Sub(%s, %x)
  %r: f16[1] = Region(%x, %c) {family="loop"} "r" graph "body" {
    input %a: f16[1]
    input %b: f16[1]
    %p: f16[1] = Add(%a, %b)
    %q: f16[1] = Sub(%p, %a)
    output %q
  }
  %k: f16[1] = Region(%x, %c) {family="loop"} "k" graph "body" {
    input %a: f16[1]
    input %b: f16[1]
    %p: f16[1] = Add(%a, %b)
    %pc: f16[1] = Cast(%p) {to=f16}
    %q: f16[1] = Sub(%pc, %a)
    output %q
  }
  output %d, %r, %k
}`
	x := &Array{Type: T(Float16, 1), F: []float64{1}}
	tiny := RoundTo(Float16, 0.000488) // just below half a unit of 1 in f16
	require.Less(t, tiny, 0x1p-11)
	out := run(t, text, EvalOptions{}, x)
	assert.InDelta(t, tiny, out[0].F[0], 1e-15)
	out = run(t, text, EvalOptions{Round: true}, x)
	assert.Equal(t, 0.0, out[0].F[0], "the sum was rounded before the difference")
	assert.Equal(t, tiny, out[1].F[0], "within a region it was not")
	assert.Equal(t, 0.0, out[2].F[0], "but where it casts")
	assert.Equal(t, []float64{1}, x.F, "inputs are not modified")
}

func TestMembersOfARegion(t *testing.T) {
	const text = `graph "g" {
  input %x: f64[2]
  const %w: f64[3,2] = [1, 2, 3, 4, 5, 6]
  %r: f64[3,2], %s: f64[3,2] = Region(%x, %w) {family="loop", members=3} graph "" {
    input %a: f64[2]
    input %b: f64[2]
    operand 1: f64 stacked
    %p: f64[2] = Mul(%a, %b)
    %q: f64[2] = Neg(%p)
    output %p, %q
  }
  output %r, %s
}`
	out := run(t, text, EvalOptions{}, f64([]int{2}, 10, 100))
	assert.Equal(t, []float64{10, 200, 30, 400, 50, 600}, out[0].F)
	assert.Equal(t, []float64{-10, -200, -30, -400, -50, -600}, out[1].F)
}

func TestEvaluateSaysWhatIsWrong(t *testing.T) {
	g, err := Parse("graph \"g\" {\n input %x: f64[2]\n input %i: i64[1]\n %y: f64[1] = Gather(%x, %i) {axis=0} \"pick\"\n output %y\n}")
	require.NoError(t, err)
	ctx := context.Background()
	x := f64([]int{2}, 1, 2)
	_, err = Evaluate(ctx, g, map[string]*Array{"x": x}, EvalOptions{})
	assert.EqualError(t, err, "input %i (i64[1]) is missing")
	_, err = Evaluate(ctx, g, map[string]*Array{"x": x, "i": ints64(Int32, 0)}, EvalOptions{})
	assert.EqualError(t, err, "input %i is i32[1], want i64[1]")
	_, err = Evaluate(ctx, g, map[string]*Array{"x": x, "i": ints64(Int64, 2)}, EvalOptions{})
	assert.EqualError(t, err, `node "pick" (Gather): index 2 is outside a dimension of 2`)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Evaluate(canceled, g, map[string]*Array{"x": x, "i": ints64(Int64, 0)}, EvalOptions{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestObserveSeesEveryValueOnce(t *testing.T) {
	var seen []string
	run(t, "graph \"g\" {\n input %x: f64[1]\n %y: f64[1] = Exp(%x)\n %z: f64[1] = Add(%y, %y)\n output %z\n}",
		EvalOptions{Observe: func(v *Value, a *Array) { seen = append(seen, v.Name) }}, f64([]int{1}, 0))
	assert.Equal(t, "x y z", strings.Join(seen, " "))
}

func TestEveryOpHasARuleAndAMeaning(t *testing.T) {
	for _, op := range Ops() {
		assert.NotNil(t, op.Infer, op.Name)
		assert.NotEmpty(t, op.Summary, op.Name)
		meanings := 0
		for _, has := range []bool{op.Eval != nil, op.Expand != nil, op.Scalar != nil || op.ScalarInt != nil, op.Kind == KindRegion} {
			if has {
				meanings++
			}
		}
		assert.Equal(t, 1, meanings, "meanings of %s", op.Name)
	}
}

func BenchmarkConv3x3(b *testing.B) {
	rng := rand.New(rand.NewSource(1))
	x, w := random(rng, 1, 64, 32, 64), random(rng, 64, 64, 3, 3)
	attrs := Attrs{"strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{1, 1, 1, 1}}
	for b.Loop() {
		apply(b, "Conv", attrs, x, w)
	}
	b.ReportMetric(float64(b.N)*64*64*9*32*64/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
