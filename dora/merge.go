package dora

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/ir"
)

// Merge writes the base model with the adapter's weights in place of its own to path: adapted initializers change,
// rounded to their type, and nothing else does. The model's external data goes into files of the same names in
// path's directory. On an error nothing is left half-written.
func Merge(m *Model, a *Adapter, path string) error {
	p := proto.Clone(m.File.Proto).(*onnxpb.ModelProto)
	external := map[string][]patch{}
	by := map[string]*Layer{}
	for _, l := range a.Layers {
		by[l.Name] = l
	}
	for _, t := range p.GetGraph().GetInitializer() {
		location := ""
		if t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
			location = entryOf(t, "location")
			external[location] = append(external[location], patch{})
		}
		l := by[t.GetName()]
		if l == nil {
			continue
		}
		rows, err := l.MergedRows()
		if err != nil {
			return fmt.Errorf("%s: initializer %q: %w", m.File.Path, l.Name, err)
		}
		data, err := l.stored(rows)
		if err != nil {
			return fmt.Errorf("%s: initializer %q: %w", m.File.Path, l.Name, err)
		}
		if location != "" {
			at, err := strconv.ParseInt("0"+entryOf(t, "offset"), 10, 64)
			if err != nil {
				return fmt.Errorf("%s: initializer %q: offset: %w", m.File.Path, l.Name, err)
			}
			external[location] = append(external[location], patch{at, data})
			continue
		}
		store(t, data)
	}
	out := &onnx.Model{Path: path, Proto: p}
	text, err := out.Marshal()
	if err != nil {
		return err
	}
	same, err := sameFolder(m.File.Path, path)
	if err != nil {
		return err
	}
	if len(external) > 0 && same {
		return fmt.Errorf("%s: the model keeps weights in other files, which the merged one would overwrite here: write it to another folder", path)
	}
	var staged []*atomicfile.Staged
	defer func() {
		for _, s := range staged {
			s.Discard()
		}
	}()
	for location, patches := range external {
		s, err := patched(filepath.Dir(m.File.Path), filepath.Dir(path), location, patches)
		if err != nil {
			return err
		}
		staged = append(staged, s)
	}
	s, err := atomicfile.Stage(path, text)
	if err != nil {
		return err
	}
	staged = append(staged, s)
	for len(staged) > 0 {
		if err := staged[0].Commit(); err != nil {
			return err
		}
		staged = staged[1:]
	}
	return nil
}

// MergedFrom is the model with the adapter of a file merged, in memory: adapted initializers are in the model itself then.
func MergedFrom(file *onnx.Model, adapter string) (*onnx.Model, error) {
	m, err := Open(file, onnx.ImportOptions{})
	if err != nil {
		return nil, err
	}
	a, err := Load(adapter, m)
	if err != nil {
		return nil, err
	}
	return m.Merged(a)
}

// Merged is the model with the adapter merged, in memory, rounded to the types that its weights have.
func (m *Model) Merged(a *Adapter) (*onnx.Model, error) {
	rows := map[string][]float64{}
	for _, l := range a.Layers {
		var err error
		if rows[l.Name], err = l.MergedRows(); err != nil {
			return nil, fmt.Errorf("%s: initializer %q: %w", m.File.Path, l.Name, err)
		}
	}
	return m.WithRows(rows)
}

// WithRows is the model with other weights, in memory: rows [Out, Row] by the name of the initializer, rounded to its type.
func (m *Model) WithRows(rows map[string][]float64) (*onnx.Model, error) {
	p := proto.Clone(m.File.Proto).(*onnxpb.ModelProto)
	for _, t := range p.GetGraph().GetInitializer() {
		i := slices.IndexFunc(m.Weights, func(w *Weight) bool { return w.Name == t.GetName() })
		if i < 0 || rows[t.GetName()] == nil {
			continue
		}
		data, err := m.Weights[i].stored(rows[t.GetName()])
		if err != nil {
			return nil, fmt.Errorf("%s: initializer %q: %w", m.File.Path, t.GetName(), err)
		}
		store(t, data)
	}
	text, err := (&onnx.Model{Path: m.File.Path, Proto: p}).Marshal()
	if err != nil {
		return nil, err
	}
	return onnx.Decode(m.File.Path, text)
}

// store puts raw data into an initializer.
func store(t *onnxpb.TensorProto, data []byte) {
	t.FloatData, t.Int32Data, t.DoubleData, t.RawData = nil, nil, nil, data
	t.ExternalData, t.DataLocation = nil, nil
}

// patch is data to put at an offset of a file.
type patch struct {
	at   int64
	data []byte
}

// patched stages a copy of a file of external data with some of its bytes changed.
func patched(from, to, location string, patches []patch) (*atomicfile.Staged, error) {
	f, err := memory.OpenIn(from, location)
	if err != nil {
		return nil, fmt.Errorf("external data %q: %w", location, err)
	}
	defer f.Close()
	data, err := memory.ReadAll(f, f.Size())
	if err != nil {
		return nil, fmt.Errorf("external data %q: %w", location, err)
	}
	for _, p := range patches {
		if p.at < 0 || p.at > int64(len(data)-len(p.data)) {
			return nil, fmt.Errorf("external data %q ends before byte %d", location, p.at+int64(len(p.data)))
		}
		copy(data[p.at:], p.data)
	}
	path := filepath.Join(to, location)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return atomicfile.Stage(path, data)
}

func sameFolder(a, b string) (bool, error) {
	x, err := os.Stat(filepath.Dir(a))
	if err != nil {
		return false, nil // the model was read from elsewhere
	}
	y, err := os.Stat(filepath.Dir(b))
	return err == nil && os.SameFile(x, y), err
}

func entryOf(t *onnxpb.TensorProto, key string) string {
	i := slices.IndexFunc(t.ExternalData, func(e *onnxpb.StringStringEntryProto) bool { return e.GetKey() == key })
	if i < 0 {
		return ""
	}
	return t.ExternalData[i].GetValue()
}

// stored are the bytes of rows [Out, Row] as the file stores the weight.
func (w *Weight) stored(rows []float64) ([]byte, error) {
	x := rows
	if w.Transposed {
		x = make([]float64, len(rows))
		for o := range w.Out {
			for i := range w.Row {
				x[i*w.Out+o] = rows[o*w.Row+i]
			}
		}
	}
	for i, v := range x {
		if r := ir.RoundTo(w.DType, v); r-r != 0 {
			return nil, fmt.Errorf("merged weight %d is %v, which %v does not hold", i, v, w.DType)
		}
	}
	return ir.FromFloats(ir.T(w.DType, len(x)), x).Dense(), nil
}
