package sim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// writeOutside writes a policy whose weights are in another file of its directory, weights.bin.
func writeOutside(path string) error {
	if err := writePolicy(path, "observation", "action"); err != nil {
		return err
	}
	m, err := onnx.Load(path)
	if err != nil {
		return err
	}
	w := m.Proto.Graph.Initializer[0]
	raw := slices.Clone(w.RawData)
	key, value := "location", "weights.bin"
	w.RawData, w.DataLocation = nil, onnxpb.TensorProto_EXTERNAL.Enum()
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: &key, Value: &value}}
	return errors.Join(m.Save(path), os.WriteFile(filepath.Join(filepath.Dir(path), value), raw, 0o644))
}

// writePolicy writes a policy that follows the road and turns the car back by its distance and angle, with an
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
