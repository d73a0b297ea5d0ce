package calibrate

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// product computes what the anchor of a site yields as a product of matrices in f32. It is what the anchor's kernel
// computes, but for the order of additions, and many times as fast as that kernel on the CPU device, which imitates each of
// its instructions.
type product struct {
	*patches
	images *images   // of what is not in place
	bias   []float32 // of every channel, members one after another; nil: none
	out    ir.Type   // of the anchor's output, of all members
}

// productOf returns nil if only the kernel can compute the anchor.
func productOf(s *passes.Site) *product {
	p := &product{patches: patchesOf(s), out: s.Anchor.Outputs[0].Type}
	if p.patches == nil || s.Segmented() || p.out.DType != ir.Float32 || s.Anchor.Inputs[0].Type.DType != ir.Float32 || s.Weights().Type.DType != ir.Float32 {
		return nil
	}
	if !p.inPlace {
		p.images = imagesOf(s.Anchor)
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

// blockRows is the number of positions that are multiplied at a time, about.
const blockRows = 256

// of multiplies each of some inputs with weights, unless the context ends.
func (p *product) of(ctx context.Context, inputs []*ir.Tensor, weights *ir.Tensor, pool *BufferPool) []*ir.Tensor {
	s := p.site
	panels := p.pack(weights)
	out := make([]*ir.Tensor, len(inputs))
	for i := range out {
		out[i] = pool.Tensor(p.out)
	}
	size, images := blockRows, 1
	if !p.inPlace { // whole lines
		size, images = max(1, blockRows/p.images.columns)*p.images.columns, p.images.count
	}
	image := p.positions / images
	blocks := (image + size - 1) / size
	parallel.ForContext(ctx, len(inputs)*s.Members*images*blocks, func(i int) {
		at, member, first := i/blocks/images/s.Members, i/blocks/images%s.Members, i%blocks*size
		p.block(floats(out[at]), floats(inputs[at]), panels[member*p.groups:], member, i/blocks%images, first, min(size, image-first))
	})
	return out
}

// pack packs the weights of every member and group.
func (p *product) pack(weights *ir.Tensor) []*blas.Panels {
	s, w := p.site, runtime.View[float32](weights.Dense())
	out := make([]*blas.Panels, s.Members*p.groups)
	count := s.N / p.groups
	parallel.For(len(out), func(i int) {
		rows := make([]float32, count*s.K)
		for n := range count {
			for k := range s.K {
				rows[n*s.K+k] = w[s.At(i/p.groups, i%p.groups*count+n, k)]
			}
		}
		out[i] = blas.Pack(blas.Rows32{F: rows, Stride: s.K, Count: count}, s.K)
		if p.bias != nil {
			out[i].Bias(p.bias[i*count:])
		}
	})
	return out
}

// block computes all channels of some positions of an image of a member.
func (p *product) block(out, in []float32, panels []*blas.Panels, member, image, first, count int) {
	s := p.site
	if p.inPlace {
		at := member*p.positions + first
		blas.Products(out[at*s.N:][:count*s.N], s.N, blas.Rows32{F: in[member*p.memberStride+first*s.K:], Stride: s.K, Count: count}, panels[0])
		return
	}
	x := p.images
	to := out[((member*x.count+image)*x.lines*x.columns+first)*s.N:][:count*s.N]
	rows := x.patches(in[member*p.memberStride+image*x.height*x.width*x.channels:], first/x.columns, count/x.columns)
	defer free(rows.F)
	for g := range p.groups {
		blas.ProductsOf(to[g*s.N/p.groups:], s.N, rows, panels[g])
		rows.F = rows.F[x.each:]
	}
}
