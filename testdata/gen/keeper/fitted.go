package keeper

import (
	"bytes"
	_ "embed"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// weights are those of a fit with seed 1: f64 [len(targets) + 1, blocks + 1], a row for each feature with its bias last,
// and one of the command, filled with zeros. UPDATE=1 go test -run Fitted makes them again, in a minute or two.
//
//go:embed weights.npy
var weights []byte

// Fitted is the model that stands in the repository.
func Fitted() (*Model, error) {
	a, err := npy.Read(bytes.NewReader(weights))
	if err != nil {
		return nil, err
	}
	if n := len(targets); len(a.Shape) != 2 || a.Shape[0] != n+1 || a.Shape[1] != blocks+1 {
		return nil, fmt.Errorf("weights.npy is %v, want [%d,%d]: make it again", a.Shape, n+1, blocks+1)
	}
	x, err := a.Float64s()
	if err != nil {
		return nil, err
	}
	row := func(k int) []float64 { return x[k*(blocks+1) : (k+1)*(blocks+1)] }
	m := &Model{Features: mat.NewDense(len(targets), blocks, nil)}
	for k := range targets {
		m.Features.SetRow(k, row(k)[:blocks])
		m.Bias = append(m.Bias, row(k)[blocks])
	}
	last := row(len(targets))
	m.Command, m.Offset = last[:2*len(targets)], last[blocks]
	return m, nil
}

// array is what Fitted reads.
func (m *Model) array() *npy.Array {
	n := len(targets)
	x := make([]float64, (n+1)*(blocks+1))
	for k := range n {
		copy(x[k*(blocks+1):], m.Features.RawRowView(k))
		x[k*(blocks+1)+blocks] = m.Bias[k]
	}
	copy(x[n*(blocks+1):], m.Command)
	x[len(x)-1] = m.Offset
	return &npy.Array{DType: "f64", Shape: []int{n + 1, blocks + 1}, Data: runtime.Bytes(x)}
}
