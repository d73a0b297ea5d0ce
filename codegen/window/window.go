package window

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

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

	stored ir.DType  // of x in memory
	taps   []float64 // weights of members and output channels, [kh·kw] each; nil for pools
	bias   []float64 // of members and output channels; nil where there is none that is constant
}

// stem names the kernel.
func (p *problem) stem() string {
	if p.taps == nil {
		return fmt.Sprintf("pool%dx%d", p.kh, p.kw)
	}
	return fmt.Sprintf("dwconv%dx%d", p.kh, p.kw)
}

// spec is the kernel of a schedule.
func (p *problem) spec(s schedule, ctx *kernel.Context, _ *ir.Node) (*kernel.Spec, error) {
	g, err := newGen(p, s, ctx)
	if err != nil {
		return nil, err
	}
	return &kernel.Spec{Stem: p.stem(), Family: ir.FamilyWindow, Grid: [3]int{s.blocks(p), 1, 1}, Block: [3]int{s.threads(), 1, 1},
		Shared: s.shared(p), Operands: g.l.Operands, MACs: p.region.MACs(), Note: p.region.Name,
		Schedule: fmt.Sprintf("%s unroll=%v", s, s.unrolled(p)), Emit: g.emit}, nil
}

func (p *problem) fewBlocks() string {
	return fmt.Sprintf("%d output pixels of %d channels", p.g*p.n*p.oh*p.ow, p.co)
}

func (p *problem) what() string {
	what := fmt.Sprintf("%s %dx%dx%dx%d", p.stem(), p.n, p.oh, p.ow, p.co)
	if p.g > 1 {
		what += fmt.Sprintf(" members=%d", p.g)
	}
	return what
}

func (p *problem) noSuch() string {
	return fmt.Sprintf("no such tile of %dx%d pixels and %d channels: want a form like tile=4x8x32 thread=2x4, rows, columns and channels of a block, and pixels and channels of a thread", p.oh, p.ow, p.co)
}

func (p *problem) all() iter.Seq[schedule]                     { return slices.Values(p.candidates()) }
func (p *problem) placed(s schedule) schedule                  { return s.placed(p) }
func (p *problem) shared(s schedule) int                       { return s.shared(p) }
func (p *problem) work(s schedule, m *cost.Machine) *cost.Work { return s.work(p, m) }

// analyse finds the anchor and reads its geometry.
func analyse(region *ir.Node) (*problem, error) {
	region, err := region.Explicit()
	if err != nil {
		return nil, err
	}
	p := &problem{region: region, anchor: region.Region.Anchor(), blocks: region.Region.BlockQuantize(), g: region.Region.Count()}
	if p.anchor == nil || !slices.Contains([]string{"Conv", "MaxPool", "AveragePool"}, p.anchor.Op.Name) {
		return nil, fmt.Errorf("no depthwise Conv, MaxPool or AveragePool in %s", region.Name)
	}
	if slices.ContainsFunc(region.Region.Body.Nodes, func(n *ir.Node) bool { return n.Op.Name == "Transpose" }) {
		return nil, fmt.Errorf("a window kernel computes no Transpose")
	}
	a, x, y := p.anchor, p.anchor.Inputs[0].Type, p.anchor.Outputs[0].Type
	if a.Attrs.String("layout", "NCHW") != "NHWC" || x.Rank() != 4 {
		return nil, fmt.Errorf("the layout of %v is not NHWC", x)
	}
	if d := x.DType; d != ir.Float32 && d != ir.Float16 && d != ir.BFloat16 {
		return nil, fmt.Errorf("no window kernel for elements of type %v", d)
	}
	if len(a.Outputs) != 1 {
		return nil, fmt.Errorf("%s with two outputs", a.Op.Name)
	}
	p.n, p.h, p.w, p.c = x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
	p.oh, p.ow, p.co = y.Shape[1], y.Shape[2], y.Shape[3]
	switch {
	case p.blocks == nil && len(region.Outputs) != 1:
		return nil, fmt.Errorf("more than one output")
	case p.blocks != nil && p.co%ir.BlockSize != 0:
		return nil, fmt.Errorf("%d channels are not whole blocks of %d", p.co, ir.BlockSize)
	}
	if y.Numel() == 0 || x.Numel() == 0 {
		return nil, fmt.Errorf("empty tensor")
	}
	if p.g*max(x.Numel(), y.Numel()) > math.MaxInt32 {
		return nil, fmt.Errorf("%v needs 64-bit indices", x)
	}
	p.stored = storedType(a.Inputs[0])
	s, d, pads := a.Attrs.Ints("strides"), a.Attrs.Ints("dilations"), a.Attrs.Ints("pads")
	p.sh, p.sw, p.dh, p.dw, p.ph, p.pw = s[0], s[1], d[0], d[1], pads[0], pads[1]
	p.multiplier = 1
	if a.Op.Name == "Conv" {
		return p, p.conv()
	}
	k := a.Attrs.Ints("kernel")
	p.kh, p.kw = k[0], k[1]
	if padded := pads[0]|pads[1]|pads[2]|pads[3] != 0; a.Op.Name == "AveragePool" && (a.Attrs.Bool("ceil") || padded && !a.Attrs.Bool("include_pad")) {
		return nil, fmt.Errorf("the AveragePool's divisor varies over the image")
	}
	return p, nil
}

