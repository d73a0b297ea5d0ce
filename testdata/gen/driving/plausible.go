package driving

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Plausible is a model of the same structure whose outputs look like a drive: a plan, lane lines, road edges and a car ahead on a straight road at
// 20 m/s. To that it adds what the model says, made small, and bends lines and plan by one number of it each. Other outputs are as they were.
func (m *Model) Plausible() (*Model, error) {
	file, err := onnx.Decode(m.Name, m.ONNX)
	if err != nil {
		return nil, err
	}
	g := file.Proto.Graph
	const output = "outputs"
	var kind *onnxpb.TypeProto_Tensor
	for _, o := range g.Output {
		if o.GetName() == output {
			kind = o.GetType().GetTensorType()
		}
	}
	if kind == nil {
		return nil, fmt.Errorf("%s: no output %q", m.Name, output)
	}
	dims := kind.GetShape().GetDim()
	n := int(dims[len(dims)-1].GetDimValue())
	slices, err := file.OutputSlices(n)
	if err != nil {
		return nil, err
	}
	scale, offset := make([]float64, n), make([]float64, n)
	for i := range scale {
		scale[i] = 1
	}
	raw := output + "_raw"
	for _, node := range g.Node {
		for i, name := range node.Output {
			if name == output {
				node.Output[i] = raw
			}
		}
	}
	d := map[int32]ir.DType{int32(onnxpb.TensorProto_FLOAT): ir.Float32, int32(onnxpb.TensorProto_FLOAT16): ir.Float16}[kind.GetElemType()]
	b := onnx.NewBuilder("plausible", 17)
	constant := func(name string, x []float64) string {
		return b.Initializer(output+"_"+name, ir.FromFloats(ir.T(d, 1, len(x)), x))
	}
	var bends []string
	for _, s := range slices {
		p, ok := plausible[s.Name]
		if !ok || s.End-s.Start != p.size {
			continue
		}
		bend := make([]float64, n)
		for i := range p.size {
			scale[s.Start+i], offset[s.Start+i], bend[s.Start+i] = p.at(i)
		}
		at := func(what string, i int) string {
			return b.Initializer(fmt.Sprintf("%s_%s_%s", output, s.Name, what), ir.Vector(i))
		}
		by := b.Op("Slice", []string{raw, at("from", s.Start), at("to", s.Start+1), at("axis", 1)})
		bends = append(bends, b.Op("Mul", []string{by, constant("bend_"+s.Name, bend)}))
	}
	sum := b.Op("Mul", []string{raw, constant("scale", scale)})
	for _, bend := range bends {
		sum = b.Op("Add", []string{sum, bend})
	}
	b.Node("Add", []string{sum, constant("offset", offset)}, []string{output})
	for _, node := range b.Graph().Node { // names that the model does not have
		node.Name = proto.String("/plausible" + node.GetName())
		for _, names := range [][]string{node.Input, node.Output} {
			for i, name := range names {
				if name != raw && name != output && !isInitializer(b.Graph(), name) {
					names[i] = "plausible_" + name
				}
			}
		}
	}
	g.Node = append(g.Node, b.Graph().Node...)
	g.Initializer = append(g.Initializer, b.Graph().Initializer...)
	out := *m
	out.ONNX, err = file.Marshal()
	return &out, err
}

func isInitializer(g *onnxpb.GraphProto, name string) bool {
	for _, t := range g.Initializer {
		if t.GetName() == name {
			return true
		}
	}
	return false
}

// steady is how element i of a part becomes plausible: times a scale, plus an offset, plus bend times the part's first element.
type steady struct {
	size int
	at   func(i int) (scale, offset, bend float64)
}

// What is steady, in metres and seconds: the standard deviations are exponents behind the numbers.
const (
	points  = 33
	speed   = 20
	bendOf  = .0004 // 1/m for 1
	quietly = .005  // how much of the model's own is left
	sigma   = -2    // logarithm of standard deviations
)

var plausible = map[string]steady{
	"plan": {2 * points * 15, func(i int) (float64, float64, float64) {
		if i >= points*15 {
			return quietly, sigma, 0
		}
		t := 10 * float64(square(i/15)) / float64(square(points-1))
		x := speed * t
		switch i % 15 {
		case 0: // x
			return quietly, x, 0
		case 1: // y
			return quietly, 0, bendOf * x * x / 2
		case 3: // speed
			return quietly, speed, 0
		case 11: // yaw
			return quietly / 10, 0, bendOf * x
		case 14: // its rate
			return quietly / 100, 0, bendOf * speed
		}
		return quietly / 10, 0, 0
	}},
	"lane_lines": {4 * points * 4, lines([]float64{-5.55, -1.85, 1.85, 5.55})},
	"road_edges": {2 * points * 4, lines([]float64{-7.4, 7.4})},
	"lane_lines_prob": {8, func(i int) (float64, float64, float64) {
		return quietly, []float64{.5, 3, 3, .5}[i/2], 0
	}},
	"lead": {3 * 6 * 4 * 2, func(i int) (float64, float64, float64) {
		if i >= 3*6*4 {
			return quietly, sigma, 0
		}
		return quietly, []float64{34 + float64(2*float64(i/4%6)), 0, speed, 0}[i%4], 0
	}},
	"lead_prob": {3, func(int) (float64, float64, float64) { return quietly, 3, 0 }},
	// Nobody takes over, and nothing brakes.
	"meta": {55, func(int) (float64, float64, float64) { return .2, -6, 0 }},
}

// lines are at so many metres to the right, on the road. Far points move with the bend.
func lines(right []float64) func(i int) (scale, offset, bend float64) {
	return func(i int) (float64, float64, float64) {
		if i >= len(right)*points*2 {
			return quietly, sigma, 0
		}
		x := 192 * float64(square(i/2%points)) / float64(square(points-1))
		if i%2 == 1 { // z
			return quietly / 4, 1.22, 0
		}
		return quietly, right[i/2/points], bendOf * math.Min(x*x, 1e4) / 2
	}
}

func square(x int) int { return x * x }
