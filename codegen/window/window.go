package window

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

const threads = 128 // of a block

// maxUnrolled bounds the multiply-adds that are written out: beyond it ptxas hoists so many loads that registers, not
// latency, limit a kernel.
const maxUnrolled = 160

// problem is a window region: x [N,H,W,C] → y [N,OH,OW,CO], the same for each of G members.
type problem struct {
	region *ir.Node
	anchor *ir.Node
	blocks *ir.Node // BlockQuantize of what is stored, or nil
	g      int

	n, h, w, c, oh, ow, co int
	kh, kw                 int
	sh, sw, dh, dw, ph, pw int // strides, dilations, leading pads
	multiplier             int // output channels a channel

	weights []byte // packed; nil for pools
}

// schedule is what a thread computes: Channels of each of Pixels neighbouring pixels of a row.
type schedule struct {
	Channels, Pixels int
	Unroll           bool // rows of the window are written out instead of looped over
}

func (s schedule) String() string {
	return fmt.Sprintf("channels=%d pixels=%d unroll=%v", s.Channels, s.Pixels, s.Unroll)
}

// Lower turns a region of family window into a kernel. A region that it refuses is a loop's.
func Lower(region *ir.Node, ctx *kernel.Context) (spec *kernel.Spec, err error) {
	defer lower.Catch(&err)
	p, err := analyse(region)
	if err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	if p.blocks != nil && !ctx.Target.NVFP4 {
		return nil, fmt.Errorf("window: %s does not convert to e2m1", ctx.Target.Name)
	}
	s := p.choose(ctx.Target)
	g := newGen(p, s, ctx.Target)
	if err := g.lower(); err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	stem := fmt.Sprintf("dwconv%dx%d", p.kh, p.kw)
	macs := int64(p.g*p.n*p.oh*p.ow*p.co) * int64(p.kh*p.kw)
	if p.weights == nil {
		stem, macs = fmt.Sprintf("pool%dx%d", p.kh, p.kw), 0
	}
	total := p.work(s)
	blocks := (total + threads - 1) / threads
	spec = &kernel.Spec{Stem: stem, Family: ir.FamilyWindow, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1},
		Operands: g.l.Operands, Schedule: s.String(), MACs: macs, Note: region.Name,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) { g.emit(k, params, ctx) }}
	if blocks < ctx.Target.SMs {
		spec.Reason = fmt.Sprintf("%d output vectors are %d blocks", total, blocks)
	}
	return spec, nil
}

// analyse finds the anchor and reads its geometry.
func analyse(region *ir.Node) (*problem, error) {
	p := &problem{region: region, g: max(region.Attrs.Int("members", 0), 1)}
	for _, n := range region.Body.Nodes {
		switch n.Op.Name {
		case "Conv", "MaxPool", "AveragePool":
			if p.anchor != nil {
				return nil, fmt.Errorf("two anchors")
			}
			p.anchor = n
		case "Transpose":
			return nil, fmt.Errorf("a Transpose beside the anchor")
		}
	}
	if p.anchor == nil {
		return nil, fmt.Errorf("no depthwise Conv, MaxPool or AveragePool in %s", region.Name)
	}
	a, x, y := p.anchor, p.anchor.Inputs[0].Type, p.anchor.Outputs[0].Type
	if a.Attrs.String("layout", "NCHW") != "NHWC" || x.Rank() != 4 {
		return nil, fmt.Errorf("layout of %v", x)
	}
	if d := x.DType; d != ir.Float32 && d != ir.Float16 && d != ir.BFloat16 {
		return nil, fmt.Errorf("elements of type %v", d)
	}
	if len(a.Outputs) != 1 {
		return nil, fmt.Errorf("%s with two outputs", a.Op.Name)
	}
	p.n, p.h, p.w, p.c = x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
	p.oh, p.ow, p.co = y.Shape[1], y.Shape[2], y.Shape[3]
	if err := p.findBlocks(); err != nil {
		return nil, err
	}
	if p.work(schedule{1, 1, false}) == 0 || x.Numel() == 0 {
		return nil, fmt.Errorf("empty tensor")
	}
	if p.g*max(x.Numel(), y.Numel()) > math.MaxInt32 {
		return nil, fmt.Errorf("%v needs 64-bit indices", x)
	}
	s, d, pads := a.Attrs.Ints("strides"), a.Attrs.Ints("dilations"), a.Attrs.Ints("pads")
	p.sh, p.sw, p.dh, p.dw, p.ph, p.pw = s[0], s[1], d[0], d[1], pads[0], pads[1]
	p.multiplier = 1
	if a.Op.Name == "Conv" {
		return p, p.conv()
	}
	k := a.Attrs.Ints("kernel")
	p.kh, p.kw = k[0], k[1]
	if padded := pads[0]|pads[1]|pads[2]|pads[3] != 0; a.Op.Name == "AveragePool" && (a.Attrs.Bool("ceil") || padded && !a.Attrs.Bool("include_pad")) {
		return nil, fmt.Errorf("AveragePool whose divisor varies")
	}
	return p, nil
}

