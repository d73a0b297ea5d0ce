package keeper

import (
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// history is how many rows of features a model of openpilot's keeps, at 5 Hz.
const history = 24

// ONNX is the model as a file, in f32: img, big_img u8 [1,12,H/2,W/2] and features_buffer f32 [1,24,features] to outputs
// f32 [1,N], whose output_slices are plan, desired_curvature, hidden_state and pad.
func (m *Model) ONNX() (*onnx.Model, error) {
	b := onnx.NewBuilder("keeper", 17)
	n := len(targets)
	ints := func(name string, x ...int64) string {
		return b.Initializer(name, ir.FromInts(ir.T(ir.Int64, len(x)), x))
	}
	table := func(name string, x []float64, shape ...int) string {
		return b.Initializer(name, ir.FromFloats(ir.T(ir.Float32, shape...), x))
	}
	// Of the twelve planes the last six are of now, and of them the first four are luma.
	from, to, axis, step := ints("from", planes), ints("to", planes+lumaPlanes), ints("axis", 1), ints("step", 1)
	flat := ints("flat", 1, -1)
	see := func(input string) string {
		x := b.Op("Cast", []string{b.Input(input, ir.Uint8, 1, 2*planes, Height/2, Width/2)}, onnx.A("to", ir.Float32))
		x = b.Op("Slice", []string{x, from, to, axis, step})
		x = b.Op("AveragePool", []string{x}, onnx.A("kernel_shape", []int{blockY, blockX}), onnx.A("strides", []int{blockY, blockX}))
		x = b.Op("ReduceMean", []string{x}, onnx.A("axes", []int{1}), onnx.A("keepdims", 0))
		return b.Op("Reshape", []string{x, flat})
	}
	seen := b.Op("Concat", []string{see("img"), see("big_img")}, onnx.A("axis", 1))
	linear := func(name, x string, w []float64, rows, columns int, bias []float64) string {
		in := []string{x, table(name+".weight", w, rows, columns), table(name+".bias", bias, rows)}
		return b.Op("Gemm", in, onnx.A("transB", 1))
	}
	hidden := linear("features", seen, m.Features.RawMatrix().Data, n, blocks, m.Bias)
	past := b.Input("features_buffer", ir.Float32, 1, history, n)
	past = b.Op("Slice", []string{past, ints("last", history-1), ints("end", history), axis, step})
	both := b.Op("Concat", []string{hidden, b.Op("Reshape", []string{past, flat})}, onnx.A("axis", 1))
	// openpilot's curvature is to the right; beside it stands the logarithm of its deviation.
	var w []float64
	for _, x := range m.Command {
		w = append(w, -x)
	}
	w = append(w, make([]float64, 2*n)...)
	desired := linear("command", both, w, 2, 2*n, []float64{-m.Offset, ir.Log(1e-3)})
	parts := []string{table("plan", plan(), 1, 2*modeld.Points*modeld.PlanColumns), desired, hidden, table("pad", []float64{0, 0}, 1, 2)}
	b.Node("Concat", parts, []string{"outputs"}, onnx.A("axis", 1))
	var list []onnx.Slice
	at := 0
	for _, part := range []struct {
		name string
		size int
	}{{"plan", 2 * modeld.Points * modeld.PlanColumns}, {"desired_curvature", 2}, {"hidden_state", n}, {"pad", 2}} {
		list = append(list, onnx.Slice{Name: part.name, Start: at, End: at + part.size})
		at += part.size
	}
	b.Output("outputs", ir.Float32, 1, at)
	b.Metadata("output_slices", onnx.EncodeOutputSlices(list))
	out, err := b.Model()
	if out != nil {
		out.Path = "keeper.onnx"
	}
	return out, err
}

// plan is to go straight on at the speed that the model takes for its own.
func plan() []float64 {
	x := make([]float64, 2*modeld.Points*modeld.PlanColumns)
	for i, t := range modeld.TIndex() {
		row := x[i*modeld.PlanColumns:]
		row[0], row[modeld.PlanVelocity] = float64(speed*t), speed
	}
	return x
}
