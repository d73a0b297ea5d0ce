package trace

import (
	"bytes"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// mixer is a depthwise convolution and another one of what it computes, which something else reads too if it is kept.
func mixer(t *testing.T, kept bool) []byte {
	t.Helper()
	rng := rand.New(rand.NewSource(5))
	b := onnx.NewBuilder("mixer", 17)
	b.Input("x", ir.Float32, 1, 16, 32, 64)
	weights := func(name string, k int) string {
		xs := make([]float64, 16*k*k)
		for i := range xs {
			xs[i] = rng.NormFloat64() / float64(k)
		}
		return b.Initializer(name, ir.FromFloats(ir.T(ir.Float32, 16, 1, k, k), xs))
	}
	y := b.Op("Conv", []string{"x", weights("w", 3)}, onnx.A("pads", []int{1, 1, 1, 1}), onnx.A("group", 16))
	z := b.Op("Conv", []string{y, weights("u", 7)}, onnx.A("pads", []int{3, 3, 3, 3}), onnx.A("group", 16))
	b.Node("Relu", []string{z}, []string{"out"})
	b.Output("out", ir.Float32, 1, 16, 32, 64)
	if kept {
		b.Node("ReduceMax", []string{y}, []string{"most"}, onnx.A("axes", []int{2, 3}), onnx.A("keepdims", 0))
		b.Output("most", ir.Float32, 1, 16)
	}
	m, err := b.Model()
	require.NoError(t, err)
	raw, err := m.Marshal()
	require.NoError(t, err)
	return raw
}

// TestBothFusedWindowsAreTraced: each on what it had, where that is in memory; else the chain as a whole. A wrong weight is that of
// its own window.
func TestBothFusedWindowsAreTraced(t *testing.T) {
	for _, precision := range []string{"file", "fp32", "fp16"} {
		for _, kept := range []bool{true, false} {
			r := built(t, "mixer", mixer(t, kept), precision)
			launch := slices.IndexFunc(r.Origins[0].Regions, func(n *ir.Node) bool { return n.IsFamily(ir.FamilyFused) })
			require.GreaterOrEqual(t, launch, 0)
			n := r.Origins[0].Regions[launch]
			require.Len(t, n.Outputs, map[bool]int{true: 2, false: 1}[kept])
			sound, _, _ := traced(t, r.Program, r, false)
			require.Nil(t, sound.FirstBad)
			require.Len(t, rowsOf(sound, launch), len(n.Outputs))
			for i, part := range n.Parts() {
				p := *r.Program
				p.Weights = bytes.Clone(p.Weights)
				v := &p.Variants[0]
				for _, a := range v.Entries[0].Launches[launch].Reads { // the second's weights are more
					b := v.Buffers[a.Buffer]
					if b.Kind == runtime.ConstantBuffer && (b.Bytes > 16*9*4+16*4) == (i == 1) {
						p.Weights[b.Offset+16*4+3] ^= 0x80
					}
				}
				found, _, _ := traced(t, &p, r, false)
				require.NotNil(t, found.FirstBad, part.Name)
				for _, row := range found.Rows {
					require.Equal(t, row.Launch == launch && (!kept || row.Region == compile.Original(part.Name)), row.Bad, "%s %s", row.Region, part.Name)
				}
			}
		}
	}
}

func rowsOf(t *Trace, launch int) (rows []Row) {
	for _, r := range t.Rows {
		if r.Launch == launch {
			rows = append(rows, r)
		}
	}
	return rows
}