// output is the value of the body that is stored, rounded to its type or in blocks.
func (p *problem) output() *ir.Value {
	if p.blocks != nil {
		return p.blocks.Inputs[0]
	}
	return p.region.Region.Body.Outputs[0]
}

// conv checks that the convolution is depthwise and finds its weights.
func (p *problem) conv() error {
	a := p.anchor
	w := a.Inputs[1].Type.Shape
	if !a.Depthwise() {
		return fmt.Errorf("the Conv is not depthwise")
	}
	p.multiplier, p.kh, p.kw = p.co/p.c, w[2], w[3]
	var err error
	if p.taps, err = p.constants(a.Inputs[1]); err != nil {
		return err
	}
	if a.In(2) != nil {
		p.bias, _ = p.constants(a.In(2)) // else the epilogue reads it
	}
	return nil
}

// constants are the elements of a body value that is constant, for all members.
func (p *problem) constants(v *ir.Value) ([]float64, error) {
	t, batched, err := p.constant(v)
	if err != nil {
		return nil, err
	}
	var out []float64
	n, all := v.Type.Numel(), t.Floats()
	for range p.g {
		out = append(out, all[:n]...)
		if batched {
			all = all[n:]
		}
	}
	return out, nil
}

// pack lays weights and bias out as a schedule's tiles read them: [member][tile of channels][tap][channel], f32. The
// bias is like one tap more.
func (p *problem) pack(s schedule) []byte {
	n := p.kh * p.kw
	out := make([]byte, 0, 4*(len(p.taps)+len(p.bias)))
	put := func(x float64) { out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x))) }
	for first := 0; first < p.g*p.co; first += s.Channels {
		for tap := range n {
			for c := first; c < first+s.Channels; c++ {
				put(p.taps[c*n+tap])
			}
		}
		if p.bias != nil {
			for _, x := range p.bias[first : first+s.Channels] {
				put(x)
			}
		}
	}
	return out
}

// storedType is the type in which a value of the body comes from memory.
func storedType(v *ir.Value) ir.DType {
	for v.Def != nil {
		v = v.Def.Inputs[0]
	}
	return v.Type.DType
}

// constant finds the data of a body value that is a constant, directly or through Cast and Reshape of one.
func (p *problem) constant(v *ir.Value) (t *ir.Tensor, batched bool, err error) {
	for v.Def != nil && (v.Def.Op.Name == "Cast" || v.Def.Op.Name == "Reshape") {
		v = v.Def.Inputs[0]
	}
	if v.Const != nil {
		return v.Const, false, nil
	}
	for i, in := range p.region.Region.Body.Inputs {
		if in == v && p.region.Inputs[i].Const != nil {
			return p.region.Inputs[i].Const, p.region.Region.Operands[i].Batched, nil
		}
	}
	return nil, false, fmt.Errorf("the weights are not constant")
}

// neutral is what the anchor's padding contributes.
func (p *problem) neutral(b *expr.Builder) *expr.Expr {
	if p.anchor.Op.Name == "MaxPool" {
		return b.F32(math.Inf(-1))
	}
	return b.F32(0)
}
