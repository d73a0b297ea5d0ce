package driving

import (
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// Outputs of a driver-monitoring model: the same for each seat, then what is of the car.
var seatHeads = []head{{"face_descs", 12}, {"face_prob", 1}, {"left_eye_prob", 1}, {"right_eye_prob", 1}, {"sunglasses_prob", 1},
	{"left_blink_prob", 1}, {"right_blink_prob", 1}, {"using_phone_prob", 1}}

func lumaHeads() []head {
	var out []head
	for _, side := range []string{"lhd", "rhd"} {
		for _, h := range seatHeads {
			out = append(out, head{h.name + "_" + side, h.size})
		}
	}
	return append(out, head{"wheel_on_right", 1})
}

// lumaSizes are the picture's height and the number of blocks; the picture is half as wide again.
var lumaSizes = map[Size]struct{ height, blocks, hidden, samples int }{
	Full: {960, len(monitoringBlocks), 128, 4}, Small: {160, len(monitoringBlocks), 32, 8}, Tiny: {64, 5, 8, 8},
}

// monitoringLuma maps the luma of the driver camera, a flat vector of bytes, and the device's calibration to where the people in
// both seats look.
func monitoringLuma(size Size, d ir.DType) *Model {
	const name = "dmonitoring_luma"
	s := lumaSizes[size]
	h, w := s.height, s.height*3/2
	n := newNet("main_graph", 17, d, s.samples, seedOf(name))
	inputs := []Input{{"input_img", ir.T(ir.Uint8, 1, h*w), luma}, {"calib", ir.T(d, 1, 3), normal}}
	picture, calib := n.input(inputs[0]), n.input(inputs[1])
	x := n.centered(n.reshaped("", picture, 1, 1, h, w))
	x = n.bnConv(x, "stem", conv{cout: 16, k: 3, stride: 2, groups: 1}, true)
	x = n.bnConv(x, "stem2", conv{cout: 32, k: 3, stride: 2, groups: 1}, true)
	x = n.relu("", n.biasedConv(n.invertedBlocks(x, monitoringBlocks[:s.blocks]), "reduce", 64))
	pooled := n.op("", "Flatten", []string{n.op("", "GlobalAveragePool", []string{x.name})}, onnx.A("axis", 1))
	y := n.batchNorm("", "norm", n.made(pooled, x.x.pooled(64), 1, 64), 0, 1, 1e-5)
	features := n.relu("", n.gemm("", "features", n.concat("", 1, y, calib), 512, 1))
	heads := lumaHeads()
	out := n.concat("", 1, append(n.heads(features, heads, s.hidden), features)...)
	n.output(n.rename(out, "outputs"))
	return n.model(name, append(layout(heads), onnx.Slice{Name: "features", Start: total(heads), End: out.size()}), inputs...)
}
