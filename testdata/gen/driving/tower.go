package driving

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/frontend/onnx"
)

// tower is a FastViT in the form that it is trained in: parallel branches, not yet merged into one convolution each.
// Paper: Vasu et al., FastViT (2023); sizes of full models are those of SA12.
type tower struct {
	channels int   // of the stem; doubled by each stage and by the last convolution
	blocks   []int // of each stage; the last stage attends
	squeeze  int   // channels inside squeeze-excite
}

// build applies the tower to an image; the result is [1, 16·channels].
func (t tower) build(n *net, name string, x value) value {
	path := "/" + name
	mod := func(format string, args ...any) string { return name + "." + fmt.Sprintf(format, args...) }
	at := func(format string, args ...any) string { return path + "/" + fmt.Sprintf(format, args...) }

	c := t.channels
	x = n.gelu(at("stem/stem.0/act"), n.branches(at("stem/stem.0"), mod("stem.0"), x, conv{cout: c, k: 3, stride: 2, groups: 1}))
	x = n.gelu(at("stem/stem.1/act"), n.branches(at("stem/stem.1"), mod("stem.1"), x, conv{cout: c, k: 3, stride: 2, groups: c}))
	x = n.gelu(at("stem/stem.2/act"), n.branches(at("stem/stem.2"), mod("stem.2"), x, conv{cout: c, k: 1, stride: 1, groups: 1}))
	for s, blocks := range t.blocks {
		stage, module := at("stages.%d", s), mod("stages.%d", s)
		if s > 0 {
			x = n.downsample(stage+"/downsample/proj", module+".downsample.proj", x)
			c *= 2
		}
		last := s == len(t.blocks)-1
		if last {
			enc := n.convPlain(stage+"/pos_emb/pos_enc", module+".pos_emb.pos_enc", x, conv{cout: c, k: 7, stride: 1, groups: c, gain: .5})
			x = n.add(stage+"/pos_emb", enc, x)
		}
		for b := range blocks {
			p, m := fmt.Sprintf("%s/blocks/blocks.%d", stage, b), fmt.Sprintf("%s.blocks.%d", module, b)
			if last {
				x = n.attentionBlock(p, m, x)
			} else {
				x = n.mixerBlock(p, m, x)
			}
		}
	}
	x = n.branches(at("final_conv"), mod("final_conv"), x, conv{cout: 2 * c, k: 3, stride: 1, groups: c})
	x = n.squeezeExcite(at("final_conv/se"), mod("final_conv.se"), x, t.squeeze)
	x = n.gelu(at("final_conv/act"), x)
	y := n.op(at("head/global_pool/pool"), "GlobalAveragePool", []string{x.name})
	y = n.op(at("head/global_pool/flatten"), "Flatten", []string{y}, onnx.A("axis", 1))
	return n.made(y, x.x.pooled(2*c), 1, 2*c)
}

// branches is a MobileOne block without its activation: identity, 1×1 and k×k in parallel, each with a BatchNorm.
func (n *net) branches(path, module string, x value, c conv) value {
	identity := c.stride == 1 && c.cout == x.shape[1]
	count := 1
	if identity {
		count++
	}
	if c.k > 1 {
		count++
	}
	c.gain = float32(1 / math.Sqrt(float64(count)))
	var side []value
	if identity {
		side = append(side, n.batchNorm(path+"/identity", module+".identity", x, 0, c.gain, 1e-5, onnx.A("momentum", 1.0), onnx.A("training_mode", 0)))
	}
	if c.k > 1 {
		one := c
		one.k = 1
		side = append(side, n.convBN(path+"/conv_scale/conv", x, one))
	}
	sum := side[len(side)-1]
	if len(side) == 2 {
		sum = n.add(path, sum, side[0])
	} else { // 0 stands for the absent branch
		sum = n.made(n.op(path, "Add", []string{sum.name, n.scalar(path, 0)}), sum.x, sum.shape...)
	}
	return n.add(path, sum, n.convBN(path+"/conv_kxk.0/conv", x, c))
}

