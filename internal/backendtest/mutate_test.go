package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// mutate makes a model wrong, or other, in one place.
func mutate(r *rand.Rand, g *onnxpb.GraphProto) string {
	n := g.Node[r.IntN(len(g.Node))]
	odd := []int64{-1, 0, 1, 2, 3, 7, -2, -7, 1 << 31, math.MaxInt64, math.MinInt64}
	number := odd[r.IntN(len(odd))]
	switch r.IntN(6) {
	case 0: // a dimension of an input
		if in := g.Input[r.IntN(max(1, len(g.Input)))]; len(in.GetType().GetTensorType().GetShape().GetDim()) > 0 {
			dims := in.Type.GetTensorType().Shape.Dim
			dims[r.IntN(len(dims))].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: number}
		}
		return "dimension"
	case 1: // the rank of an input
		in := g.Input[r.IntN(max(1, len(g.Input)))]
		if s := in.GetType().GetTensorType().GetShape(); s != nil {
			if len(s.Dim) > 0 && r.IntN(2) == 0 {
				s.Dim = s.Dim[1:]
			} else {
				s.Dim = append(s.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 2}})
			}
		}
		return "rank"
	case 2: // the element type of an input
		in := g.Input[r.IntN(max(1, len(g.Input)))]
		if t := in.GetType().GetTensorType(); t != nil {
			t.ElemType = proto.Int32(int32(1 + r.IntN(26)))
		}
		return "element type"
	case 3: // an attribute's value
		if len(n.Attribute) > 0 {
			a := n.Attribute[r.IntN(len(n.Attribute))]
			a.I = proto.Int64(number)
			if len(a.Ints) > 0 {
				a.Ints[r.IntN(len(a.Ints))] = number
			}
			if a.F != nil {
				a.F = proto.Float32(float32(number))
			}
		}
		return "attribute"
	case 4: // an attribute or a part of it disappears
		if k := len(n.Attribute); k > 0 {
			if a := n.Attribute[r.IntN(k)]; len(a.Ints) > 0 && r.IntN(2) == 0 {
				a.Ints = a.Ints[1:]
			} else {
				n.Attribute = n.Attribute[:k-1]
			}
		}
		return "no attribute"
	}
	if k := len(n.Input); k > 0 && r.IntN(2) == 0 {
		n.Input = n.Input[:k-1]
	} else if k > 0 {
		n.Input[r.IntN(k)] = ""
	}
	return "no input"
}

// tryImport reports a panic of Import.
func tryImport(data []byte, constants map[string]*ir.Tensor) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	m, e := onnx.Decode("", data)
	if e != nil || m.Validate() != nil {
		return nil
	}
	bound := map[string]*ir.Tensor{}
	for _, name := range onnx.ShapeInputs(m) {
		if t := constants[name]; t != nil {
			bound[name] = t
		}
	}
	g, e := onnx.Import(m, onnx.ImportOptions{Constants: bound, OtherOutputs: 4, MaxUnroll: 16})
	if e != nil {
		if _, ok := e.(*onnx.Error); !ok {
			return fmt.Errorf("an error that is no *onnx.Error: %w", e)
		}
		return nil
	}
	return g.Verify()
}

// TestMutatedNodeCasesAreRefusedInOrder changes node cases at random: whatever comes out, Import returns a graph that
// verifies, or an *onnx.Error.
func TestMutatedNodeCasesAreRefusedInOrder(t *testing.T) {
	dirs, err := List(nodeCases(t))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 2
	if os.Getenv("MUTATIONS") != "" {
		_, _ = fmt.Sscan(os.Getenv("MUTATIONS"), &rounds)
	}
	r := rand.New(rand.NewPCG(1, uint64(rounds)))
	for _, dir := range dirs {
		c, err := Load(dir)
		if err != nil || len(c.Model.Proto.Graph.Node) == 0 || len(c.Model.Proto.Graph.Input) == 0 {
			continue
		}
		constants := c.Inputs(c.Sets[0])
		for range rounds {
			p := proto.Clone(c.Model.Proto).(*onnxpb.ModelProto)
			what := mutate(r, p.Graph)
			data, err := proto.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := tryImport(data, constants); err != nil {
				t.Errorf("%s (%s): %v", filepath.Base(dir), what, err)
			}
		}
	}
}
