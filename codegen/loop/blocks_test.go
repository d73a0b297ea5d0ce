package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// blockProducers are regions that end with BlockQuantize.
func blockProducers() []*testCase {
	T := ir.T
	f16, f32, e4m3 := ir.Float16, ir.Float32, ir.Float8E4M3FN
	type A = ir.Attrs
	quantised := func(f func(c *kerneltest.Region, in []*ir.Value) *ir.Value) body {
		return func(c *kerneltest.Region, in []*ir.Value) []*ir.Value {
			return c.Add("BlockQuantize", A{"scale": 0.0113}, f(c, in)).Def.Outputs
		}
	}
	var cs []*testCase
	for _, channels := range []int{64, 384, 512, 1536} {
		cs = append(cs, &testCase{name: fmt.Sprintf("layer norm of %d", channels), inputs: []ir.Type{T(f16, 25, channels), T(f32, channels), T(f32, channels)}, consts: []bool{false, true, true},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("LayerNorm", A{"axis": 1}, c.Cast(in[0], f32), in[1], in[2])
			})})
	}
	return append(cs,
		&testCase{name: "layer norm of a sum", inputs: []ir.Type{T(f16, 2, 40, 128), T(f16, 2, 40, 128), T(f32, 128)}, consts: []bool{false, false, true},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("RMSNorm", A{"axis": 2}, c.Add("Add", nil, c.Cast(in[0], f32), c.Cast(in[1], f32)), in[2])
			})},
		&testCase{name: "residual and gelu", inputs: []ir.Type{T(f16, 1, 8, 16, 64), T(e4m3, 1, 8, 16, 64), T(f32, 64)}, consts: []bool{false, false, true},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				s := c.Add("Add", nil, c.Cast(in[0], f32), c.Cast(in[1], f32))
				return c.Add("Gelu", nil, c.Add("Mul", nil, s, in[2]))
			})},
		&testCase{name: "channels moved last", inputs: []ir.Type{T(f16, 1, 64, 6, 10)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Transpose", A{"perm": []int{0, 2, 3, 1}}, c.Cast(in[0], f32))
			})},
		&testCase{name: "joined channels", inputs: []ir.Type{T(f16, 1, 6, 10, 48), T(f16, 1, 6, 10, 16)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Concat", A{"axis": 3}, c.Cast(in[0], f32), c.Cast(in[1], f32))
			})},
		&testCase{name: "upsampled", inputs: []ir.Type{T(f16, 1, 5, 6, 64)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Resize", A{"sizes": []int{1, 10, 12, 64}, "scales": []float64{1, 2, 2, 1}, "mode": "linear"}, c.Cast(in[0], f32))
			})},
		&testCase{name: "mean of an image", inputs: []ir.Type{T(f16, 1, 12, 10, 128)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("ReduceMean", A{"axes": []int{1, 2}}, c.Cast(in[0], f32))
			})},
		&testCase{name: "softmax along rows", inputs: []ir.Type{T(f16, 40, 192)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Softmax", A{"axis": 0}, c.Cast(in[0], f32))
			})},
		&testCase{name: "a small product", inputs: []ir.Type{T(f16, 10, 24), T(f16, 24, 64)}, consts: []bool{false, true},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("MatMul", nil, c.Cast(in[0], f32), c.Cast(in[1], f32))
			})},
		&testCase{name: "depthwise", inputs: []ir.Type{T(f16, 1, 9, 7, 64), T(f32, 64, 1, 3, 3)}, consts: []bool{false, true},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Conv", A{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": 64, "layout": "NHWC"}, c.Cast(in[0], f32), in[1])
			})},
		&testCase{name: "members", members: 3, batched: []bool{true, true, false}, consts: []bool{false, true, false}, inputs: []ir.Type{T(f16, 20, 64), T(f32, 64), T(f16, 20, 1)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Add", nil, c.Add("Mul", nil, c.Cast(in[0], f32), in[1]), c.Cast(in[2], f32))
			})},
		&testCase{name: "members normalised", members: 2, batched: []bool{true, true, true}, consts: []bool{false, true, true}, inputs: []ir.Type{T(f16, 25, 256), T(f32, 256), T(f32, 256)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("LayerNorm", A{"axis": 1}, c.Cast(in[0], f32), in[1], in[2])
			})},
		&testCase{name: "of blocks", inputs: []ir.Type{T(ir.Float4E2M1, 30, 64), T(e4m3, 30, 4)},
			build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value {
				return c.Add("Relu", nil, c.Add("DequantizeLinear", A{"to": f32, "axis": 1, "block": 16}, in[0], in[1]))
			})},
		&testCase{name: "no elements", inputs: []ir.Type{T(f32, 0, 64)}, build: quantised(func(c *kerneltest.Region, in []*ir.Value) *ir.Value { return in[0] })},
	)
}

