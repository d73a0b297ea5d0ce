package blas

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fused is x·y+z of finite numbers, rounded once.
func fused(x, y, z float32) float32 {
	number := func(f float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(f)) }
	product := number(x)
	product.Mul(product, number(y))
	sum, _ := product.Add(product, number(z)).Float32()
	return sum
}

// TestWindow_FusesInAscendingOrder: with padding, strides and dilations, of few and many channels.
func TestWindow_FusesInAscendingOrder(t *testing.T) {
	for i, c := range []struct{ channels, kernel, stride, dilation, pad int }{
		{8, 3, 1, 1, 1}, {24, 3, 2, 1, 1}, {32, 1, 1, 1, 0}, {40, 3, 1, 2, 2}, {72, 5, 2, 1, 2},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(11, uint64(i)))
			w := Window{Height: 9, Width: 7, Channels: c.channels, KernelHeight: c.kernel, KernelWidth: c.kernel,
				Stride: [2]int{c.stride, c.stride}, Dilation: [2]int{c.dilation, c.dilation}, Pad: [2]int{c.pad, c.pad}}
			reach := (c.kernel - 1) * c.dilation
			w.Rows, w.Columns = (w.Height+2*c.pad-reach-1)/c.stride+1, (w.Width+2*c.pad-reach-1)/c.stride+1
			if !w.Fused() {
				t.Skip("no fused multiply-adds here")
			}
			in := numbers(rng, w.Height*w.Width*c.channels)
			for i := range in {
				in[i] *= float32(math.Exp2(float64(rng.IntN(40) - 20)))
			}
			w.Taps = numbers(rng, c.kernel*c.kernel*c.channels)
			for _, w.Bias = range [][]float32{nil, numbers(rng, c.channels)} {
				out := make([]float32, w.Rows*w.Columns*c.channels)
				w.Of(out, in, 0, w.Rows)
				for at, got := range out {
					y, x, channel := at/c.channels/w.Columns, at/c.channels%w.Columns, at%c.channels
					want := float32(0)
					for t := range c.kernel * c.kernel {
						iy, ix := y*c.stride-c.pad+t/c.kernel*c.dilation, x*c.stride-c.pad+t%c.kernel*c.dilation
						if iy >= 0 && iy < w.Height && ix >= 0 && ix < w.Width {
							want = fused(in[(iy*w.Width+ix)*c.channels+channel], w.Taps[t*c.channels+channel], want)
						}
					}
					if w.Bias != nil {
						want += w.Bias[channel]
					}
					require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%d %d %d", y, x, channel)
				}
			}
		})
	}
}
