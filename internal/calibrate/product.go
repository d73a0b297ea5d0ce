package calibrate

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/linear"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// product computes what the anchor of a site yields as a product of matrices in f32. It is what the anchor's kernel
// computes, but for the order of additions, and many times as fast as that kernel on the CPU device, which imitates each of
// its instructions.
type product struct {
	*patches
	bias []float32 // of every channel, members one after another; nil: none
	out  ir.Type   // of the anchor's output, of all members
}

// productOf returns nil if only the kernel can compute the anchor.
func productOf(s *passes.Site) *product {
	p := &product{patches: patchesOf(s), out: s.Anchor.Outputs[0].Type}
	if p.patches == nil || s.Segmented() || p.out.DType != ir.Float32 || s.Anchor.Inputs[0].Type.DType != ir.Float32 || s.Weights().Type.DType != ir.Float32 {
		return nil
	}
	if members := s.Node.Region.Members; members > 0 {
		p.out.Shape = append([]int{members}, p.out.Shape...)
	}
	if len(s.Anchor.Inputs) < 3 {
		return p
	}
	bias := s.Anchor.Inputs[2] // inside the region
	if at := slices.Index(s.Node.Region.Body.Inputs, bias); at >= 0 {
		bias = s.Node.Inputs[at]
	}
	if !bias.IsConst() || bias.Type.DType != ir.Float32 {
		return nil
	}
	p.bias = runtime.View[float32](bias.Const.Dense())
	if len(p.bias) == s.N { // all members have the same
		p.bias = slices.Repeat(p.bias, s.Members)
	}
	return p
}

// blockRows is the number of positions that are multiplied at a time.
const blockRows = 256

// of multiplies each of some inputs with weights, unless the context ends.
func (p *product) of(ctx context.Context, inputs []*ir.Tensor, weights *ir.Tensor) []*ir.Tensor {
	s := p.site
	panels := p.pack(weights)
	out := make([]*ir.Tensor, len(inputs))
	for i := range out {
		out[i] = &ir.Tensor{Type: p.out, Data: runtime.Bytes(make([]float32, p.out.Numel()))}
	}
	blocks := (p.positions + blockRows - 1) / blockRows
	until(ctx, len(inputs)*s.Members*blocks, func(i int) {
		at, member, first := i/blocks/s.Members, i/blocks%s.Members, i%blocks*blockRows
		p.block(floats(out[at]), floats(inputs[at]), panels[member*p.groups:], member, first, min(blockRows, p.positions-first))
	})
	return out
}

// pack packs the weights of every member and group.
func (p *product) pack(weights *ir.Tensor) []*linear.Panels {
	s, w := p.site, runtime.View[float32](weights.Dense())
	out := make([]*linear.Panels, s.Members*p.groups)
	count := s.N / p.groups
	each(len(out), func(i int) {
		rows := make([]float32, count*s.K)
		for n := range count {
			for k := range s.K {
				rows[n*s.K+k] = w[s.At(i/p.groups, i%p.groups*count+n, k)]
			}
		}
		out[i] = linear.Pack(linear.Rows32{F: rows, Stride: s.K, Count: count}, s.K)
	})
	return out
}

// block computes all channels of some positions of a member.
func (p *product) block(out, in []float32, panels []*linear.Panels, member, first, count int) {
	s := p.site
	to := out[(member*p.positions+first)*s.N:][:count*s.N]
	for g := range p.groups {
		rows := linear.Rows32{Stride: s.K, Count: count}
		if p.inPlace {
			rows.F = in[(member*p.positions+first)*s.K:]
		} else {
			rows.F = make([]float32, count*s.K)
			for i := range count {
				p.gather(in, member, g, first+i, rows.F[i*s.K:][:s.K])
			}
		}
		linear.Products(to[g*s.N/p.groups:], s.N, rows, panels[g])
	}
	if p.bias == nil {
		return
	}
	bias := p.bias[member*s.N:][:s.N]
	for ; len(to) > 0; to = to[s.N:] {
		for i, b := range bias {
			to[i] += b
		}
	}
}