func TestProducersOfBlocksAgreeWithTheEvaluator(t *testing.T) {
	for _, c := range blockProducers() {
		t.Run(c.name, func(t *testing.T) { t.Log(c.check(t, "sm_121").Schedule) })
	}
}

// TestRandomProducersOfBlocks ends random chains of movement, elementwise ops and a reduction with BlockQuantize.
func TestRandomProducersOfBlocks(t *testing.T) {
	r := rand.New(rand.NewSource(9))
	tried := 0
	for i := 0; tried < 100; i++ {
		c := randomRegion(r)
		if c.inputs[0].DType == ir.Float16 {
			continue // the evaluator rounds no arithmetic, which moves some of its results over the middle of two codes
		}
		build := c.build
		whole := true
		c.build = func(r *kerneltest.Region, in []*ir.Value) []*ir.Value {
			outs := build(r, in)
			x := r.Cast(outs[0], ir.Float32)
			n := x.Type.Numel()
			if whole = n > 0 && n%64 == 0; !whole {
				return outs
			}
			x = r.Add("Reshape", ir.Attrs{"shape": []int{n / 64, 64}}, x)
			return r.Add("BlockQuantize", ir.Attrs{"scale": 0.0113}, x).Def.Outputs
		}
		if c.region(t); !whole {
			continue
		}
		tried++
		t.Run(fmt.Sprint(i), func(t *testing.T) { c.check(t, "sm_121") })
	}
}

// TestRowsOfBlocksAreReadOnce: the vectors that a thread reduces are those that it stores.
func TestRowsOfBlocksAreReadOnce(t *testing.T) {
	for _, c := range blockProducers() {
		if !strings.HasPrefix(c.name, "layer norm of") || c.members > 0 {
			continue
		}
		text, spec := textOf(t, c, 0)
		reads := len(regexp.MustCompile(`ld\.global\.v4`).FindAllString(text, -1))
		stores := len(regexp.MustCompile(`st\.global\.v2`).FindAllString(text, -1))
		perBlock := 0
		for _, in := range c.inputs {
			if in.Rank() > 1 {
				perBlock += 2
			}
		}
		require.Equal(t, perBlock*stores, reads, "%s: %s", c.name, spec.Schedule)
	}
}

func TestBlocksWantATargetThatConverts(t *testing.T) {
	for _, name := range []string{"sm_90", "sm_80"} {
		_, err := Family.Lower(blockProducers()[0].region(t).Node, kerneltest.Target(t, name))
		require.ErrorContains(t, err, name+" has no conversion to e2m1")
	}
}

func TestPtxasTakesProducersOfBlocks(t *testing.T) {
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	ctx := kerneltest.Target(t, "sm_121")
	m := ptx.NewModule(ctx.Target.Name)
	cases := blockProducers()
	for i, c := range cases {
		spec, err := Family.Lower(c.region(t).Node, ctx)
		require.NoError(t, err)
		spec.EmitInto(m, fmt.Sprintf("k%d", i))
	}
	res, err := tool.Assemble(context.Background(), m.String(), ctx.Target.Name)
	require.NoError(t, err)
	require.Len(t, res.Usage, len(cases))
	for _, u := range res.Usage {
		i, err := strconv.Atoi(u.Kernel[1:])
		require.NoError(t, err)
		t.Logf("%s: %d registers", cases[i].name, u.Regs)
		require.Zero(t, u.Spills, cases[i].name)
	}
}
