package onnx

import (
	"crypto/sha256"
	"maps"
	"slices"

	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
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
	data, err := readRange(filepath.Dir(m.Path), location, offset, want)
	if err != nil {
		e := m.fileError("tensor %q: external data %q: %w", t.GetName(), location, err)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e = e.WithRemedy("put the file beside the model")
		case errors.Is(err, errLFS):
			e = e.WithRemedy("run git lfs pull in its repository")
		}
		return nil, e
	}
	return data, nil
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
// through symbolic links.
func readRange(dir, location string, offset int64, n int) ([]byte, error) {
	if !filepath.IsLocal(location) {
		return nil, errors.New("the path leaves the model's directory")
	}
	f, err := os.OpenInRoot(dir, location)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if st.Size() < 1024 {
		head := make([]byte, st.Size())
		if _, err := f.ReadAt(head, 0); err == nil && isLFSPointer(head) {
			return nil, errLFS
		}
	}
	if int64(n) > st.Size() || offset > st.Size()-int64(n) {
		return nil, fmt.Errorf("bytes %d to %d lie outside the file, which has %d", offset, uint64(offset)+uint64(n), st.Size())
	}
	data := make([]byte, n)
	if _, err := f.ReadAt(data, offset); err != nil && !(err == io.EOF && n == 0) {
		return nil, bare(err)
	}
	return data, nil
}

// bare strips the operation and the path from a file error; the caller's message has them.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Digest is the SHA-256, in hexadecimal, of the file and of the files of external data that its initializers name, in order of
// their names; "" for a model that was not read from a file.
func (m *Model) Digest() (string, error) {
	if m.data == nil {
		return "", nil
	}
	h := sha256.New()
	h.Write(m.data)
	files := map[string]bool{}
	for _, t := range m.Proto.GetGraph().GetInitializer() {
		for _, kv := range t.ExternalData {
			if kv.GetKey() == "location" {
				files[kv.GetValue()] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := copyFile(h, filepath.Dir(m.Path), name); err != nil {
			return "", m.fileError("external data %q: %w", name, err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// copyFile copies a file inside dir.
func copyFile(w io.Writer, dir, location string) error {
	f, err := os.OpenInRoot(dir, location)
	if err != nil {
		return bare(err)
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return bare(err)
}
