package onnx

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/ir"
)

// Marshal encodes the model. The same model gives the same bytes.
func (m *Model) Marshal() ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	if err != nil {
		return nil, m.fileError("encoding: %w", err)
	}
	return data, nil
}

// Save writes the model to path, which is either replaced as a whole or left as it was. External data is not copied.
func (m *Model) Save(path string) (err error) {
	data, err := m.Marshal()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// TensorFile encodes a tensor as a file of its own, as ONNX test data sets hold them.
func TensorFile(name string, t *ir.Tensor) ([]byte, error) {
	p := TensorProto(t)
	p.Name = proto.String(name)
	return proto.Marshal(p)
}
