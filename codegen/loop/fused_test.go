package loop

import (
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// fused are regions as the passes make them.
func fused() []*testCase {
	T := ir.T
	f16, f32 := ir.Float16, ir.Float32
	type A = ir.Attrs
	return []*testCase{
		{name: "residual and gelu in fp16", inputs: []ir.Type{T(f16, 1, 8, 16, 64), T(f16, 1, 8, 16, 64), T(f32, 64)}, consts: []bool{false, false, true},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				s := c.Add("Add", nil, c.Cast(in[0], f32), c.Cast(in[1], f32))
				return []*ir.Value{c.Cast(c.Add("Gelu", nil, c.Add("Mul", nil, s, in[2])), f16)}
			}},
		{name: "two outputs of one size", inputs: []ir.Type{T(f32, 4, 96)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				e := c.Add("Exp", nil, in[0])
				return []*ir.Value{c.Cast(e, f16), c.Add("Reshape", A{"shape": []int{96, 4}}, c.Add("Neg", nil, e))}
			}},
		{name: "layer norm of a sum, transposed", inputs: []ir.Type{T(f16, 25, 512), T(f16, 25, 512), T(f32, 512), T(f32, 512)}, consts: []bool{false, false, true, true},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				s := c.Add("Add", nil, c.Cast(in[0], f32), c.Cast(in[1], f32))
				n := c.Add("LayerNorm", A{"axis": 1}, s, in[2], in[3])
				return []*ir.Value{c.Cast(c.Add("Transpose", A{"perm": []int{1, 0}}, n), f16)}
			}},
		{name: "gradient of a norm, added to a residual's", inputs: []ir.Type{T(ir.BFloat16, 75, 384), T(ir.BFloat16, 75, 384), T(ir.BFloat16, 75, 384), T(f32, 384)}, consts: []bool{false, false, false, true},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				d := c.Add("LayerNormGrad", A{"axis": 1}, c.Cast(in[0], f32), c.Cast(in[1], f32), in[3])
				return []*ir.Value{c.Cast(c.Add("Add", nil, c.Cast(in[2], f32), d), ir.BFloat16)}
			}},
		{name: "masked softmax", inputs: []ir.Type{T(f16, 2, 8, 40, 40), T(f32, 40, 40)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				s := c.Add("Add", nil, c.Cast(in[0], f32), in[1])
				return []*ir.Value{c.Cast(c.Add("Softmax", A{"axis": 3}, s), f16)}
			}},
		{name: "members with their own constants and a shared input", members: 3, batched: []bool{true, true, false}, consts: []bool{false, true, false},
			inputs: []ir.Type{T(f16, 20, 64), T(f32, 64), T(f16, 20, 1)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				y := c.Add("Mul", nil, c.Cast(in[0], f32), in[1])
				return []*ir.Value{c.Cast(c.Add("Add", nil, y, c.Cast(in[2], f32)), f16)}
			}},
		{name: "members of a pooled mean", members: 2, batched: []bool{true}, inputs: []ir.Type{T(f16, 1, 8, 12, 48)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				return []*ir.Value{c.Add("ReduceMean", A{"axes": []int{1, 2}}, c.Cast(in[0], f32))}
			}},
		{name: "members of matrix times vector with activation", members: 2, batched: []bool{true, true, true}, consts: []bool{false, true, true},
			inputs: []ir.Type{T(f16, 128), T(f16, 40, 128), T(f32, 40)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				offset := c.Body.Constant("o", ir.SplatInt(T(ir.Int32, 40), 0))
				length := c.Body.Constant("l", ir.SplatInt(T(ir.Int32, 40), 128))
				y := c.Add("SegmentedMatVec", nil, c.Cast(in[0], f32), c.Cast(in[1], f32), in[2], offset, length)
				return []*ir.Value{c.Cast(c.Add("Relu", nil, y), f16)}
			}},
		{name: "rows of different activation", inputs: []ir.Type{T(f16, 64), T(f16, 48, 64), T(ir.Bool, 48)}, consts: []bool{false, true, true},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				offset := c.Body.Constant("o", ir.SplatInt(T(ir.Int32, 48), 0))
				length := c.Body.Constant("l", ir.SplatInt(T(ir.Int32, 48), 64))
				y := c.Add("SegmentedMatVec", nil, c.Cast(in[0], f32), c.Cast(in[1], f32), nil, offset, length)
				return []*ir.Value{c.Add("Where", nil, in[2], c.Add("Sigmoid", nil, y), y)}
			}},
		{name: "channels padded and moved last", inputs: []ir.Type{T(ir.Uint8, 1, 12, 6, 8)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				x := c.Add("Transpose", A{"perm": []int{0, 2, 3, 1}}, c.Cast(in[0], f32))
				x = c.Add("Mul", nil, x, c.Body.Constant("s", ir.ScalarFloat(f32, 1.0/255)))
				x = c.Add("Pad", A{"begin": []int{0, 0, 0, 0}, "end": []int{0, 0, 0, 4}}, x)
				return []*ir.Value{c.Cast(x, f16)}
			}},
		{name: "join of inputs into a stack", inputs: []ir.Type{T(ir.Uint8, 1, 4, 6), T(ir.Uint8, 1, 4, 6)},
			build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
				return []*ir.Value{c.Add("Concat", A{"axis": 0}, in[0], in[1])}
			}},
		{name: "a table in the body", inputs: []ir.Type{T(f32, 3, 1)}, build: func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
			return []*ir.Value{c.Add("Add", nil, in[0], c.Body.Constant("k", ir.FromFloats(T(f32, 5), []float64{1, 2, 3, 4, 5})))}
		}},
		{name: "no elements", inputs: []ir.Type{T(f32, 0, 4)}, build: node("Neg", nil)},
	}
}