// findBlocks finds the BlockQuantize that the body may end with.
func (p *problem) findBlocks() error {
	outs := p.region.Body.Outputs
	if last := outs[0].Def; last != nil && last.Op.Name == "BlockQuantize" {
		if len(outs) != 2 || outs[0] != last.Outputs[0] || outs[1] != last.Outputs[1] {
			return fmt.Errorf("the outputs are not the two of %s", last.Name)
		}
		if p.co%ir.NVFP4Block != 0 {
			return fmt.Errorf("%d channels are not whole blocks of %d", p.co, ir.NVFP4Block)
		}
		p.blocks = last
		return nil
	}
	if len(outs) != 1 {
		return fmt.Errorf("more than one output")
	}
	return nil
}

// output is the value of the body that is stored, rounded to its type or in blocks.
func (p *problem) output() *ir.Value {
	if p.blocks != nil {
		return p.blocks.Inputs[0]
	}
	return p.region.Body.Outputs[0]
}

// conv checks that the convolution is depthwise and packs its weights.
func (p *problem) conv() error {
	a := p.anchor
	w := a.Inputs[1].Type.Shape
	if a.Attrs.Int("group", 1) != p.c || w[1] != 1 {
		return fmt.Errorf("the Conv is not depthwise")
	}
	p.multiplier, p.kh, p.kw = p.co/p.c, w[2], w[3]
	t, stacked, err := p.constant(a.Inputs[1])
	if err != nil {
		return err
	}
	x := t.Floats()
	p.weights = make([]byte, 0, 4*p.g*p.kh*p.kw*p.co)
	for g := range p.g {
		member := 0
		if stacked {
			member = g * p.co * p.kh * p.kw
		}
		for tap := range p.kh * p.kw {
			for c := range p.co {
				p.weights = binary.LittleEndian.AppendUint32(p.weights, math.Float32bits(float32(x[member+c*p.kh*p.kw+tap])))
			}
		}
	}
	return nil
}

// constant finds the data of a body value that is a constant, directly or through Cast and Reshape of one.
func (p *problem) constant(v *ir.Value) (t *ir.Tensor, stacked bool, err error) {
	for v.Def != nil && (v.Def.Op.Name == "Cast" || v.Def.Op.Name == "Reshape") {
		v = v.Def.Inputs[0]
	}
	if v.Const != nil {
		return v.Const, false, nil
	}
	for i, in := range p.region.Body.Inputs {
		if in == v && p.region.Inputs[i].Const != nil {
			s := p.region.Attrs.Bools("stacked")
			return p.region.Inputs[i].Const, i < len(s) && s[i], nil
		}
	}
	return nil, false, fmt.Errorf("the weights are not constant")
}

// work is the number of threads that have something to do.
func (p *problem) work(s schedule) int {
	return p.g * p.n * p.oh * (p.ow / s.Pixels) * (p.co / s.Channels)
}

// choose takes the largest vector, and the most pixels a thread that divide a row and still leave every SM two blocks, or, on small images,
// the smallest work a thread.
func (p *problem) choose(t *target.Target) schedule {
	s := schedule{Channels: 1, Pixels: 1}
	widest := 8
	if p.region.Outputs[0].Type.DType == ir.Float32 {
		widest = 4
	}
	if p.region.Outputs[0].Type.DType == ir.Float8E4M3FN && p.work(schedule{16, 1, false}) >= t.SMs*threads {
		widest = 16
	}
	if p.blocks != nil {
		widest = ir.NVFP4Block
	}
	for v := widest; v > 1; v /= 2 {
		if p.co%v == 0 && (p.multiplier == 1 || v%p.multiplier == 0) {
			s.Channels = v
			break
		}
	}
	for _, pixels := range []int{4, 2} {
		if s.Pixels == 1 && p.ow%pixels == 0 && p.work(schedule{s.Channels, pixels, false}) >= 2*t.SMs*threads {
			s.Pixels = pixels
		}
	}
	s.Unroll = p.kh*p.kw*s.Channels*s.Pixels <= maxUnrolled
	return s
}

// neutral is what the anchor's padding contributes.
func (p *problem) neutral(b *expr.Builder) *expr.Expr {
	if p.anchor.Op.Name == "MaxPool" {
		return b.F32(math.Inf(-1))
	}
	return b.F32(0)
}
