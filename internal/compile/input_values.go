package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// InputValues are the constants that inputs of a model are bound to, by --input NAME=VALUE: a number, several with commas
// between them, or an .npy file. shapes are those of --shape.
func InputValues(m *onnx.Model, values map[string]string, shapes map[string][]int) (map[string]*ir.Tensor, error) {
	constants := map[string]*ir.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var err error
		if path := values[name]; strings.HasSuffix(path, ".npy") {
			constants[name], err = readTensor(path)
		} else {
			constants[name], err = m.InputValue(name, path, shapes[name])
		}
		if err != nil {
			return nil, err
		}
	}
	return constants, nil
}

func readTensor(path string) (*ir.Tensor, error) {
	a, err := npy.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d, err := ir.ParseDType(a.DType)
	if err != nil {
		return nil, err
	}
	return ir.NewTensor(ir.T(d, a.Shape...), a.Data)
}
