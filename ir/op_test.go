package ir

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conv is a Conv of 3×3 taps on an NHWC image.
func conv(t *testing.T, in, out, group int) *Node {
	t.Helper()
	g := NewGraph("conv")
	n, err := g.Add("Conv", "conv", Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": group, "layout": "NHWC"},
		g.AddInput("x", T(Float32, 1, 5, 7, in)), g.AddInput("w", T(Float32, out, in/group, 3, 3)))
	require.NoError(t, err)
	return n
}

func TestDepthwiseIsOneOfSeveralInputChannelsAGroup(t *testing.T) {
	for _, c := range []struct {
		in, out, group int
		want           bool
	}{
		{1, 1, 1, false}, {1, 8, 1, false}, {8, 1, 1, false}, {8, 8, 1, false},
		{8, 8, 2, false}, {8, 4, 4, false}, {8, 2, 2, false},
		{8, 8, 8, true}, {8, 16, 8, true}, {2, 2, 2, true},
	} {
		assert.Equal(t, c.want, conv(t, c.in, c.out, c.group).Depthwise(), "%+v", c)
	}
}

// TestInputsAreDeclaredWithTypesThatThereAre: a class, or an input before it.
func TestInputsAreDeclaredWithTypesThatThereAre(t *testing.T) {
	for _, op := range Ops() {
		var before []string
		for _, p := range op.Inputs {
			_, class := classes[p.Type]
			assert.True(t, p.Type == "" || class || slices.Contains(before, p.Type), "%s: input %s is %q", op.Name, p.Name, p.Type)
			before = append(before, p.Name)
		}
	}
}

// samples are operands of a pointwise op: all pairs of some numbers, for each element type that the op takes.
func samples(t *testing.T, op *Op) (n *Node, in []*Array, ok bool) {
	t.Helper()
	for _, d := range []DType{Float16, Int32, Bool} {
		g := NewGraph("g")
		values := []float64{-3, -2.5, -1, 0, 0.1, 1, 2, 2.5, 7}
		if d == Bool {
			values = []float64{0, 1}
		}
		inputs := make([]*Value, len(op.Inputs))
		in = make([]*Array, len(op.Inputs))
		for k := range op.Inputs {
			typ := T(d, len(values)*len(values))
			if op.Name == "Where" && k == 0 {
				typ.DType = Bool
			}
			inputs[k] = g.AddInput("x", typ)
			in[k] = NewArray(typ)
			for i := range in[k].Numel() {
				x := values[i%len(values)]
				if k == 1 {
					x = values[i/len(values)]
				}
				if typ.DType == Float16 {
					in[k].F[i] = RoundTo(Float16, x)
				} else {
					in[k].I[i] = WrapInt(typ.DType, int64(x))
				}
			}
		}
		attrs := Attrs{}
		if op.HasAttr("to") {
			attrs["to"] = d
		}
		if n, err := g.Add(op.Name, op.Name, attrs, inputs...); err == nil {
			return n, in, true
		}
	}
	return nil, nil, false
}

func TestCommutativeRowsAreThoseWhoseOperandsMayBeSwapped(t *testing.T) {
	for _, op := range Ops() {
		if !op.Pointwise() || len(op.Inputs) != 2 {
			assert.False(t, op.Commutative, op.Name)
			continue
		}
		n, in, ok := samples(t, op)
		require.True(t, ok, op.Name)
		there, err := EvaluateNode(n, in)
		require.NoError(t, err)
		back, err := EvaluateNode(n, []*Array{in[1], in[0]})
		require.NoError(t, err)
		assert.Equal(t, op.Commutative, assert.ObjectsAreEqual(there[0].Tensor().Data, back[0].Tensor().Data), op.Name)
	}
}

func TestExactRowsNeedNoRounding(t *testing.T) {
	for _, op := range Ops() {
		if n, in, ok := samples(t, op); ok && op.Pointwise() && n.Outputs[0].Type.DType == Float16 {
			out, err := EvaluateNode(n, in)
			require.NoError(t, err)
			exact := assert.ObjectsAreEqual(fmtFloats(out[0]), fmtFloats(out[0].Rounded()))
			assert.True(t, exact || !op.Exact, op.Name)
		}
	}
}

func fmtFloats(a *Array) string { return fmt.Sprint(a.F) } // NaN is itself

