package ir

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stored is a region whose storage says everything that storage can say.
const stored = `graph "g" {
  input %x: f16[2,32]
  const %w: e2m1[32,16] = splat 1.5
  const %bias: f32[16] = splat 0.5
  const %c: f64[16] = splat 0.25
  const %b: e4m3[2,16] = splat 2
  %y: e2m1[2,16], %s: e4m3[2,1] = Region(%x, %w, %bias, %c, %b) {family="contraction"} "fc" graph "fc" {
    input %p0: f32[2,32]
    input %p1: f32[32,16]
    input %p2: f32[16]
    operand 0: f16 read e4m3 scale 0.5
    operand 1: e2m1 channels 1 blocks 16 along 0
    %v~1: f32[2,16] = MatMul(%p0, %p1)
    %v~2: f32[2,16] = Add(%v~1, %p2)
    output %v~2
    result 0: e2m1 scale 2.0 blocks 16 along 1
  }
  output %y, %s
}
`

func TestStorageIsPartOfTheText(t *testing.T) {
	g := parsed(t, stored)
	require.Equal(t, stored, g.String())
	terms := strings.Replace(stored, "read e4m3 scale 0.5", "read e4m3 scale 0.5 terms 2", 1)
	require.Equal(t, terms, parsed(t, terms).String())
	require.Empty(t, g.Diff(g.Clone()))
	h := g.Clone()
	h.Nodes[0].Region.Operands[0].Read.Scale = 0.25
	require.Contains(t, g.Diff(h), "operands stored as")
	h = g.Clone()
	h.Nodes[0].Region.Results[0].Scale = 4
	require.Contains(t, g.Diff(h), "results stored as")
}

// TestStorageMeansItsScales holds a region against the arithmetic that its storage stands for, written out here.
func TestStorageMeansItsScales(t *testing.T) {
	for _, terms := range []int{0, 2} {
		t.Run(fmt.Sprint("terms ", terms), func(t *testing.T) { storageMeans(t, terms) })
	}
}

func storageMeans(t *testing.T, terms int) {
	read := func(x float64) float64 {
		y := RoundTo(Float8E4M3FN, x)
		if terms == 2 {
			y += RoundTo(Float8E4M3FN, x-y)
		}
		return y
	}
	g := parsed(t, strings.NewReplacer("  result 0: e2m1 scale 2.0 blocks 16 along 1", "  result 0: e4m3 scale 0.125",
		"%y: e2m1[2,16], %s: e4m3[2,1] = Region", "%y: e4m3[2,16] = Region", "output %y, %s", "output %y").Replace(stored))
	rng := rand.New(rand.NewSource(3))
	draw := func(v *Value, size float64) []float64 {
		xs := make([]float64, v.Type.Numel())
		for i := range xs {
			xs[i] = RoundTo(v.Type.DType, size*rng.NormFloat64())
		}
		if v.IsConst() {
			v.Const = FromFloats(v.Type, xs)
		}
		return xs
	}
	n := g.Nodes[0]
	n.Region.Operands[0].Read.SplitTerms = terms
	x, w, bias, channels, blocks := draw(n.Inputs[0], 1), draw(n.Inputs[1], 2), draw(n.Inputs[2], 1), draw(n.Inputs[3], 0.1), draw(n.Inputs[4], 1)
	out, err := EvaluateList(t.Context(), g, []*Array{{Type: n.Inputs[0].Type, F: x}}, EvalOptions{Round: true})
	require.NoError(t, err)
	for m := range 2 {
		for c := range 16 {
			sum := 0.0
			for k := range 32 {
				sum += read(x[m*32+k]/0.5) * w[k*16+c] * blocks[k/16*16+c]
			}
			y := sum*float64(float32(channels[c]*0.5)) + bias[c]
			require.Equal(t, RoundTo(Float8E4M3FN, y/0.125), out[0].F[m*16+c], "row %d, channel %d", m, c)
		}
	}
}

func TestStorageThatNoKernelReadsIsRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"operand 0: f16 read e4m3 scale 0.5", "operand 0: f16 read e4m3 scale 0.5 stacked", `want meta, input`},
		{"operand 1: e2m1 channels 1 blocks 16 along 0", "operand 1: e2m1 channels 2 blocks 16 along 0", "channels along dimension 2 of f32[32,16]"},
		{"operand 1: e2m1 channels 1 blocks 16 along 0", "operand 1: e2m1 channels 1 blocks 16 along 5", "blocks of 16 along dimension 5"},
		{"operand 1: e2m1 channels 1 blocks 16 along 0", "operand 1: e2m1 channels 1", "5 inputs, its body and their storage want 4"},
		{"operand 1: e2m1 channels 1 blocks 16 along 0", "operand 1: f16 channels 1 blocks 16 along 0", "input 1 is e2m1[32,16], its body wants f16[32,16]"},
		{"%v~2: f32[2,16] = Add(%v~1, %p2)", "%v~2: f32[2,16] = Add(%v~1, %v~1)", "operand 2 is not read"},
		{"result 0: e2m1 scale 2.0 blocks 16 along 1", "result 0: e2m1 scale -1.0 blocks 16 along 1", "scale -1"},
		{"operand 0: f16 read e4m3 scale 0.5", "operand 0: f16 read e4m3 scale 0.5 terms 3", "read in 3 terms"},
		{"operand 0: f16 read e4m3 scale 0.5", "operand 0: f16 scale 0.5 terms 2", "only what an anchor sees"},
		{"result 0: e2m1 scale 2.0 blocks 16 along 1", "result 0: e2m1 scale 2.0 terms 2 blocks 16 along 1", "only what an anchor sees"},
		{"result 0: e2m1 scale 2.0 blocks 16 along 1", "result 3: f16", "number 3 of 1"},
	} {
		require.Contains(t, stored, c.old)
		_, err := Parse(strings.Replace(stored, c.old, c.new, 1))
		require.ErrorContains(t, err, c.want)
	}
}

func TestAMatrixTimesItselfHasItsScaleTwice(t *testing.T) {
	g := parsed(t, `graph "g" {
  input %x: e4m3[2,2]
  %y: f32[2,2] = Region(%x) {family="contraction"} graph "" {
    input %p0: f32[2,2]
    operand 0: e4m3 scale 3.0
    %v: f32[2,2] = MatMul(%p0, %p0)
    output %v
  }
  output %y
}`)
	out, err := EvaluateList(t.Context(), g, []*Array{{Type: T(Float8E4M3FN, 2, 2), F: []float64{1, 2, 0, 1}}}, EvalOptions{})
	require.NoError(t, err)
	require.Equal(t, []float64{9, 36, 0, 9}, out[0].F)
}

// viewOfBlocks is a view of numbers and of the scales of their blocks.
const viewOfBlocks = `graph "g" {
  input %x: e2m1[2,32]
  input %s: e4m3[2,2]
  %y: e2m1[4,16], %t: e4m3[4,1] = Region(%x, %s) {family="view"} graph "" {
    input %p0: f32[2,32]
    operand 0: e2m1 scale 2.0 blocks 16 along 1
    %v: f32[4,16] = Reshape(%p0) {shape=[4,16]}
    output %v
    result 0: e2m1 scale 2.0 blocks 16 along 1
  }
  output %y, %t
}`

func TestAViewMovesWhatIsStored(t *testing.T) {
	g := parsed(t, viewOfBlocks)
	require.NoError(t, g.Verify())
	x := NewArray(T(Float4E2M1, 2, 32))
	for i := range x.F {
		x.F[i] = float64(i % 4)
	}
	s := &Array{Type: T(Float8E4M3FN, 2, 2), F: []float64{0, 1, 2, 448}}
	out, err := EvaluateList(t.Context(), g, []*Array{x, s}, EvalOptions{Round: true})
	require.NoError(t, err)
	require.Equal(t, x.F, out[0].F)
	require.Equal(t, s.F, out[1].F)
}

func TestAViewKeepsItsStorage(t *testing.T) {
	for want, edit := range map[string][]string{
		"operand 0 of a view is stored as e2m1 scale 2.0 blocks 16 along 1, its result as e2m1 scale 4.0 blocks 16 along 1": {"result 0: e2m1 scale 2.0", "result 0: e2m1 scale 4.0"},
		"scales of blocks":               {"4,16", "8,8", "[4,1]", "[8,1]"},
		"a view with members or several": {"output %v\n", "output %v, %v\n", "result 0", "result 1: e2m1 scale 2.0 blocks 16 along 1\n    result 0", "%t: e4m3[4,1]", "%t: e4m3[4,1], %y1: e2m1[4,16], %t1: e4m3[4,1]"},
	} {
		_, err := Parse(strings.NewReplacer(edit...).Replace(viewOfBlocks))
		require.ErrorContains(t, err, want)
	}
}
