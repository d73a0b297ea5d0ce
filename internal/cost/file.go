package cost

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/ptx/mmaprobe"
	"github.com/spark-compile/spark-compile/internal/target"
)

// FileFormat is the version of machine files.
const FileFormat = 2

// File holds what was measured of one machine, as spark-bench --machine writes it.
type File struct {
	Format  int               `json:"format"`
	Target  string            `json:"target"` // the row of targets whose figures these replace
	Device  string            `json:"device"` // as the driver names it
	Backend string            `json:"backend"`
	Driver  string            `json:"driver,omitempty"`
	DryRun  string            `json:"dry_run,omitempty"` // why the figures describe no GPU; such a file is not used
	Figures map[string]Figure `json:"figures"`
	// SumBits is how many bits sums of an element type's mma keep, where they are fewer than f32's 23 (target.Target).
	SumBits map[string]int `json:"sum_bits,omitempty"`
	// Sums is how the mma of each element type was seen to add: mean errors by K tell of a bias that SumBits do not. It changes nothing.
	Sums  map[string]mmaprobe.Accumulator `json:"sums,omitempty"`
	Left  map[string]string               `json:"left,omitempty"`  // what was not measured, and why
	Also  map[string]Figure               `json:"also,omitempty"`  // also measured, but not used by the model; names end in units
	State map[string]string               `json:"state,omitempty"` // clocks, power and what slowed the device meanwhile
}

// ReadFile reads a machine file and checks it.
func ReadFile(path string) (*File, error) {
	raw, err := memory.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var version struct{ Format int }
	f := &File{}
	if err := memory.Unmarshal(raw, &version); err != nil {
		return nil, fmt.Errorf("%s: not a machine file: %w", path, err)
	}
	if version.Format != FileFormat {
		return nil, fmt.Errorf("%s: a machine file of format %d, and this version reads %d: measure again with spark-bench --machine", path, version.Format, FileFormat)
	}
	if err := memory.UnmarshalStrict(raw, f); err != nil {
		return nil, fmt.Errorf("%s: not a machine file: %w", path, err)
	}
	t, err := target.Lookup(f.Target)
	if err == nil {
		_, err = f.On(t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// On is a target with the file's figures in place of its own; any other target than the file's as it is. A nil file changes nothing.
func (f *File) On(t *target.Target) (*target.Target, error) {
	switch {
	case f == nil || f.Target != t.Name:
		return t, nil
	case f.DryRun != "":
		return nil, fmt.Errorf("the machine file describes no GPU: %s", f.DryRun)
	}
	out, err := Measure(t, f.Figures)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(f.SumBits)) {
		if bits := f.SumBits[name]; !t.Multiplies(name) || bits < 1 || bits > 22 {
			return nil, fmt.Errorf("sum_bits: %d of %s: want 1 to 22, of a type that %s multiplies", bits, name, t.Name)
		}
	}
	out.SumBits = f.SumBits
	return out, nil
}

// Digest identifies what the file changes: its target and figures.
func (f *File) Digest() string {
	changes := []any{f.Target, f.Figures}
	if len(f.SumBits) > 0 {
		changes = append(changes, f.SumBits)
	}
	raw, err := json.Marshal(changes)
	if err != nil {
		panic(err) // On refuses figures that are no numbers
	}
	sum := sha256.Sum256(raw)
	return fmt.Sprintf("sha256:%x", sum[:8])
}