// TestElementsOfAMovementAreOfItsSources: with distinct elements and another fill, each of the output's is among them.
func TestElementsOfAMovementAreOfItsSources(t *testing.T) {
	attrs := map[string]Attrs{
		"Reshape": {"shape": []int{3, 2}}, "Transpose": {"perm": []int{1, 0}}, "Expand": {"shape": []int{4, 2, 3}},
		"Slice": {"starts": []int{1, 2}, "sizes": []int{1, 2}, "steps": []int{1, -1}}, "Concat": {"axis": 1},
		"Pad": {"begin": []int{1, 0}, "end": []int{0, 2}, "value": 99.0}, "Tile": {"repeats": []int{2, 1}}, "Gather": {"axis": 1},
		"Trilu": {"k": 1}, "OneHot": {"depth": 4, "axis": 0},
		"Resize": {"sizes": []int{4, 3}, "scales": []float64{2, 1}, "coordinate": "tf_crop_and_resize", "roi": []float64{-.5, 0, 2, 1}, "extrapolation": 99.0},
	}
	for _, op := range Ops() {
		with, cased := attrs[op.Name]
		if op.Kind != KindMovement || !cased {
			require.True(t, op.Kind != KindMovement || op.Role != nil, "%s is light and has no case", op.Name)
			continue
		}
		g := NewGraph("g")
		var in []*Array
		var inputs []*Value
		for i, p := range op.Inputs {
			typ := T(Float32, 2, 3)
			if p.Type == "index" {
				typ = T(Int64, 2)
			} else if p.Name == "values" {
				typ = T(Float32, 2)
			}
			a := NewArray(typ)
			for k := range a.Len() {
				a.set(k, float64(10*i+k+1))
				if p.Type == "index" {
					a.set(k, float64(k))
				}
			}
			inputs, in = append(inputs, g.AddInput(p.Name, typ)), append(in, a)
		}
		n, err := g.Add(op.Name, op.Name, with, inputs...)
		require.NoError(t, err, op.Name)
		from, fill, ok := n.Sources()
		require.True(t, ok, op.Name)
		some := []float64{fill}
		for i, v := range inputs {
			if slices.Contains(from, v) {
				some = append(some, in[i].Floats()...)
			}
		}
		out, err := EvaluateNode(n, in)
		require.NoError(t, err, op.Name)
		require.Subset(t, some, out[0].Floats(), op.Name)
	}
}

func TestMACsAreThoseOfTheSums(t *testing.T) {
	f := func(shape ...int) Type { return T(Float32, shape...) }
	window := Attrs{"strides": []int{2}, "pads": []int{1, 1}, "dilations": []int{1}, "group": 2}
	transposed := Attrs{"strides": []int{2}, "pads": []int{0, 0}, "dilations": []int{1}, "output_padding": []int{0}}
	for _, c := range []struct {
		op    string
		attrs Attrs
		in    []Type
		want  int64
	}{
		{"MatMul", nil, []Type{f(3, 4, 5), f(5, 6)}, 3 * 4 * 5 * 6},
		{"MatMul", Attrs{"transA": true}, []Type{f(5, 4), f(5, 6)}, 4 * 5 * 6},
		{"MatMulSum", nil, []Type{f(2, 3, 5), f(5, 6), f(2, 3, 4), f(4, 6)}, 2 * 3 * 6 * (5 + 4)},
		{"Conv", window, []Type{f(1, 4, 8), f(6, 2, 3)}, 6 * 4 * 2 * 3},
		{"ConvTranspose", transposed, []Type{f(1, 4, 8), f(4, 5, 3)}, 4 * 8 * 5 * 3},
		{"Attention", Attrs{"scale": 1.0}, []Type{f(1, 2, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 6)}, 2*3*5*4 + 2*3*5*6},
		{"AttentionGrad", Attrs{"scale": 1.0}, []Type{f(1, 2, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 6), f(1, 2, 3, 6)}, 3*2*3*5*4 + 2*2*3*5*6},
		{"Einsum", Attrs{"equation": "ab,bc->ac"}, []Type{f(2, 3), f(3, 4)}, 2 * 3 * 4},
		{"Add", nil, []Type{f(2), f(2)}, 0},
	} {
		g := NewGraph("g")
		var in []*Value
		for _, typ := range c.in {
			in = append(in, g.AddInput("x", typ))
		}
		n, err := g.Add(c.op, c.op, c.attrs, in...)
		require.NoError(t, err)
		assert.Equal(t, c.want, n.MACs(), "%s %v", c.op, c.in)
	}
}

func TestChannelsLieWhereTheLayoutSays(t *testing.T) {
	g := NewGraph("g")
	image := func(layout string, shape ...int) *Node {
		n, err := g.Add("MaxPool", "n", Attrs{"kernel": []int{1, 1}, "strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}, "layout": layout},
			g.AddInput("x", T(Float32, shape...)))
		require.NoError(t, err)
		return n
	}
	product, err := g.Add("MatMul", "n", nil, g.AddInput("a", T(Float32, 2, 3, 4)), g.AddInput("b", T(Float32, 4, 5)))
	require.NoError(t, err)
	for n, want := range map[*Node]struct {
		axis  int
		shape []int
	}{image("NCHW", 1, 5, 2, 3): {1, []int{5, 1, 1}}, image("NHWC", 1, 2, 3, 5): {3, []int{5}}, product: {2, []int{5}}} {
		assert.Equal(t, want.axis, n.ChannelAxis())
		assert.Equal(t, want.shape, n.ChannelShape(5))
	}
}
