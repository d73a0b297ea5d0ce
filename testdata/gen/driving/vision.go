package driving

import (
	"fmt"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// head is a part of an output vector that layers of its own compute.
type head struct {
	name string
	size int
}

// Heads of the vision model, with openpilot's names and sizes.
var visionHeads = []head{{"meta", 55}, {"desire_pred", 32}, {"pose", 12}, {"wide_from_device_euler", 6}, {"road_transform", 12},
	{"lane_lines", 528}, {"lane_lines_prob", 8}, {"road_edges", 264}, {"lead", 144}, {"lead_prob", 3}}

// visionSize says how large a vision model is.
type visionSize struct {
	tower            tower
	height, width    int // of an image
	features, hidden int // of the vector that the heads share, and inside a head
	samples          int
}

var visionSizes = map[Size]visionSize{
	Full:  {tower{64, []int{2, 2, 6, 2}, 64}, 128, 256, 512, 256, 4},
	Small: {tower{16, []int{2, 2, 6, 2}, 16}, 64, 128, 128, 64, 8},
	Tiny:  {tower{8, []int{1, 1, 1}, 8}, 32, 64, 32, 16, 8},
}

// Vision maps two camera images to the vector of vision outputs and the features for the policy, in fp16.
func Vision(size Size) *Model {
	return visionOf(size, ir.Float16)
}

func visionOf(size Size, d ir.DType) *Model {
	s := visionSizes[size]
	n := newNet("main_graph", 17, d, s.samples, 0x5eed0001)
	h := n.vision(s, n.inputs(frameInputs(s)))
	outs := n.heads(h, visionHeads, s.hidden)
	out := n.rename(n.concat("", 1, append(outs, h)...), "outputs")
	n.output(out)
	slices := append(layout(visionHeads), onnx.Slice{Name: "hidden_state", Start: total(visionHeads), End: out.size()})
	return n.model("vision", append(slices, onnx.Slice{Name: "pad", Start: -2, End: out.size()}), frameInputs(s)...)
}

// frameInputs are the two images.
func frameInputs(s visionSize) []Input {
	return []Input{{"img", ir.T(ir.Uint8, 1, 12, s.height, s.width), frame}, {"big_img", ir.T(ir.Uint8, 1, 12, s.height, s.width), frame}}
}

// vision runs the two towers on the two images, and whitens and mixes their results into one vector of features.
func (n *net) vision(s visionSize, images []value) value {
	var pooled []value
	for i, name := range []string{"narrow", "wide"} {
		pooled = append(pooled, s.tower.build(n, name, n.centered(images[i])))
	}
	both := n.concat("", 1, pooled...)
	both = n.batchNorm("/whiten", "whiten", both, 0, 1, 1e-5, onnx.A("momentum", 1.0), onnx.A("training_mode", 0))
	return n.layerNorm("/norm", "norm", n.gemm("/mix", "mix", both, s.features, 1))
}

// centered are a picture's bytes around 0.
func (n *net) centered(picture value) value {
	x := n.op("", "Cast", []string{picture.name}, onnx.A("to", n.d))
	x = n.op("", "Sub", []string{x, n.scalar("", 128)})
	x = n.op("", "Div", []string{x, n.scalar("", 64)})
	return n.made(x, picture.x.mapped(func(v float32) float32 { return (v - 128) / 64 }), picture.shape...)
}

// heads applies three linear layers for each head to the shared features.
func (n *net) heads(x value, list []head, hidden int) []value {
	var out []value
	for i, h := range list {
		at := func(layer int) (path, module string) {
			return fmt.Sprintf("/heads.%d/heads.%d.%d", i, i, layer), fmt.Sprintf("heads.%d.%d", i, layer)
		}
		path, module := at(0)
		y := n.gemm(path, module, x, hidden, 1)
		path, _ = at(1)
		y = n.relu(path, y)
		path, module = at(2)
		y = n.gemm(path, module, y, hidden, 1)
		path, _ = at(3)
		y = n.gelu(path, y)
		path, module = at(4)
		out = append(out, n.gemm(path, module, y, h.size, 1))
	}
	return out
}

// layout says where each head lies in their concatenation.
func layout(heads []head) []onnx.Slice {
	var out []onnx.Slice
	at := 0
	for _, h := range heads {
		out = append(out, onnx.Slice{Name: h.name, Start: at, End: at + h.size})
		at += h.size
	}
	return out
}

func total(heads []head) int {
	n := 0
	for _, h := range heads {
		n += h.size
	}
	return n
}