func TestFusedRegionsAgreeWithTheEvaluator(t *testing.T) {
	for _, c := range fused() {
		for _, name := range target.Names() {
			t.Run(c.name+" on "+name, func(t *testing.T) {
				c.check(t, name)
			})
		}
	}
}

func textOf(t *testing.T, c *testCase, align int) (string, *kernel.Spec) {
	t.Helper()
	ctx := kerneltest.Target(t, "sm_121")
	if align > 0 {
		ctx.Align = func(*ir.Value) int { return align }
	}
	spec, err := Family.Lower(c.region(t).Node, ctx)
	require.NoError(t, err)
	return spec.Build(ctx.Target, "k").String(), spec
}

func TestElementwiseMovesSixteenBytesAtATime(t *testing.T) {
	c := &testCase{name: "add", build: node("Add", nil), inputs: []ir.Type{ir.T(ir.Float16, 64, 1024), ir.T(ir.Float16, 64, 1024)}}
	text, _ := textOf(t, c, 0)
	require.Len(t, regexp.MustCompile(`ld\.global\.v4`).FindAllString(text, -1), 2)
	require.Len(t, regexp.MustCompile(`(ld|st)\.global`).FindAllString(text, -1), 3)
	text, _ = textOf(t, c, 4)
	require.NotContains(t, text, "v4", "a view at 4 bytes must not be read 16 bytes at a time")
	require.NotContains(t, text, "v2")
}

func TestMatrixTimesVectorReadsWeightsBeforeItWaits(t *testing.T) {
	T, f16, i32 := ir.T, ir.Float16, ir.Int32
	zero := func(*rand.Rand, int) float64 { return 0 }
	c := &testCase{name: "heads", build: node("SegmentedMatVec", nil), consts: []bool{false, true, true, true, true},
		inputs: []ir.Type{T(f16, 512), T(f16, 1000, 512), T(f16, 1000), T(i32, 1000), T(i32, 1000)},
		data:   data{nil, nil, nil, zero, func(*rand.Rand, int) float64 { return 512 }}}
	text, spec := textOf(t, c, 0)
	require.Contains(t, spec.Schedule, "row 32 threads")
	wait := regexp.MustCompile(`griddepcontrol\.wait`).FindStringIndex(text)
	// Not .nc: ptxas would move them after the wait.
	loads := regexp.MustCompile(`ld\.global\.v4`).FindAllStringIndex(text, -1)
	require.Len(t, loads, 4, "two of weights, two of activations")
	require.Less(t, loads[1][0], wait[0])
	require.Greater(t, loads[2][0], wait[0])
	between := text[loads[1][1]:wait[0]]
	require.Equal(t, 1, strings.Count(between, "\n"), "what computes with the weights comes after the wait: %s", between)
}

func TestRowsAreReadOnce(t *testing.T) {
	c := &testCase{name: "norm", build: node("LayerNorm", ir.Attrs{"axis": 1}), inputs: []ir.Type{ir.T(ir.Float16, 200, 512)}}
	text, _ := textOf(t, c, 0)
	require.Len(t, regexp.MustCompile(`ld\.global`).FindAllString(text, -1), 2, "two vectors of eight a thread, for mean, variance and result")
}
