package calibrate

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// TestPatchesOfLines: elements of patches lie in the lines that are read where gathering finds them, for kernels of any shape, stride,
// dilation and padding, of groups and batches, in any part of the image.
func TestPatchesOfLines(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	between := func(lo, hi int) int { return lo + rng.Intn(hi-lo+1) }
	for try := range 300 {
		group := between(1, 3)
		each, h, w := between(1, 3), between(1, 9), between(1, 9)
		kernel, stride, dilation := []int{between(1, 3), between(1, 3)}, []int{between(1, 3), between(1, 3)}, []int{between(1, 2), between(1, 2)}
		pads := []int{between(0, 3), between(0, 3), between(0, 3), between(0, 3)}
		name := fmt.Sprint(try, ": ", group, each, h, w, kernel, stride, dilation, pads)
		g := ir.NewGraph("g")
		x, weights := g.AddInput("x", ir.T(ir.Float32, 2, h, w, group*each)), g.AddInput("w", ir.T(ir.Float32, group, each, kernel[0], kernel[1]))
		n, err := g.Add("Conv", "conv", ir.Attrs{"layout": "NHWC", "group": group, "strides": stride, "dilations": dilation, "pads": pads}, x, weights)
		if err != nil {
			continue // the kernel is larger than the image
		}
		p := patchesOf(&passes.Site{Node: &ir.Node{Region: &ir.Region{}}, Anchor: n, K: each * kernel[0] * kernel[1]})
		in := make([]float32, x.Type.Numel())
		for i := range in {
			in[i] = rng.Float32() + 1
		}
		s, y := imagesOf(n), n.Outputs[0].Type.Shape
		image, first := rng.Intn(2), rng.Intn(y[1])
		lines := between(1, y[1]-first)
		got := s.patches(in[image*h*w*group*each:], first, lines)
		require.Len(t, got.Starts, lines*y[2], name)
		row := make([]float32, len(s.offsets))
		for i, start := range got.Starts {
			for k := range group {
				p.gather(in, 0, k, (image*y[1]+first)*y[2]+i, row)
				for j, want := range row {
					require.Equal(t, want, got.F[k*each+int(start+s.offsets[j])], name)
				}
			}
		}
		free(got.F)
	}
}
