package driving

import (
	"fmt"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// inverted is an inverted residual: 1×1 up, depthwise k×k, 1×1 down, and the input added where shapes allow.
type inverted struct{ expand, k, stride, out int }

// The driver-monitoring model's blocks: an EfficientNet-B0 without squeeze-excite and last stage.
var monitoringBlocks = []inverted{{1, 3, 1, 16}, {6, 3, 2, 24}, {6, 3, 1, 24}, {6, 5, 2, 40}, {6, 5, 1, 40}, {6, 3, 2, 80},
	{6, 3, 1, 80}, {6, 3, 1, 80}, {6, 5, 1, 112}, {6, 5, 1, 112}, {6, 5, 1, 112}}

// DMonitoring maps an image of the driver's face to where the driver looks, in fp32 and opset 9.
func DMonitoring(size Size) *Model {
	h, w, count, blocks := 320, 160, 4, monitoringBlocks
	switch size {
	case Small:
		h, w, count = 80, 40, 8
	case Tiny:
		h, w, count, blocks = 40, 20, 8, monitoringBlocks[:5]
	}
	n := newNet("torch-jit-export", 9, ir.Float32, count, 0x5eed0003)
	in := Input{"input_img", ir.T(n.d, 1, 6, h, w), pixels}
	x := n.bnConv(n.input(in), "stem", conv{cout: 32, k: 3, stride: 2, groups: 1}, true)
	x = n.invertedBlocks(x, blocks)
	x = n.relu("", n.biasedConv(x, "reduce.0", 32))
	x = n.biasedConv(x, "reduce.1", 4)
	flat := n.op("", "Flatten", []string{x.name}, onnx.A("axis", 1))
	out := n.rename(n.monitoringHeads(n.relu("", n.made(flat, x.x, 1, x.size()))), "outputs")
	n.output(out)
	return n.model("dmonitoring", nil, in)
}

// invertedBlocks applies inverted residuals.
func (n *net) invertedBlocks(x value, blocks []inverted) value {
	for i, b := range blocks {
		name := fmt.Sprintf("blocks.%d", i)
		c := x.shape[1]
		y := x
		if b.expand > 1 {
			y = n.bnConv(y, name+".expand", conv{cout: b.expand * c, k: 1, stride: 1, groups: 1}, true)
		}
		y = n.bnConv(y, name+".depthwise", conv{cout: b.expand * c, k: b.k, stride: b.stride, groups: b.expand * c}, true)
		y = n.bnConv(y, name+".project", conv{cout: b.out, k: 1, stride: 1, groups: 1}, false)
		if b.stride == 1 && b.out == c {
			y = n.add("", y, x)
		}
		x = y
	}
	return x
}

// bnConv is a convolution without bias, a BatchNorm and, if asked, a Relu.
func (n *net) bnConv(x value, module string, c conv, activate bool) value {
	w, y, oh, ow := n.draw(x, c)
	name := n.op("", "Conv", []string{x.name, n.weight(module+".weight", w, c.cout, x.shape[1]/c.groups, c.k, c.k)}, c.attrs()...)
	z := n.made(name, y, 1, c.cout, oh, ow)
	if !activate {
		return n.batchNorm("", module+".bn", z, 0, 1, 1e-3, onnx.A("momentum", .99))
	}
	// A Relu that cuts half of everything, 25 times in a row, would magnify rounding errors a hundredfold.
	return n.relu("", n.batchNorm("", module+".bn", z, 1, 1, 1e-3, onnx.A("momentum", .99)))
}

// biasedConv is a 1×1 convolution with a bias.
func (n *net) biasedConv(x value, module string, cout int) value {
	c := conv{cout: cout, k: 1, stride: 1, groups: 1}
	w, y, oh, ow := n.draw(x, c)
	scale, bias := n.normalise(w, y, cout, 1)
	in := []string{x.name, n.weight(module+".weight", w, cout, x.shape[1], 1, 1), n.weight(module+".bias", bias, cout)}
	return n.made(n.op("", "Conv", in, c.attrs()...), y.affine(scale, bias), 1, cout, oh, ow)
}

// monitoringHeads applies 23 Gemms: three trunks of three, and one for each part of the output, with a sigmoid for probabilities.
func (n *net) monitoringHeads(x value) value {
	trunk := func(name string, widths ...int) value {
		y := x
		for i, w := range widths {
			y = n.relu("", n.gemm("", fmt.Sprintf("%s.%d", name, i), y, w, 1))
		}
		return y
	}
	face, eyes, state := trunk("face", 32, 32, 16), trunk("eyes", 32, 16, 16), trunk("state", 48, 32, 16)
	count := 0
	out := func(from value, size int) value {
		count++
		return n.gemm("", fmt.Sprintf("out.%d", count), from, size, 1)
	}
	prob := func(from value) value { return n.sigmoid("", out(from, 1)) }
	return n.concat("", 1, out(face, 12), prob(face), out(eyes, 8), prob(eyes), out(eyes, 8), prob(eyes), prob(eyes), prob(eyes),
		prob(face), prob(state), prob(state), prob(state), prob(state), prob(state))
}
