package tinyphysics

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// small is a transformer of one layer and one head with the contract of comma's network and random weights: its tokens
// stay near those that it is given.
type small struct {
	*onnx.Builder
	rng *rand.Rand
}

const (
	smallWidth = 16 // of the residual stream, half of it from the token
	smallMLP   = 32
)

func (s *small) weights(hint string, scale float64, shape ...int) string {
	t := ir.T(ir.Float32, shape...)
	values := make([]float64, t.Numel())
	for i := range values {
		values[i] = scale * s.rng.NormFloat64()
	}
	return s.Initializer(hint, ir.FromFloats(t, values))
}

func (s *small) linear(hint, x string, from, to int) string {
	return s.Op("MatMul", []string{x, s.weights(hint, 1/math.Sqrt(float64(from)), from, to)})
}

func (s *small) norm(x string) string {
	one := s.Initializer(s.Name("gain"), ir.Splat(ir.T(ir.Float32, smallWidth), 1))
	return s.Op("LayerNormalization", []string{x, one}, onnx.A("axis", -1))
}

// tokens are embeddings and the head: a token's row is a smooth curve of its lateral acceleration, so that near tokens
// look alike.
func (s *small) curve(hint string, width, scale int, across bool) string {
	values := make([]float64, vocabulary*width)
	for k, bin := range Bins() {
		for j := range width {
			at := k*width + j
			if across {
				at = j*vocabulary + k
			}
			values[at] = float64(scale) * math.Sin(bin*float64(j+1)/4+float64(j))
		}
	}
	shape := []int{vocabulary, width}
	if across {
		shape = []int{width, vocabulary}
	}
	return s.Initializer(hint, ir.FromFloats(ir.T(ir.Float32, shape...), values))
}

func smallNetwork(t testing.TB) *onnx.Model {
	t.Helper()
	s := &small{onnx.NewBuilder("small", 17), rand.New(rand.NewPCG(39, 5))}
	states := s.Input(networkStates, ir.Float32, "b", window, features)
	tokens := s.Input(networkTokens, ir.Int64, "b", window)
	embedded := s.Op("Gather", []string{s.curve("embedding", smallWidth/2, 1, false), tokens})
	x := s.Op("Concat", []string{s.linear("rows", states, features, smallWidth/2), embedded}, onnx.A("axis", -1))
	x = s.Op("Add", []string{x, s.weights("positions", 0.1, window, smallWidth)})
	y := s.norm(x)
	keys := s.Op("Transpose", []string{s.linear("k", y, smallWidth, smallWidth)}, onnx.A("perm", []int{0, 2, 1}))
	scores := s.Op("MatMul", []string{s.linear("q", y, smallWidth, smallWidth), keys})
	mask := make([]float64, window*window)
	for i := range window {
		for j := i + 1; j < window; j++ {
			mask[i*window+j] = -1e4
		}
	}
	scores = s.Op("Add", []string{scores, s.Initializer("mask", ir.FromFloats(ir.T(ir.Float32, window, window), mask))})
	scores = s.Op("Softmax", []string{scores}, onnx.A("axis", -1))
	y = s.Op("MatMul", []string{scores, s.linear("v", y, smallWidth, smallWidth)})
	x = s.Op("Add", []string{x, y})
	y = s.Op("Tanh", []string{s.linear("up", s.norm(x), smallWidth, smallMLP)})
	x = s.Op("Add", []string{x, s.linear("down", y, smallMLP, smallWidth)})
	s.Node("MatMul", []string{s.norm(x), s.curve("head", smallWidth, 2, true)}, []string{networkOutput})
	s.Output(networkOutput, ir.Float32, "b", window, vocabulary)
	m, err := s.Model()
	require.NoError(t, err)
	m.Path = "small.onnx"
	return m
}

// drawn are drives of smooth targets on a rolling road.
func drawn(seed uint64, n, rows int) Drives {
	rng := rand.New(rand.NewPCG(seed, 1))
	var d Drives
	for range n {
		series := make([][]float64, 6)
		phase, speed := rng.Float64()*6, 10+20*rng.Float64()
		for row := range rows {
			at := phase + float64(row)/15
			target, roll := 1.2*math.Sin(at), 0.3*math.Cos(at/2)
			values := []float64{roll, speed + math.Sin(at/3), math.Cos(at/3) / 2, target, (target - roll) / 2, rng.Float64()}
			for k, x := range values {
				series[k] = append(series[k], x)
			}
		}
		d.Roll, d.V, d.A = append(d.Roll, series[0]), append(d.V, series[1]), append(d.A, series[2])
		d.Target, d.SteerLog = append(d.Target, series[3]), append(d.SteerLog, series[4])
		d.Uniform = append(d.Uniform, series[5])
	}
	return d
}
