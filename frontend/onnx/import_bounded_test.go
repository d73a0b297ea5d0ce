package onnx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// following is a model with a NonZero node "find" of the input x, f32 [2,3], whose output [2,n] is "at", and what
// more adds.
func following(t *testing.T, more func(b *onnx.Builder)) *onnx.Model {
	t.Helper()
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 2, 3)
	b.Input("data", ir.Float32, 4, 5)
	b.Node("NonZero", []string{"x"}, []string{"at"}).Name = proto.String("find")
	for name, t := range map[string]*ir.Tensor{"zero": ir.ScalarInt(ir.Int64, 0), "one": ir.ScalarInt(ir.Int64, 1), "none": ir.Vector(0), "ones": ir.Vector(1), "three": ir.Vector(3),
		"yes": ir.ScalarInt(ir.Bool, 1), "flat": ir.Vector(-1)} {
		b.Initializer(name, t)
	}
	more(b)
	for _, o := range b.Graph().Output {
		o.Type = nil
	}
	m, err := b.Model()
	require.NoError(t, err)
	m.Path = "model.onnx"
	return m
}

func bounded(n int) onnx.ImportOptions {
	return onnx.ImportOptions{MaxOutput: map[string]int{"find": n}}
}

func TestBoundedOutputsArePaddedAndCounted(t *testing.T) {
	m := following(t, func(b *onnx.Builder) { b.Output("at", ir.Int64) })
	for n, want := range map[int][]float64{
		7: {0, 0, 1, 1, 1, 0, 0, 1, 2, 0, 1, 2, 0, 0}, // of 0 … 5 in two rows, the first is zero
		5: {0, 0, 1, 1, 1, 1, 2, 0, 1, 2},
		2: {0, 0, 1, 2},
	} {
		g, err := onnx.Import(m, bounded(n))
		require.NoError(t, err)
		require.Equal(t, "find_count", g.Outputs[1].Name)
		require.Equal(t, "i64[]", g.Outputs[1].Type.String())
		outs := evaluate(t, g)
		require.Equal(t, want, outs[0].Floats())
		require.Equal(t, []float64{5}, outs[1].Floats(), "more than the bound, if it is less")
	}
}

