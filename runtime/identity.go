package runtime

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// Provenance says where a program comes from. It decides nothing when the program runs.
type Provenance struct {
	Compiler    string       `json:"compiler"`                   // version of spark-compile; (devel) if it was not built from a clean checkout
	SHA256      string       `json:"sha256"`                     // of the ONNX file, and of the external data that it names
	Checkpoint  string       `json:"model_checkpoint,omitempty"` // openpilot's, from the file's metadata
	Flags       []string     `json:"flags,omitempty"`            // those that decide what is compiled; no paths
	MACs        int64        `json:"macs,omitempty"`             // multiply-accumulates of the model; 0: unknown
	Calibration *Calibration `json:"calibration,omitempty"`
	Accuracy    *Accuracy    `json:"accuracy,omitempty"`
}

// Calibration says which inputs a precision was fitted to.
type Calibration struct {
	Inputs    int    `json:"inputs"`
	Generated bool   `json:"generated,omitempty"` // drawn by the compiler: none were given
	SHA256    string `json:"sha256"`              // of their names, types and elements
}

// Accuracy is the lowest cosine that the compiler measured, of the first variant, against the file in float64.
type Accuracy struct {
	Budget float64 `json:"budget,omitempty"` // minimum cosine asked for; 0: none
	Cosine float64 `json:"cosine"`
	Of     string  `json:"of"` // the output or slice of it
	On     string  `json:"on"` // the set of inputs
}

// noIdentity stands in program.json for the digest while that is computed.
var noIdentity = strings.Repeat("0", 2*sha256.Size)

// Files encodes the program as files of a program directory, by slash-separated path. It fills in Identity and Digests.
func (p *Program) Files() (map[string][]byte, error) {
	files := map[string][]byte{WeightsFile: p.Weights}
	for _, v := range p.Variants {
		files[path.Join(v.Target, PTXFile)] = []byte(v.PTX)
		if len(v.Cubin) > 0 {
			files[path.Join(v.Target, CubinFile)] = v.Cubin
		}
	}
	p.Digests = map[string]string{}
	for name, data := range files {
		p.Digests[name] = digest(data)
	}
	p.Identity = noIdentity
	written := *p
	written.Variants = slices.Clone(p.Variants)
	for i := range written.Variants {
		v := &written.Variants[i]
		v.Kernels = slices.Clone(v.Kernels)
		for k := range v.Kernels {
			v.Kernels[k].Regs, v.Kernels[k].Spills = 0, 0
		}
	}
	raw, err := json.MarshalIndent(written, "", " ")
	if err != nil {
		return nil, err
	}
	raw = append(raw, '\n')
	p.Identity = digest(raw)
	files[ProgramFile] = bytes.Replace(raw, []byte(noIdentity), []byte(p.Identity), 1)
	return files, nil
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// errChanged says what a file that is not the compiler's means.
var errChanged = errors.New("it is not what spark-compile wrote: it was changed or damaged; copy the directory again, or compile the model again")

// checkIdentity compares program.json with the digest that it has of itself.
func (p *Program) checkIdentity(raw []byte) error {
	if len(p.Identity) == len(noIdentity) && digest(bytes.Replace(raw, []byte(p.Identity), []byte(noIdentity), 1)) == p.Identity {
		return nil
	}
	return fmt.Errorf("%s: %w", ProgramFile, errChanged)
}

// file reads a file of the program and compares it with its digest.
func (p *Program) file(dir fs.FS, name string) ([]byte, error) {
	data, err := memory.ReadIn(dir, name)
	if err != nil {
		return nil, err
	}
	if digest(data) != p.Digests[name] {
		return nil, fmt.Errorf("%s: %w", name, errChanged)
	}
	return data, nil
}

// Replaces reports, as an error, why code that was generated for the program old cannot run p: the model, its inputs, outputs
// and states, their element types, shapes and slices, and the entries must be the same. Precision, weights, kernels and
// targets may differ.
func (p *Program) Replaces(old *Program) error {
	differ := func(what string, here, there any) error {
		return fmt.Errorf("%s: this package was generated for %v, the directory holds %v: give the directory of the same model, or import the package that was generated with it", what, there, here)
	}
	if p.Model != old.Model {
		return differ("another model", p.Model, old.Model)
	}
	for _, l := range []struct {
		what     string
		now, was []Port
	}{{"inputs", p.Inputs, old.Inputs}, {"outputs", p.Outputs, old.Outputs}} {
		if now, was := portNames(l.now), portNames(l.was); !slices.Equal(now, was) {
			return differ("other "+l.what, now, was)
		}
		for i, q := range l.now {
			if was := l.was[i]; q.DType != was.DType || !slices.Equal(q.Shape, was.Shape) {
				return differ(q.Name, q, was)
			} else if !slices.Equal(q.Slices, was.Slices) {
				return differ("slices of "+q.Name, q.Slices, was.Slices)
			}
		}
	}
	if !slices.Equal(p.States, old.States) {
		return differ("other states", p.States, old.States)
	}
	if slots := func(p *Program) (n int) {
		if p.Adapters != nil {
			n = p.Adapters.Slots
		}
		return n
	}; slots(p) != slots(old) {
		return differ("other adapter slots", slots(p), slots(old))
	}
	if now, was := p.entryNames(), old.entryNames(); !slices.Equal(now, was) {
		return differ("other entries", now, was)
	}
	return nil
}

func (p *Program) entryNames() (names []string) {
	for _, e := range p.Variants[0].Entries {
		names = append(names, e.Name)
	}
	return names
}

// String is the port's element type and shape: f16[1,512].
func (q Port) String() string {
	return q.DType + strings.ReplaceAll(fmt.Sprint(q.Shape), " ", ",")
}

// ReadInstead reads a program from a directory, to run in place of the one in embedded, which code was generated for. Without
// a directory it reads that one. Errors name the directory.
func ReadInstead(embedded fs.FS, dir string) (*Program, error) {
	was, err := Read(embedded)
	if err != nil || dir == "" {
		return was, err
	}
	p, err := Read(os.DirFS(dir))
	if err == nil {
		err = p.Replaces(was)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return p, nil
}
