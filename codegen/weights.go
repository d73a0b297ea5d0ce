package codegen

import (
	"crypto/sha256"
)

// alignment of buffers, of constants in the blob and of arena ranges: what cuMemAlloc guarantees.
const alignment = 256

func alignUp(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// Weights collects constant data of all variants of a program into one blob; equal contents are stored once.
type Weights struct {
	blob []byte
	seen map[[sha256.Size]byte]int
}

// NewWeights returns an empty blob.
func NewWeights() *Weights { return &Weights{seen: map[[sha256.Size]byte]int{}} }

// Add stores data, unless the same bytes are there already, and returns its offset.
func (w *Weights) Add(data []byte) int {
	key := sha256.Sum256(data)
	if at, ok := w.seen[key]; ok {
		return at
	}
	at := alignUp(len(w.blob))
	w.blob = append(w.blob, make([]byte, at-len(w.blob))...)
	w.blob = append(w.blob, data...)
	w.seen[key] = at
	return at
}

// Bytes is the blob.
func (w *Weights) Bytes() []byte { return w.blob }
