package clone

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/ir"
)

// Layers are the weights of the perceptron by name, from the first to the last.
var Layers = []string{"hidden.0.weight", "hidden.1.weight", "head.weight"}

// ONNX is the policy as a file, of one loop: observation f32 [1, len(Observations)] to action f32 [1, 2], with the
// names of its parts in output_slices.
func (p *Policy) ONNX(path string) (*onnx.Model, error) {
	k := len(scenario.Observations)
	b := onnx.NewBuilder("clone", 17)
	b.Metadata("output_slices", onnx.EncodeOutputSlices([]onnx.Slice{
		{Name: "curvature", Start: 0, End: 1}, {Name: "acceleration", Start: 1, End: 2},
	}))
	b.Input("observation", ir.Float32, 1, k)
	scalar := func(name string, x float64) string {
		return b.Initializer(name, ir.FromFloats(ir.T(ir.Float32, 1, 1), []float64{x}))
	}
	whole := func(name string, x int) string { return b.Initializer(name, ir.Vector(x)) }
	axis := whole("axis", 1)
	o := func(name string) string {
		i := at[name]
		return b.Op("Slice", []string{"observation", whole(name+".begin", i), whole(name+".end", i+1), axis})
	}
	mul := func(x, y string) string { return b.Op("Mul", []string{x, y}) }
	sub := func(x, y string) string { return b.Op("Sub", []string{x, y}) }
	speed := o("speed")
	v := b.Op("Max", []string{speed, scalar("slowest", 5)})
	squared := mul(v, v)
	across := mul(squared, scalar("lateral.scale", 1/float64(lateralScale)))
	var f []string
	f = append(f, o("offset"), mul(v, o("heading")))
	for _, name := range []string{"curvature", "road0", "road1", "road2", "road3"} {
		f = append(f, mul(across, o(name)))
	}
	fifth := scalar("fifth", 1.0/5)
	f = append(f, mul(speed, scalar("speed.scale", 1.0/20)),
		mul(b.Op("Min", []string{o("gap"), scalar("nearest", nearest)}), scalar("gap.scale", 1.0/40)),
		mul(sub(o("lead_speed"), speed), fifth), o("lead"), mul(sub(o("cruise"), speed), fifth),
		mul(o("accel"), scalar("accel.scale", 1/float64(accelScale))))
	x := b.Op("Concat", f, onnx.A("axis", 1))
	for i, l := range p.net.layers {
		turned := make([]float64, len(l.weight))
		for k, w := range l.weight {
			turned[k%l.in*l.out+k/l.in] = w
		}
		weight := b.Initializer(Layers[i], ir.FromFloats(ir.T(ir.Float32, l.in, l.out), turned))
		bias := b.Initializer(fmt.Sprintf("bias.%d", i), ir.FromFloats(ir.T(ir.Float32, l.out), l.bias))
		x = b.Op("Add", []string{b.Op("MatMul", []string{x, weight}), bias})
		if i < len(p.net.layers)-1 {
			x = b.Op("Relu", []string{x})
		}
	}
	half := func(i int) string {
		return b.Op("Slice", []string{x, whole(fmt.Sprint("half.begin", i), i), whole(fmt.Sprint("half.end", i), i+1), axis})
	}
	curvature := b.Op("Div", []string{mul(half(0), scalar("lateral.back", lateralScale)), squared})
	accel := mul(half(1), scalar("accel.back", accelScale))
	b.Node("Concat", []string{curvature, accel}, []string{"action"}, onnx.A("axis", 1))
	b.Output("action", ir.Float32, 1, 2)
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	return onnx.Decode(path, data)
}

// Damage is a policy with noise on the weights of one of its Layers, whose norm is a share of that of the weights.
func Damage(file *onnx.Model, layer string, share float64, seed uint64) (*onnx.Model, error) {
	m, err := dora.Open(file, onnx.ImportOptions{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Weights, func(w *dora.Weight) bool { return w.Name == layer })
	if i < 0 {
		return nil, fmt.Errorf("%s: no layer %q to damage; there are %s", file.Path, layer, strings.Join(Layers, ", "))
	}
	rows := m.Weights[i].Rows()
	rng := rand.New(rand.NewPCG(seed, 4))
	noise := make([]float64, len(rows))
	for k := range noise {
		noise[k] = rng.NormFloat64()
	}
	by := share * math.Sqrt(blas.Dot(rows, rows)/blas.Dot(noise, noise))
	for k := range rows {
		rows[k] += float64(by * noise[k])
	}
	return m.WithRows(map[string][]float64{layer: rows})
}
