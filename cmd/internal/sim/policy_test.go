package sim

import (
	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// writePolicy writes a policy that follows the road ahead and turns the car back by its distance and angle, with an
// input and an output of the given names.
func writePolicy(path, input, output string) error {
	by := map[string][2]float64{
		"road1": {1, 0}, "offset": {-.002, 0}, "heading": {-.08, 0}, "cruise": {0, .5}, "speed": {0, -.5},
	}
	var w []float64
	for _, o := range scenario.Observations {
		x := by[o.Name]
		w = append(w, x[:]...)
	}
	b := onnx.NewBuilder("policy", 17)
	b.Input(input, ir.Float32, "N", len(scenario.Observations))
	weight := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, len(scenario.Observations), 2), w))
	b.Node("MatMul", []string{input, weight}, []string{output})
	b.Output(output, ir.Float32, "N", 2)
	m, err := b.Model()
	if err != nil {
		return err
	}
	return m.Save(path)
}
