package codegen

import (
	"crypto/sha256"
	"maps"
	"slices"
)

// alignment of buffers, of constants in the blob and of arena ranges: what cuMemAlloc guarantees.
const alignment = 256

func alignUp(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// Weights collects constant data of all variants of a program into one blob; equal contents are stored once.
type Weights struct {
	parts []part
	size  int
	seen  map[[sha256.Size]byte]int

	variables map[string]int
}

// part is data at an offset of the blob; Bytes copies it.
type part struct {
	at   int
	data []byte
}

// NewWeights returns an empty blob.
func NewWeights() *Weights {
	return &Weights{seen: map[[sha256.Size]byte]int{}, variables: map[string]int{}}
}

// Clone returns an independent blob with the same data.
func (w *Weights) Clone() *Weights {
	return &Weights{slices.Clone(w.parts), w.size, maps.Clone(w.seen), maps.Clone(w.variables)}
}

// Add stores data, unless the same bytes are stored already, and returns its offset. The caller must not change data.
func (w *Weights) Add(data []byte) int {
	key := sha256.Sum256(data)
	if at, ok := w.seen[key]; ok {
		return at
	}
	w.seen[key] = w.append(data)
	return w.seen[key]
}

// AddVariable stores the initial value of a variable, once for all variants. Its bytes are never shared, since a
// program that saves its variables changes them in place.
func (w *Weights) AddVariable(name string, data []byte) int {
	if _, ok := w.variables[name]; !ok {
		w.variables[name] = w.append(data)
	}
	return w.variables[name]
}

func (w *Weights) append(data []byte) int {
	at := alignUp(w.size)
	w.parts = append(w.parts, part{at, data})
	w.size = at + len(data)
	return at
}

// Bytes is the blob.
func (w *Weights) Bytes() []byte {
	blob := make([]byte, w.size)
	for _, p := range w.parts {
		copy(blob[p.at:], p.data)
	}
	return blob
}