// A count that exceeds the bound says that boxes are missing, even if there is only one class.
func TestBoxesBeyondTheBoundAreCounted(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("boxes", ir.Float32, 1, 6, 4)
	b.Input("scores", ir.Float32, 1, 1, 6)
	b.Initializer("most", ir.Vector(6))
	b.Initializer("iou", f32s(1)) // nothing is dropped
	b.Node("NonMaxSuppression", []string{"boxes", "scores", "most", "iou"}, []string{"picked"}).Name = proto.String("nms")
	b.Output("picked", ir.Int64, "n", 3)
	m, err := b.Model()
	require.NoError(t, err)
	for n, want := range map[int][]float64{2: {0, 0, 5, 0, 0, 4}, 8: {0, 0, 5, 0, 0, 4, 0, 0, 3, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		g, err := onnx.Import(m, onnx.ImportOptions{MaxOutput: map[string]int{"nms": n}})
		require.NoError(t, err)
		outs := evaluate(t, g)
		require.Equal(t, want, outs[0].Floats())
		require.Equal(t, []float64{float64(min(n+1, 6))}, outs[1].Floats())
	}
}

// What is computed for each element that was found leaves the first ones as ONNX has them.
func TestPaddingFollowsWhatIsMeant(t *testing.T) {
	m := following(t, func(b *onnx.Builder) {
		b.Node("Transpose", []string{"at"}, []string{"pairs"}) // [n,2]
		b.Node("GatherND", []string{"data", "pairs"}, []string{"found"})
		b.Node("Shape", []string{"found"}, []string{"n"})
		b.Node("ConstantOfShape", []string{"n"}, []string{"fill"}, onnx.A("value", f32s(10)))
		b.Node("Add", []string{"found", "fill"}, []string{"more"})
		b.Node("NonZero", []string{"fill"}, []string{"range"}) // counts to n
		b.Node("Squeeze", []string{"range", "none"}, []string{"numbers"})
		b.Node("Cast", []string{"pairs"}, []string{"floats"}, onnx.A("to", ir.Float32))
		b.Node("ReduceSum", []string{"floats", "ones"}, []string{"sums"}, onnx.A("keepdims", 0))
		b.Node("Slice", []string{"more", "none", "three"}, []string{"three_of_them"})
		for _, name := range []string{"more", "numbers", "sums", "three_of_them"} {
			b.Output(name, ir.Float32)
		}
	})
	g, err := onnx.Import(m, bounded(7))
	require.NoError(t, err)
	outs := evaluate(t, g)
	require.Equal(t, []float64{11, 12, 15, 16, 17}, outs[0].Floats()[:5])
	require.Equal(t, []float64{0, 1, 2, 3, 4}, outs[1].Floats()[:5])
	require.Equal(t, []float64{1, 2, 1, 2, 3}, outs[2].Floats()[:5])
	require.Equal(t, []float64{11, 12, 15}, outs[3].Floats())
}

func TestPaddingIsNotMixedWithWhatIsMeant(t *testing.T) {
	const remedy = "; end the model before it, and use only as many elements as the count says"
	mixes := func(op string) string {
		return `it mixes the outputs of node "find" with what pads them to 7, by ` + op + ` of dimension 1 of i64[2,7]` + remedy
	}
	branch := body(t, func(b *onnx.Builder) {
		b.Node("Identity", []string{"x"}, []string{"r"})
		b.Output("r", ir.Float32, 2, 3)
	})
	at := func(op string, attrs ...onnx.Attr) func(b *onnx.Builder) {
		return func(b *onnx.Builder) {
			b.Node(op, []string{"at"}, []string{"y"}, attrs...)
			b.Output("y", ir.Int64)
		}
	}
	for name, c := range map[string]struct {
		model func(b *onnx.Builder)
		want  string
	}{
		"sum":     {at("ReduceMax", onnx.A("axes", []int{1})), `node "y" (ReduceMax, opset 17): ` + mixes("ReduceMax")},
		"maximum": {at("ArgMax", onnx.A("axis", 1)), `node "y" (ArgMax, opset 17): ` + mixes("ArgMax")},
		"sorted": {func(b *onnx.Builder) {
			b.Node("TopK", []string{"at", "ones"}, []string{"y", ""})
			b.Output("y", ir.Int64)
		}, `node "y" (TopK, opset 17): ` + mixes("TopK")},
		"joined": {func(b *onnx.Builder) {
			b.Node("Concat", []string{"at", "at"}, []string{"y"}, onnx.A("axis", 1))
			b.Output("y", ir.Int64)
		}, `node "y" (Concat, opset 17): ` + mixes("Concat")},
		"flattened": {func(b *onnx.Builder) {
			b.Node("Reshape", []string{"at", "flat"}, []string{"y"})
			b.Output("y", ir.Int64)
		}, `node "y" (Reshape, opset 17): ` + mixes("Reshape")},
		"the last one": {func(b *onnx.Builder) {
			b.Node("Gather", []string{"at", "flat"}, []string{"y"}, onnx.A("axis", 1))
			b.Output("y", ir.Int64)
		}, `node "y" (Gather, opset 17): ` + mixes("Gather")},
		"written to": {func(b *onnx.Builder) {
			b.Node("Transpose", []string{"at"}, []string{"pairs"})
			b.Node("GatherND", []string{"data", "pairs"}, []string{"found"})
			b.Node("ScatterND", []string{"data", "pairs", "found"}, []string{"y"})
			b.Output("y", ir.Float32)
		}, `node "y" (ScatterND, opset 17): it mixes the outputs of node "find" with what pads them to 7, by ScatterND of dimension 0 of i64[7,2]` + remedy},
		"counted by shape": {func(b *onnx.Builder) {
			b.Node("Shape", []string{"at"}, []string{"y"})
			b.Output("y", ir.Int64)
		}, `output "y" is the number of outputs of node "find", which is known only at run time; remove it: the output find_count says it`},
		"computed with": {func(b *onnx.Builder) {
			b.Node("Size", []string{"at"}, []string{"n"})
			b.Node("Cast", []string{"n"}, []string{"f"}, onnx.A("to", ir.Float32))
			b.Node("Div", []string{"x", "f"}, []string{"y"})
			b.Output("y", ir.Float32)
		}, `node "y" (Div, opset 17): it computes with the number of outputs of node "find", which is known only at run time` + remedy},
		"decided by": {func(b *onnx.Builder) {
			b.Node("Size", []string{"at"}, []string{"n"})
			b.Node("Greater", []string{"n", "zero"}, []string{"any"})
			b.Node("If", []string{"any"}, []string{"y"}, onnx.A("then_branch", branch), onnx.A("else_branch", branch))
			b.Output("y", ir.Float32)
		}, `node "y" (If, opset 17): it depends on the number of outputs of node "find", which is known only at run time` + remedy},
		"picked by": {func(b *onnx.Builder) {
			b.Node("Shape", []string{"at"}, []string{"n"}, onnx.A("start", 1))
			b.Node("ConstantOfShape", []string{"n"}, []string{"range"}, onnx.A("value", f32s(1)))
			b.Node("Cast", []string{"range"}, []string{"those"}, onnx.A("to", ir.Bool))
			b.Node("Compress", []string{"data", "those"}, []string{"y"})
			b.Output("y", ir.Float32)
		}, `node "y" (Compress, opset 17): it depends on the number of outputs of node "find", which is known only at run time` + remedy},
		"not zero": {func(b *onnx.Builder) {
			b.Node("Size", []string{"at"}, []string{"n"})
			b.Node("Unsqueeze", []string{"n", "none"}, []string{"list"})
			b.Node("NonZero", []string{"list"}, []string{"y"})
			b.Output("y", ir.Int64)
		}, `node "y" (NonZero, opset 17): it depends on the number of outputs of node "find", which is known only at run time` + remedy},
		"taken as many": {func(b *onnx.Builder) {
			b.Node("Shape", []string{"at"}, []string{"n"}, onnx.A("start", 1))
			b.Node("Slice", []string{"data", "none", "n"}, []string{"y"})
			b.Output("y", ir.Float32)
		}, `node "y" (Slice, opset 17): it depends on the number of outputs of node "find", which is known only at run time` + remedy},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := onnx.Import(following(t, c.model), bounded(7))
			require.EqualError(t, err, "model.onnx: "+c.want)
			var e *onnx.Error
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestBoundsThatDoNotFitAreRefused(t *testing.T) {
	m := following(t, func(b *onnx.Builder) { b.Output("at", ir.Int64) })
	for want, bounds := range map[string]map[string]int{
		`node "find" (NonZero, opset 17): how many outputs there are depends on data; give a bound with --max-output find=N: outputs are padded to N, and the output find_count says how many there are`: nil,
		`node "find" (NonZero, opset 17): --max-output find=0; give at least 1`:                                                                          {"find": 0},
		`--max-output other=5: no node of that name has a number of outputs that depends on data; such nodes are ["find"]`:                               {"find": 7, "other": 5},
		`node "find" (NonZero, opset 17): it would need a constant of shape [1000000000], of more than 16777216 elements; compile it for smaller shapes`: {"find": 1e9},
	} {
		_, err := onnx.Import(m, onnx.ImportOptions{MaxOutput: bounds})
		require.EqualError(t, err, "model.onnx: "+want)
	}
	m = following(t, func(b *onnx.Builder) {
		b.Output("at", ir.Int64)
		b.Node("Neg", []string{"x"}, []string{"find_count"})
		b.Output("find_count", ir.Float32)
	})
	_, err := onnx.Import(m, bounded(7))
	require.EqualError(t, err, `model.onnx: output "find_count" has the name of the count of outputs that --max-output adds; rename it`)
}

// OtherOutputs bounds nodes wherever they are; nodes whose outputs are constant need no bound, and take none.
func TestBound_OfNodesThatAreNotNamed(t *testing.T) {
	for name, c := range map[string]struct {
		build  func(b *onnx.Builder)
		counts int
	}{
		"constant condition": {func(b *onnx.Builder) {
			pick := b.Initializer("pick", ir.FromInts(ir.T(ir.Bool, 2), []int64{0, 1}))
			b.Node("Compress", []string{"x", pick}, []string{"y"}, onnx.A("axis", 0))
		}, 0},
		"constant input": {func(b *onnx.Builder) {
			at := b.Op("NonZero", []string{b.Initializer("k", ir.FromInts(ir.T(ir.Int32, 2), []int64{0, 1}))})
			b.Node("Gather", []string{"x", at}, []string{"y"})
		}, 0},
		"unread": {func(b *onnx.Builder) {
			b.Op("NonZero", []string{"x"})
			b.Node("Relu", []string{"x"}, []string{"y"})
		}, 0},
		"own graph": {func(b *onnx.Builder) { b.Node("NonZero", []string{"x"}, []string{"y"}) }, 1},
		"inner graph": {func(b *onnx.Builder) {
			branch := onnx.NewBuilder("then", 17)
			branch.Node("NonZero", []string{"x"}, []string{"inner"})
			branch.Output("inner", ir.Int64, 1, "n")
			hold := b.Initializer("hold", ir.ScalarInt(ir.Bool, 1))
			b.Node("If", []string{hold}, []string{"y"},
				onnx.A("then_branch", branch.Graph()), onnx.A("else_branch", branch.Graph()))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnx.NewBuilder("g", 17)
			b.Input("x", ir.Float32, 2)
			c.build(b)
			b.Output("y", ir.Int64)
			m, err := b.Model()
			require.NoError(t, err)
			m.Proto.Graph.Output[0].Type = nil
			g, err := onnx.Import(m, onnx.ImportOptions{OtherOutputs: 4})
			require.NoError(t, err)
			require.Len(t, g.Outputs, 1+c.counts)
		})
	}
}
