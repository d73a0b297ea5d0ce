package gputest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/ptx/mmaprobe"
)

// Recording is what a device computed: a .npz file that holds the output of each case as bytes under the case's name,
// and under "about", as JSON, whose outputs they are.
type Recording struct {
	Device  string            `json:"device"`
	Target  string            `json:"target"`  // of the PTX
	Digests map[string]string `json:"digests"` // of the inputs, by case
	Outputs map[string][]byte `json:"-"`
	// Accumulators is how mma was seen to add, by opcode: read from Outputs, for who reads the file.
	Accumulators map[string]mmaprobe.Accumulator `json:"accumulators,omitempty"`
}

// about is the name of the array that belongs to no case.
const about = "about"

// Add keeps a case's output.
func (r *Recording) Add(c *Case, output []byte) {
	if r.Digests == nil {
		r.Digests, r.Outputs = map[string]string{}, map[string][]byte{}
	}
	r.Digests[c.Name], r.Outputs[c.Name] = c.digest(), output
}

// ErrStale means that a case's inputs have changed since the recording.
var ErrStale = errors.New("the case's inputs have changed since it was recorded: record again")

// Output returns what was recorded of a case; false if nothing was.
func (r *Recording) Output(c *Case) ([]byte, bool, error) {
	digest, ok := r.Digests[c.Name]
	if !ok {
		return nil, false, nil
	}
	if digest != c.digest() {
		return nil, false, ErrStale
	}
	return r.Outputs[c.Name], true, nil
}

// FileName is derived from the device: nvidia-h200.npz.
func (r *Recording) FileName() string {
	words := regexp.MustCompile(`[a-z0-9]+`).FindAllString(strings.ToLower(r.Device), -1)
	return strings.Join(words, "-") + ".npz"
}

// Write writes the recording into a directory.
func (r *Recording) Write(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return "", err
	}
	arrays := map[string]*npy.Array{about: byteArray(text)}
	for name, output := range r.Outputs {
		arrays[name] = byteArray(output)
	}
	path = filepath.Join(dir, r.FileName())
	return path, npy.WriteZip(path, arrays)
}

func byteArray(b []byte) *npy.Array { return &npy.Array{DType: "u8", Shape: []int{len(b)}, Data: b} }

// ReadRecording reads what Write wrote.
func ReadRecording(path string) (*Recording, error) {
	arrays, err := npy.ReadZip(path)
	if err != nil {
		return nil, err
	}
	text := arrays[about]
	if text == nil {
		return nil, fmt.Errorf("%s: no array %q: not a recording", path, about)
	}
	r := &Recording{Outputs: map[string][]byte{}}
	if err := json.Unmarshal(text.Data, r); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", path, about, err)
	}
	for name := range r.Digests {
		a := arrays[name]
		if a == nil {
			return nil, fmt.Errorf("%s: no output of %s", path, name)
		}
		r.Outputs[name] = a.Data
	}
	return r, nil
}
