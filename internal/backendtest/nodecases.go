// Package backendtest reads ONNX backend test cases, a model with inputs and expected outputs in a directory each, and runs them through the
// evaluator or, compiled for their inputs' shapes, as PTX on a device.
package backendtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Case is one directory.
type Case struct {
	Name  string
	Dir   string
	Model *onnx.Model
	Sets  []Set
}

// Set is one data set. Values are in the order of Case.InputInfos and of the model's outputs. A value that is not a
// tensor, or whose element type the compiler does not have, is nil; Import refuses its model.
type Set struct {
	Inputs  []*ir.Tensor
	Outputs []*ir.Tensor
}

// Disputed are node cases of the onnx package whose expected values are not what this project computes, by name, with the reason.
// They are skipped by it, not passed.
var Disputed = map[string]string{
	"test_resize_downsample_scales_linear_align_corners": alignCorners,
	"test_resize_downsample_scales_cubic_align_corners":  alignCorners,
}

const alignCorners = "onnx aligns the corners of scale·size, which is no whole number; we align those of the output, as ONNX Runtime and PyTorch do"

// List returns the case directories at or below root, sorted: those that hold a model.onnx.
func List(root string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(root, "model.onnx")); err == nil {
		return []string{root}, nil
	}
	found, err := filepath.Glob(filepath.Join(root, "*", "model.onnx"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no test case: neither a model.onnx nor directories with one", root)
	}
	for i, f := range found {
		found[i] = filepath.Dir(f)
	}
	slices.Sort(found)
	return found, nil
}

// Load reads a case. An error of the model is of type *onnx.Error.
func Load(dir string) (*Case, error) {
	m, err := onnx.Load(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	c := &Case{Name: filepath.Base(dir), Dir: dir, Model: m}
	graph := m.Proto.GetGraph()
	for n := 0; ; n++ {
		folder := filepath.Join(dir, "test_data_set_"+strconv.Itoa(n))
		if _, err := os.Stat(folder); err != nil {
			return c, nil
		}
		var set Set
		if set.Inputs, err = values(m, folder, "input", c.InputInfos()); err != nil {
			return nil, err
		}
		if set.Outputs, err = values(m, folder, "output", graph.Output); err != nil {
			return nil, err
		}
		c.Sets = append(c.Sets, set)
	}
}

// InputInfos returns the inputs that a run must set: those without an initializer.
func (c *Case) InputInfos() []*onnxpb.ValueInfoProto {
	graph := c.Model.Proto.GetGraph()
	given := map[string]bool{}
	for _, t := range graph.Initializer {
		given[t.GetName()] = true
	}
	var list []*onnxpb.ValueInfoProto
	for _, in := range graph.Input {
		if !given[in.GetName()] {
			list = append(list, in)
		}
	}
	return list
}

func values(m *onnx.Model, folder, kind string, infos []*onnxpb.ValueInfoProto) ([]*ir.Tensor, error) {
	list := make([]*ir.Tensor, len(infos))
	for i, info := range infos {
		path := filepath.Join(folder, fmt.Sprintf("%s_%d.pb", kind, i))
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			break // absent optional inputs at the end
		}
		if err != nil {
			return nil, err
		}
		t := info.GetType().GetTensorType()
		if t == nil {
			continue
		}
		if _, err := onnx.DType(t.GetElemType()); err != nil {
			continue
		}
		var p onnxpb.TensorProto
		if err := proto.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("%s: not a tensor: %w", path, err)
		}
		if list[i], err = m.Tensor(&p); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return list, nil
}

// Import imports the model for one data set: dynamic dimensions take their sizes from its inputs, and the inputs
// that decide shapes (onnx.ShapeInputs) become constants.
func (c *Case) Import(set Set) (*ir.Graph, error) {
	opt := onnx.ImportOptions{Shapes: map[string][]int{}, Constants: map[string]*ir.Tensor{}}
	opt.OtherOutputs = set.bound()
	deciding := c.Bound()
	for i, in := range c.InputInfos() {
		t := set.Inputs[i]
		switch {
		case t == nil:
		case slices.Contains(deciding, in.GetName()):
			opt.Constants[in.GetName()] = t
		default:
			opt.Shapes[in.GetName()] = t.Shape
		}
	}
	return onnx.Import(c.Model, opt)
}

// spare is by how much bounds exceed the number of outputs, so that there is padding.
const spare = 2

// bound is that of the nodes whose number of outputs depends on data: more than any dimension of an output.
func (set Set) bound() int {
	most := 1
	for _, t := range set.Outputs {
		if t != nil {
			most = max(most, slices.Max(append([]int{1}, t.Shape...)))
		}
	}
	return most + spare
}

// Unpadded cuts an output that a bound has padded to the shape of what is expected. An output that is not larger than that in
// each dimension stays as it is.
func Unpadded(got, want *ir.Tensor) *ir.Tensor {
	if slices.Equal(got.Shape, want.Shape) || got.Rank() != want.Rank() || got.DType != want.DType {
		return got
	}
	for d, n := range got.Shape {
		if n < want.Shape[d] {
			return got
		}
	}
	x := got.Array()
	y := ir.NewArray(ir.T(want.DType, want.Shape...))
	index := make([]int, got.Rank())
	at := 0
	for i := range got.Numel() {
		rest, inside := i, true
		for d := len(index) - 1; d >= 0; d-- {
			index[d], rest = rest%got.Shape[d], rest/got.Shape[d]
			inside = inside && index[d] < want.Shape[d]
		}
		switch {
		case !inside:
			continue
		case y.F != nil:
			y.F[at] = x.F[i]
		default:
			y.I[at] = x.I[i]
		}
		at++
	}
	return y.Tensor()
}

// Bound names the inputs that Import makes constants of, since shapes depend on them.
func (c *Case) Bound() []string {
	deciding := onnx.ShapeInputs(c.Model)
	return slices.DeleteFunc(slices.Clone(deciding), func(name string) bool {
		return !slices.ContainsFunc(c.InputInfos(), func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == name })
	})
}

// Inputs returns the data of a set by input name.
func (c *Case) Inputs(set Set) map[string]*ir.Tensor {
	byName := map[string]*ir.Tensor{}
	for i, in := range c.InputInfos() {
		if set.Inputs[i] != nil {
			byName[in.GetName()] = set.Inputs[i]
		}
	}
	return byName
}
