// Package quantised makes small networks as quantisers write them: with ONNX Runtime's QuantizeLinear and DequantizeLinear
// around every layer, with ModelOpt's fp8, and with only the weights quantised, in blocks down to NVFP4. The same call returns
// the same bytes on every machine.
package quantised

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// Model is an encoded model with one input, x.
type Model struct {
	Name  string
	ONNX  []byte
	Input ir.Type
	// Weights are the values of the file's codes, by the name of the layer's output.
	Weights map[string][]float64
}

// Draw returns an input drawn from a seed.
func (m *Model) Draw(seed uint64) *ir.Tensor {
	g := rand.New(rand.NewPCG(seed, 7))
	xs := make([]float64, m.Input.Numel())
	for i := range xs {
		xs[i] = g.NormFloat64()
	}
	return ir.FromFloats(m.Input, xs)
}

// Names lists the models.
func Names() []string {
	var names []string
	for _, f := range layered {
		names = append(names, f.name)
	}
	for _, f := range blocked {
		names = append(names, f.name)
	}
	return names
}

// Make returns the model with a name.
func Make(name string) (*Model, error) {
	if i := slices.IndexFunc(layered, func(f layers) bool { return f.name == name }); i >= 0 {
		return layered[i].model()
	}
	if i := slices.IndexFunc(blocked, func(f blocks) bool { return f.name == name }); i >= 0 {
		return blocked[i].model()
	}
	return nil, fmt.Errorf("no model %q: %v are known", name, Names())
}

type network struct {
	*onnx.Builder
	random  *rand.Rand
	weights map[string][]float64
}

func newNetwork(name string, opset int64) *network {
	return &network{onnx.NewBuilder(name, opset), rand.New(rand.NewPCG(11, 13)), map[string][]float64{}}
}

func (b *network) model(name string, input ir.Type) (*Model, error) {
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Proto)
	return &Model{Name: name, ONNX: data, Input: input, Weights: b.weights}, err
}

// normal draws numbers with the variance at which a sum of k products keeps that of its other factors.
func (b *network) normal(n, k int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = float64(b.random.NormFloat64() / math.Sqrt(float64(k)))
	}
	return xs
}

func (b *network) scalar(name string, d ir.DType, x float64) string {
	return b.Initializer(b.Name(name), ir.Splat(ir.T(d), x))
}

// greatest is the largest magnitude.
func greatest(xs []float64) float64 {
	top := 0.0
	for _, x := range xs {
		top = max(top, math.Abs(x))
	}
	return top
}

// round returns x in the codes of a type.
func round(d ir.DType, x float64) float64 {
	switch {
	case d == ir.Float4E2M1:
		return minifloat.E2M1.Round(x, true)
	case d == ir.Float8E4M3FN:
		return minifloat.E4M3FN.Round(x, true)
	}
	lo, hi := minifloat.Range(d.Bits(), d.IsSigned())
	return math.Min(float64(hi), math.Max(float64(lo), math.RoundToEven(x)))
}

// codes makes a tensor of codes.
func codes(d ir.DType, shape []int, xs []float64) *ir.Tensor {
	if d.IsFloat() {
		return ir.FromFloats(ir.T(d, shape...), xs)
	}
	ints := make([]int64, len(xs))
	for i, x := range xs {
		ints[i] = int64(x)
	}
	return ir.FromInts(ir.T(d, shape...), ints)
}
