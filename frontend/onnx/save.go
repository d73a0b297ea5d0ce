package onnx

import (
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/ir"
)

// Marshal encodes the model. The same model gives the same bytes.
func (m *Model) Marshal() ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	if err != nil {
		return nil, m.fileError("encoding: %w", err).WithRemedy("a model of 2 GB or more keeps its tensors in another file")
	}
	return data, nil
}

// Save writes the model to path. On an error the file at path stays as it was. External data is not copied.
func (m *Model) Save(path string) error {
	data, err := m.Marshal()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}

// TensorFile encodes a tensor as a .pb file of an ONNX test data set.
func TensorFile(name string, t *ir.Tensor) ([]byte, error) {
	p := TensorProto(t)
	p.Name = proto.String(name)
	return proto.Marshal(p)
}
