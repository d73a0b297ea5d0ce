package ir

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoWindows is a fused region whose first result has no other reader.
const twoWindows = `graph "g" {
  input %x: f16[2,1,4,4,8]
  const %w: f32[8,1,3,3] = splat 0.5
  %z: f16[2,1,4,4,8] = Region(%x, %w) {family="chain"} "mixer" graph "" {
    input %p0: f16[2,1,4,4,8]
    input %p1: f32[8,1,3,3]
    %y: e4m3[2,1,4,4,8] = Region(%p0, %p1) {family="window", members=2} "mixer" graph "" {
      input %p0: f32[1,4,4,8]
      input %p1: f32[8,1,3,3]
      operand 0: f16 stacked
      %v: f32[1,4,4,8] = Conv(%p0, %p1) {dilations=[1,1], group=8, layout="NHWC", pads=[1,1,1,1], strides=[1,1]}
      output %v
      result 0: e4m3 scale 0.25
    }
    %z: f16[2,1,4,4,8] = Region(%y, %p1) {family="window", members=2} "mlp" graph "" {
      input %p0: f32[1,4,4,8]
      input %p1: f32[8,1,3,3]
      operand 0: e4m3 scale 0.25 stacked
      %v: f32[1,4,4,8] = Conv(%p0, %p1) {dilations=[1,1], group=8, layout="NHWC", pads=[1,1,1,1], strides=[1,1]}
      output %v
      result 0: f16
    }
    output %z
  }
  output %z
}
`

func TestFused_ComputesItsWindowsInOrder(t *testing.T) {
	g := parsed(t, twoWindows)
	require.Equal(t, twoWindows, g.String())
	require.NoError(t, g.Verify())
	n := g.Nodes[0]
	parts := n.Parts()
	require.Len(t, parts, 2)
	require.Equal(t, []string{"mixer", "mlp"}, []string{parts[0].Name, parts[1].Name})
	require.Same(t, n.Inputs[1], parts[1].Inputs[1])
	require.Same(t, n.Outputs[0], parts[1].Outputs[0])
	require.Equal(t, n.MACs(), parts[0].MACs()+parts[1].MACs())

	x := NewArray(n.Inputs[0].Type)
	for i := range x.F {
		x.F[i] = float64(i%7) - 3
	}
	w := n.Inputs[1].Const.Array()
	opt := EvalOptions{Round: true}
	y := evaluatePart(t, parts[0], opt, x, w)
	z := evaluatePart(t, parts[1], opt, y, w)
	out, err := EvaluateList(t.Context(), g, []*Array{x}, opt)
	require.NoError(t, err)
	require.Equal(t, z.F, out[0].F)

	separate := NewGraph("g") // and joined again it is the same
	separate.Inputs, separate.Nodes, separate.Outputs = g.Inputs, parts, n.Outputs
	require.Empty(t, n.Region.diff(NewFused(parts, false).Region))
	require.Len(t, NewFused(parts, true).Outputs, 2)
}

// evaluatePart runs a region of one result alone.
func evaluatePart(t *testing.T, n *Node, opt EvalOptions, in ...*Array) *Array {
	t.Helper()
	g := NewGraph("part")
	m := *n
	m.Inputs = nil
	for i, v := range n.Inputs {
		m.Inputs = append(m.Inputs, g.AddInput(string(rune('a'+i)), v.Type))
	}
	g.Nodes, g.Outputs = []*Node{&m}, n.Outputs
	out, err := EvaluateList(t.Context(), g, in, opt)
	require.NoError(t, err)
	return out[0]
}

func TestCheckFusion_Refuses(t *testing.T) {
	second := twoWindows[strings.Index(twoWindows, "    %z: f16"):]
	for want, edit := range map[string][]string{
		"more than once": {second, strings.Replace(second, "      output %v", "      %r: f32[1,4,4,8] = Add(%v, %p0)\n      output %r", 1)},
		"members of mlp read others than their own of mixer": {second, `    %z: f16[2,4,4,8] = Region(%y, %p1) {family="window"} "mlp" graph "" {
      input %p0: f32[2,1,4,4,8]
      input %p1: f32[8,1,3,3]
      operand 0: e4m3 scale 0.25
      %r: f32[2,4,4,8] = Reshape(%p0) {shape=[2,4,4,8]}
      %v: f32[2,4,4,8] = Conv(%r, %p1) {dilations=[1,1], group=8, layout="NHWC", pads=[1,1,1,1], strides=[1,1]}
      output %v
      result 0: f16
    }
    output %z
  }
  output %z
}
`, "%z: f16[2,1,4,4,8] = Region(%x, %w)", "%z: f16[2,4,4,8] = Region(%x, %w)"},
		"does not read what mixer computes first": {"Region(%y, %p1)", "Region(%p0, %p1)", "operand 0: e4m3 scale 0.25 stacked", "operand 0: f16 stacked"},
		"mlp does not read what mixer computes":   {"Region(%y, %p1) {family=\"window\", members=2}", "Region(%p0, %p1) {family=\"loop\", members=2}", "operand 0: e4m3 scale 0.25 stacked", "operand 0: f16 stacked"},
		"result 0 is an operand":                  {"    output %z\n  }", "    output %p0\n  }"},
		"is computed before it":                   {second, strings.Replace(strings.Replace(second, "Conv(%p0, %p1)", "Conv(%r, %p1)", 1), "      %v: f32", "      %r: f32[1,4,4,8] = Relu(%p0)\n      %v: f32", 1)},
	} {
		_, err := Parse(strings.NewReplacer(edit...).Replace(twoWindows))
		require.ErrorContains(t, err, want)
	}
}

