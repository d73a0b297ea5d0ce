package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// The versions of the format that the frontend supports. Opset 7 is the first with today's broadcasting; opset 28 and
// IR 14 are the newest that it was written for.
const (
	MinOpset     = 7
	MaxOpset     = 28
	MaxIRVersion = 14
)

// allowMore is the remedy for a file that needs more memory than its reader may take.
const allowMore = "allow more if the file is to be trusted"

// maxNesting bounds how deep messages may nest: each graph inside an attribute costs three levels.
const maxNesting = 192

// Model is a decoded file.
type Model struct {
	Path   string             // as given to Load or Decode; external data is looked up relative to it
	Proto  *onnxpb.ModelProto // raw_data of its initializers aliases the file's bytes: read only
	Opsets map[string]int64   // version by domain, as Domain writes it

	// Warn is told once of each contradiction that ONNX Runtime warns about, by imports that have no Warn of their
	// own; nil: nobody.
	Warn   func(string)
	warned sync.Map

	data      []byte // the file's bytes; nil if it was built
	external  externalBytes
	functions map[string]*onnxpb.FunctionProto // by functionID; set by Validate
}

// Domain is the canonical name of an operator domain: "" and "ai.onnx" are the same one.
func Domain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

// warn passes on a warning that Warn has not heard.
func (m *Model) warn(text string) {
	if _, known := m.warned.LoadOrStore(text, true); !known && m.Warn != nil {
		m.Warn(text)
	}
}

// Load reads and decodes the file at path. Errors are of type *Error.
func Load(path string) (*Model, error) {
	m := &Model{Path: path}
	data, err := memory.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, m.fileError("%w", fs.ErrNotExist).WithRemedy("check the path")
	case errors.Is(err, fs.ErrPermission):
		return nil, m.fileError("cannot be read: %w", bare(err)).WithRemedy("check its permissions")
	case errors.Is(err, memory.ErrBudget):
		return nil, m.fileError("%w", bare(err)).WithRemedy(allowMore)
	case err != nil:
		return nil, m.fileError("cannot be read: %w", bare(err)).WithRemedy("give the .onnx file")
	}
	return Decode(path, data)
}

// Decode decodes a model from the bytes of a file; path is for messages and external data, and may be empty. The model
// keeps data, which must not be modified afterwards. Errors are of type *Error.
func Decode(path string, data []byte) (*Model, error) {
	m := &Model{Path: path, Proto: &onnxpb.ModelProto{}, data: data}
	if len(data) == 0 {
		return nil, m.fileError("the file is empty").WithRemedy("download or export it again")
	}
	if isLFSPointer(data) {
		return nil, m.fileError("a Git LFS pointer, not the model itself").WithRemedy("run git lfs pull in its repository")
	}
	err := unmarshal(data, m.Proto)
	if errors.Is(err, memory.ErrBudget) {
		return nil, m.fileError("%w", err).WithRemedy(allowMore)
	}
	if err == nil && m.Proto.Graph == nil {
		err = errors.New("it has no graph")
	}
	if what := foreignFormat(data); what != "" && err != nil {
		return nil, m.fileError("%s, not an ONNX model", what).WithRemedy("give the .onnx file")
	}
	if err != nil {
		return nil, m.fileError("not an ONNX model, or truncated: %w", err).WithRemedy("download or export it again")
	}
	if v := m.Proto.GetIrVersion(); v > MaxIRVersion {
		return nil, m.fileError("IR version %d is newer than %d, the newest supported", v, MaxIRVersion).
			AsUnsupported("export it with an older onnx")
	}
	if err := m.readOpsets(); err != nil {
		return nil, err
	}
	return m, nil
}

// readOpsets fills Opsets and refuses versions of ai.onnx outside the known range.
func (m *Model) readOpsets() error {
	opsets, err := m.opsets(m.Proto.OpsetImport, "")
	if err != nil {
		return err
	}
	m.Opsets = opsets
	for _, f := range m.Proto.Functions {
		if _, err := m.functionOpsets(f); err != nil {
			return err
		}
	}
	return nil
}

// functionOpsets are the opsets of a function's body: its own, or the model's where it imports none.
func (m *Model) functionOpsets(f *onnxpb.FunctionProto) (map[string]int64, error) {
	if len(f.OpsetImport) == 0 {
		return m.Opsets, nil
	}
	return m.opsets(f.OpsetImport, fmt.Sprintf("function %s.%s: ", f.GetDomain(), f.GetName()))
}

// opsets turns an import list into a map; where is the prefix of error messages.
func (m *Model) opsets(imports []*onnxpb.OperatorSetIdProto, where string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, imp := range imports {
		d, v := Domain(imp.GetDomain()), imp.GetVersion()
		if old, ok := out[d]; ok && old != v {
			return nil, m.fileError("%sdomain %q is imported twice, with versions %d and %d", where, d, old, v)
		}
		out[d] = v
		if d != "" {
			continue
		}
		const convert = "convert it with onnx.version_converter, or export it with opset_version=%d"
		switch {
		case v > MaxOpset:
			return nil, m.fileError("%sopset %d is newer than %d, the newest supported", where, v, MaxOpset).
				AsUnsupported(convert, MaxOpset)
		case v < MinOpset:
			return nil, m.fileError("%sopset %d is older than %d, the oldest supported", where, v, MinOpset).
				AsUnsupported(convert, 17)
		}
	}
	return out, nil
}

// isLFSPointer reports whether data is what Git leaves in place of a file kept in LFS
// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md).
func isLFSPointer(data []byte) bool {
	return len(data) < 1024 && bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/"))
}

// foreignFormat names the format of files that are often mistaken for models, recognised by their first bytes.
func foreignFormat(data []byte) string {
	if len(data) >= 8 && string(data[4:8]) == "ORTM" {
		return "a model in ONNX Runtime's own format (.ort)"
	}
	for _, f := range []struct{ magic, what string }{
		{"PK\x03\x04", "a zip archive (perhaps a PyTorch checkpoint)"},
		{"\x1f\x8b", "a gzip file"},
		{"\x80\x02", "a Python pickle"}, {"\x80\x03", "a Python pickle"}, {"\x80\x04", "a Python pickle"}, {"\x80\x05", "a Python pickle"},
		{"\x93NUMPY", "a NumPy array"},
		{"GGUF", "a GGUF model"},
		{"<", "an HTML or XML document"},
		{"{", "a JSON document"},
	} {
		if bytes.HasPrefix(data, []byte(f.magic)) {
			return f.what
		}
	}
	return ""
}

// unmarshalOptions bound nesting; partial messages cannot occur, since the schema requires nothing.
var unmarshalOptions = proto.UnmarshalOptions{RecursionLimit: maxNesting}