// downsample halves the resolution and doubles the channels.
func (n *net) downsample(path, module string, x value) value {
	c := x.shape[1]
	const gain = .7
	large := n.convBN(path+"/proj.0/large_conv/conv", x, conv{cout: 2 * c, k: 7, stride: 2, groups: c, gain: gain})
	small := n.convBN(path+"/proj.0/small_conv/conv", x, conv{cout: 2 * c, k: 3, stride: 2, groups: c, gain: gain})
	y := n.add(path+"/proj.0", large, small)
	y = n.branches(path+"/proj.1", module+".1", y, conv{cout: 2 * c, k: 1, stride: 1, groups: 1})
	return n.gelu(path+"/proj.1/act", y)
}

// mixerBlock is x + γ(mixer(x) − norm(x)), then a convolutional MLP.
func (n *net) mixerBlock(path, module string, x value) value {
	mix, mod := path+"/token_mixer", module+".token_mixer"
	mixer := n.branches(mix+"/mixer", mod+".mixer", x, conv{cout: x.shape[1], k: 3, stride: 1, groups: x.shape[1]})
	norm := n.batchNorm(mix+"/norm/identity", mod+".norm.identity", x, 0, 1, 1e-5, onnx.A("momentum", 1.0), onnx.A("training_mode", 0))
	y := n.made(n.op(mix, "Sub", []string{mixer.name, norm.name}),
		mixer.x.zipped(norm.x, func(a, b float32) float32 { return a - b }), x.shape...)
	x = n.add(mix, x, n.layerScale(mix+"/layer_scale", mod+".layer_scale", y))
	return n.add(path, x, n.layerScale(path+"/layer_scale", module+".layer_scale", n.convMLP(path+"/mlp", module+".mlp", x)))
}

// attentionBlock attends over pixels, then a convolutional MLP.
func (n *net) attentionBlock(path, module string, x value) value {
	norm := n.batchNorm(path+"/norm", module+".norm", x, 0, 1, 1e-5, onnx.A("momentum", 1.0), onnx.A("training_mode", 0))
	y := n.spatialAttention(path+"/token_mixer", module+".token_mixer", norm)
	x = n.add(path, x, n.layerScale(path+"/layer_scale_1", module+".layer_scale_1", y))
	y = n.convMLP(path+"/mlp", module+".mlp", x)
	return n.add(path, x, n.layerScale(path+"/layer_scale_2", module+".layer_scale_2", y))
}

func (n *net) convMLP(path, module string, x value) value {
	c := x.shape[1]
	y := n.convBN(path+"/conv/conv", x, conv{cout: c, k: 7, stride: 1, groups: c, gain: 1})
	y = n.convPlain(path+"/fc1", module+".fc1", y, conv{cout: 4 * c, k: 1, stride: 1, groups: 1, gain: 1})
	y = n.gelu(path+"/act", y)
	return n.convPlain(path+"/fc2", module+".fc2", y, conv{cout: c, k: 1, stride: 1, groups: 1, gain: .5})
}

func (n *net) squeezeExcite(path, module string, x value, squeeze int) value {
	c := x.shape[1]
	y := n.made(n.op(path, "ReduceMean", []string{x.name}, onnx.A("axes", []int{2, 3}), onnx.A("keepdims", 1)), x.x.pooled(c), 1, c, 1, 1)
	y = n.convPlain(path+"/fc1", module+".fc1", y, conv{cout: squeeze, k: 1, stride: 1, groups: 1, gain: 1})
	y = n.relu(path+"/act", y)
	y = n.convPlain(path+"/fc2", module+".fc2", y, conv{cout: c, k: 1, stride: 1, groups: 1, gain: 1})
	y = n.sigmoid(path+"/gate", y)
	pixels := x.size() / c
	z := x.x.elements(func(i, j int, v float32) float32 { return float32(v * y.x[i][j/pixels]) })
	return n.made(n.op(path, "Mul", []string{x.name, y.name}), z, x.shape...)
}

// pooled is the mean of each of c channels.
func (s samples) pooled(c int) samples {
	return s.each(func(_ int, x []float32) []float32 {
		mean, _ := samples{x}.moments(c)
		return mean
	})
}
