package onnx

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// externalData reads the want bytes of a tensor that are in another file, in the model's directory or below it.
func (m *Model) externalData(t *onnxpb.TensorProto, want int) ([]byte, error) {
	var location string
	offset, length := int64(0), int64(-1)
	for _, kv := range t.ExternalData {
		var err error
		switch kv.GetKey() {
		case "location":
			location = kv.GetValue()
		case "offset":
			offset, err = parseSize(kv.GetValue())
		case "length":
			length, err = parseSize(kv.GetValue())
		}
		if err != nil {
			return nil, fmt.Errorf("%s of its external data: %w", kv.GetKey(), err)
		}
	}
	if location == "" {
		return nil, errors.New("external data without a location")
	}
	if m.Path == "" {
		return nil, fmt.Errorf("its data is in file %q, but the model was not read from a file", location)
	}
	if length >= 0 && length != int64(want) {
		return nil, fmt.Errorf("%d bytes of external data, but its type takes %d", length, want)
	}
	data, err := readRange(filepath.Dir(m.Path), location, offset, want, m.external.besides(t))
	if err != nil {
		e := m.fileError("tensor %q: external data %q: %w", t.GetName(), location, err)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e = e.WithRemedy("put the file next to the model")
		case errors.Is(err, errLFS):
			e = e.WithRemedy("run git lfs pull in its repository")
		case errors.Is(err, memory.ErrBudget):
			e = e.WithRemedy(allowMore)
		}
		return nil, e
	}
	m.external.add(t, want)
	return data, nil
}

// externalBytes counts what was read of files of external data. Ranges of tensors may overlap, so that a small file
// is a large model.
type externalBytes struct {
	mu    sync.Mutex
	of    map[*onnxpb.TensorProto]int64
	total int64
}

// besides is how many bytes other tensors than t have.
func (e *externalBytes) besides(t *onnxpb.TensorProto) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total - e.of[t]
}

func (e *externalBytes) add(t *onnxpb.TensorProto, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[*onnxpb.TensorProto]int64{}
	}
	e.total += int64(bytes) - e.of[t]
	e.of[t] = int64(bytes)
}

// parseSize reads a decimal number of bytes.
func parseSize(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number of bytes", s)
	}
	return n, nil
}

var errLFS = errors.New("a Git LFS pointer, not the data itself")

// readRange reads n bytes at offset of a file inside dir. The location must not leave dir, not even
// through symbolic links. Have bytes were read before.
func readRange(dir, location string, offset int64, n int, have int64) ([]byte, error) {
	if !filepath.IsLocal(location) {
		return nil, errors.New("the path leaves the model's directory")
	}
	f, err := memory.OpenIn(dir, location)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	size := f.Size()
	if size < 1024 {
		head := make([]byte, size)
		if _, err := f.ReadAt(head, 0); err == nil && isLFSPointer(head) {
			return nil, errLFS
		}
	}
	if int64(n) > size || offset > size-int64(n) {
		return nil, fmt.Errorf("bytes %d to %d lie outside the file, which has %d", offset, uint64(offset)+uint64(n), size)
	}
	if err := memory.Default().Check(have+int64(n), "reading it"); err != nil {
		return nil, err
	}
	data := make([]byte, n)
	if _, err := f.ReadAt(data, offset); err != nil && !(err == io.EOF && n == 0) {
		return nil, bare(err)
	}
	return data, bare(f.Unchanged())
}

// bare strips the operation and the path from a file error; the caller's message has them.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Digest is the SHA-256, in hexadecimal, of the file and of the files of external data that its tensors name, in
// order of their names; "" for a model that was not read from a file. Tensors are those of its graphs and functions:
// initializers, sparse ones and attributes.
func (m *Model) Digest() (string, error) {
	if m.data == nil {
		return "", nil
	}
	h := sha256.New()
	h.Write(m.data)
	for _, name := range slices.Sorted(maps.Keys(m.externalFiles())) {
		if err := copyFile(h, filepath.Dir(m.Path), name); err != nil {
			return "", m.fileError("external data %q: %w", name, err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// externalFiles is the set of the locations that the model's tensors name.
func (m *Model) externalFiles() map[string]bool {
	files := map[string]bool{}
	tensors := func(list ...*onnxpb.TensorProto) {
		for _, t := range list {
			for _, kv := range t.GetExternalData() {
				if kv.GetKey() == "location" {
					files[kv.GetValue()] = true
				}
			}
		}
	}
	sparse := func(list ...*onnxpb.SparseTensorProto) {
		for _, t := range list {
			tensors(t.GetValues(), t.GetIndices())
		}
	}
	graph := func(g *onnxpb.GraphProto) {
		tensors(g.GetInitializer()...)
		sparse(g.GetSparseInitializer()...)
	}
	nodes := func(list []*onnxpb.NodeProto) {
		eachNode(list, func(n *onnxpb.NodeProto) {
			for _, g := range subgraphs(n) {
				graph(g)
			}
			for _, a := range n.GetAttribute() {
				tensors(a.GetTensors()...)
				tensors(a.GetT())
				sparse(a.GetSparseTensors()...)
				sparse(a.GetSparseTensor())
			}
		})
	}
	graph(m.Proto.GetGraph())
	nodes(m.Proto.GetGraph().GetNode())
	for _, f := range m.Proto.GetFunctions() {
		nodes(f.GetNode())
	}
	return files
}

// copyFile copies a file inside dir.
func copyFile(w io.Writer, dir, location string) error {
	f, err := memory.OpenIn(dir, location)
	if err != nil {
		return bare(err)
	}
	defer f.Close()
	if _, err = io.Copy(w, f); err == nil {
		err = f.Unchanged()
	}
	return bare(err)
}