// threeRegions is an inverted residual: a product, a window over it, and a product of that.
const threeRegions = `graph "g" {
  input %x: f16[1,4,4,8]
  const %e: f16[24,8,1,1] = splat 0.5
  const %w: f32[24,1,3,3] = splat 0.25
  const %p: f16[8,24,1,1] = splat 0.125
  %y: f16[1,4,4,8] = Region(%x, %e, %w, %p) {family="chain"} "expansion" graph "" {
    input %p0: f16[1,4,4,8]
    input %p1: f16[24,8,1,1]
    input %p2: f32[24,1,3,3]
    input %p3: f16[8,24,1,1]
    %h: f16[1,4,4,24] = Region(%p0, %p1) {family="contraction"} "expansion" graph "" {
      input %p0: f32[1,4,4,8]
      input %p1: f32[24,8,1,1]
      operand 0: f16
      operand 1: f16
      %v: f32[1,4,4,24] = Conv(%p0, %p1) {dilations=[1,1], group=1, layout="NHWC", pads=[0,0,0,0], strides=[1,1]}
      output %v
      result 0: f16
    }
    %d: f16[1,4,4,24] = Region(%h, %p2) {family="window"} "depthwise" graph "" {
      input %p0: f32[1,4,4,24]
      input %p1: f32[24,1,3,3]
      operand 0: f16
      %v: f32[1,4,4,24] = Conv(%p0, %p1) {dilations=[1,1], group=24, layout="NHWC", pads=[1,1,1,1], strides=[1,1]}
      output %v
      result 0: f16
    }
    %y: f16[1,4,4,8] = Region(%d, %p3) {family="contraction"} "projection" graph "" {
      input %p0: f32[1,4,4,24]
      input %p1: f32[8,24,1,1]
      operand 0: f16
      operand 1: f16
      %v: f32[1,4,4,8] = Conv(%p0, %p1) {dilations=[1,1], group=1, layout="NHWC", pads=[0,0,0,0], strides=[1,1]}
      output %v
      result 0: f16
    }
    output %y
  }
  output %y
}
`

func TestFused_OfThreeKeepsNothingBetween(t *testing.T) {
	g := parsed(t, threeRegions)
	require.NoError(t, g.Verify())
	parts := g.Nodes[0].Parts()
	require.Len(t, parts, 3)
	require.Empty(t, g.Nodes[0].Region.diff(NewFused(parts, false).Region))
	kept := func(result string) error {
		text := strings.Replace(threeRegions, "    output %y\n  }\n", "    output "+result+", %y\n  }\n", 1)
		_, err := Parse(strings.Replace(text, "  %y: f16[1,4,4,8] = Region(%x", "  "+result+": f16[1,4,4,24], %y: f16[1,4,4,8] = Region(%x", 1))
		return err
	}
	require.NoError(t, kept("%h"), "the first's result may be one of the chain")
	require.ErrorContains(t, kept("%d"), "has other readers than the next region")
}

// blocksBetween is a product of rows whose region has two results, numbers in blocks and their scales, both of one
// operand.
const blocksBetween = `graph "g" {
  input %x: f32[4,16]
  const %w: f16[16,8] = splat 0.5
  %z: f16[4,8] = Region(%x, %w) {family="chain"} "norm" graph "" {
    input %p0: f32[4,16]
    input %p1: f16[16,8]
    %y: e2m1[4,16], %s: e4m3[4,1] = Region(%p0) {family="loop"} "norm" graph "" {
      input %p0: f32[4,16]
      %v: f32[4,16] = LayerNorm(%p0) {axis=1}
      output %v
      result 0: e2m1 blocks 16 along 1
    }
    %z: f16[4,8] = Region(%y, %p1, %s) {family="contraction"} "product" graph "" {
      input %p0: f32[4,16]
      input %p1: f32[16,8]
      operand 0: e2m1 blocks 16 along 1
      operand 1: f16
      %v: f32[4,8] = MatMul(%p0, %p1)
      output %v
      result 0: f16
    }
    output %z
  }
  output %z
}
`

func TestBlocksAndTheirScalesAreOneOperand(t *testing.T) {
	g := parsed(t, blocksBetween)
	require.Equal(t, blocksBetween, g.String())
	require.NoError(t, CheckFusion(g.Nodes[0].Parts()))
	for want, edit := range map[string][]string{
		"norm has several results": {"    input %p1: f16[16,8]\n", "    input %p1: f16[16,8]\n    input %p2: e4m3[4,1]\n", "Region(%x, %w)", "Region(%x, %w, %q)",
			"  const %w", "  input %q: e4m3[4,1]\n  const %w", "Region(%y, %p1, %s)", "Region(%y, %p1, %p2)"},
		"product reads what norm computes more than once": {"[16,8]", "[4,16]", "[4,8]", "[4,4]", "const %w: f16", "const %w: e2m1", "%p1: f16", "%p1: e2m1", "operand 1: f16", "operand 1: e2m1 blocks 16 along 1",
			"Region(%y, %p1, %s)", "Region(%y, %p1, %s, %s)", "MatMul(%p0, %p1)", "MatMul(%p0, %p1) {transB=true}"},
	} {
		_, err := Parse(strings.NewReplacer(edit...).Replace(blocksBetween))
		require.ErrorContains(t, err, want)
	}
}
