package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/ir"
)

// rows is a set of samples x [1,4].
type rows [][]float64

func (r rows) Len() int            { return len(r) }
func (r rows) Route(i int) string  { return fmt.Sprint(i / 4) }
func (r rows) Fingerprint() string { return "rows" }
func (r rows) Close() error        { return nil }

func (r rows) Sample(_ context.Context, i int) (*dataset.Sample, error) {
	return &dataset.Sample{Key: fmt.Sprint(i), Inputs: map[string][]byte{"x": ir.FromFloats(ir.T(ir.Float32, 1, 4), r[i]).Dense()}}, nil
}

// matrix writes y = x·W, W [4,3].
func matrix(t *testing.T, path string, w []float64) {
	t.Helper()
	b := onnx.NewBuilder("matrix", 17)
	b.Input("x", ir.Float32, 1, 4)
	b.Node("MatMul", []string{"x", b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), w))}, []string{"y"})
	b.Output("y", ir.Float32, 1, 3)
	m, err := b.Model()
	require.NoError(t, err)
	require.NoError(t, m.Save(path))
}

// TestSquaresAreTheVariationThatIsNotExplained: the loss on samples that were kept is the squared difference from the teacher over its variance on the samples to
// train on, not over its square, which values far from zero make large; but at least over a hundredth of the values' size, squared.
func TestSquaresAreTheVariationThatIsNotExplained(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int, mean float64) (x []float64) {
		for range n {
			x = append(x, float64(float32(mean+rng.NormFloat64())))
		}
		return x
	}
	for name, spacing := range map[string]float64{"values that change": 1, "values that hardly change": 1e-5} {
		t.Run(name, func(t *testing.T) { squares(t, draw, spacing) })
	}
}

func squares(t *testing.T, draw func(n int, mean float64) []float64, spacing float64) {
	dir := t.TempDir()
	var set rows
	for range 24 {
		x := draw(4, 6)
		for i := range x {
			x[i] = float64(float32(6 + spacing*(x[i]-6)))
		}
		set = append(set, x)
	}
	student, master := draw(12, 1), draw(12, 1)
	opt := Options{Model: filepath.Join(dir, "student.onnx"), Teacher: filepath.Join(dir, "teacher.onnx"), Data: "rows", Set: set, Output: filepath.Join(dir, "out"), Epochs: 1, BatchSize: 4,
		Rank: 1, Precision: "fp32", TeacherPrecision: "fp32", Val: 0.3, Loss: "y=2"}
	matrix(t, opt.Model, student)
	matrix(t, opt.Teacher, master)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	opt.Device = d
	result, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)

	training, held, err := dataset.Split(set, opt.Val, opt.Seed)
	require.NoError(t, err)
	all := func(s dataset.Set, w []float64) (y [][3]float64) {
		for i := range s.Len() {
			one, err := s.Sample(context.Background(), i)
			require.NoError(t, err)
			x, err := ir.NewTensor(ir.T(ir.Float32, 1, 4), one.Inputs["x"])
			require.NoError(t, err)
			var out [3]float64
			for k, v := range x.Floats() {
				for j := range out {
					out[j] += v * w[3*k+j]
				}
			}
			y = append(y, out)
		}
		return y
	}
	square := func(a, b [3]float64) (sum float64) {
		for j := range a {
			sum += (a[j] - b[j]) * (a[j] - b[j])
		}
		return sum
	}
	var mean [3]float64
	taught := all(training, master)
	for _, y := range taught {
		for j := range mean {
			mean[j] += y[j] / float64(len(taught))
		}
	}
	variation, size := 0.0, 0.0
	for _, y := range taught {
		variation += square(y, mean) / float64(len(taught))
		size += square(y, [3]float64{}) / float64(len(taught))
	}
	variation = math.Max(variation, 1e-4*size)
	loss, wanted, said := 0.0, all(held, master), all(held, student)
	for i := range wanted {
		loss += square(wanted[i], said[i]) / variation / float64(len(wanted))
	}
	assert.InEpsilon(t, 2*loss, result.Base.Loss, 1e-5)
}
