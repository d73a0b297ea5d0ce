package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// ImportOptions sets what a model leaves open.
type ImportOptions struct {
	// Shapes gives the shapes of inputs by name (--shape). They also fix the symbolic dimensions of these inputs
	// wherever else those occur.
	Shapes map[string][]int
	// Batch, if not 0, replaces the leading dimension of every input (--batch). Where the file leaves that open it
	// says what becomes of it; a file that fixes it as 1 computes for each of several samples what it does for one
	// alone (ir.Graph.Batch).
	Batch int
	// Constants binds inputs to values, which removes them from the graph's inputs. ShapeInputs lists the inputs that
	// must be bound because they decide shapes.
	Constants map[string]*ir.Tensor
	// MaxOutput bounds the number of outputs of nodes where it depends on data (NonMaxSuppression, NonZero, Unique,
	// Compress), by the node's name, or its first output's where it has none (--max-output). Their outputs are padded
	// with zeros to the bound, and the graph has the extra output NAME_count, an i64 scalar. It may exceed the bound:
	// then only the first ones are there. What would mix padding with what is meant is refused.
	MaxOutput map[string]int
	// OtherOutputs, if not 0, is the bound of such nodes that MaxOutput does not name.
	OtherOutputs int
	// MaxUnroll limits the iterations of a Loop or Scan; 0 means 1024.
	MaxUnroll int
	// Warn is told of contradictions that ONNX Runtime warns about; nil: Model.Warn is.
	Warn func(string)
}

// Import converts a validated model to a graph of ops: it resolves opset differences, optional attributes, control
// flow and functions. Values keep the file's element types, and constants keep its bytes where possible. Whatever
// depends only on constants and shapes is evaluated, except DequantizeLinear, so that quantised weights stay
// recognisable. Errors are of type *Error.
func Import(m *Model, opt ImportOptions) (*ir.Graph, error) {
	g, _, err := ImportBatch(m, opt)
	return g, err
}

// ImportBatch is Import, and also returns the graph for one sample if the batch is made from it (ir.Graph.Batch):
// samples are then computed separately. Sample is nil if the file itself takes a batch, and so may mix its samples.
func ImportBatch(m *Model, opt ImportOptions) (g, sample *ir.Graph, err error) {
	if opt.MaxUnroll == 0 {
		opt.MaxUnroll = 1024
	}
	var open error
	if opt.Batch <= 1 || !fixesBatch(m, opt) {
		g, err := importGraph(m, opt)
		if err == nil || opt.Batch <= 1 {
			return g, nil, err
		}
		open = err // the file may need a batch of 1 inside
	}
	one := opt
	one.Batch = 1
	one.Shapes = maps.Clone(opt.Shapes)
	for name, s := range opt.Shapes {
		if len(s) > 0 && s[0] == opt.Batch {
			one.Shapes[name] = slices.Concat([]int{1}, s[1:])
		}
	}
	sample, err = importGraph(m, one)
	switch {
	case err != nil && open != nil:
		return nil, nil, open
	case err != nil:
		return nil, nil, err
	}
	if g, err = sample.Batch(opt.Batch); err != nil {
		return nil, nil, m.fileError("%w", err).WithRemedy("leave out --batch, or export the model with a symbolic batch dimension")
	}
	return g, sample, nil
}

// fixesBatch reports whether the file says itself that the leading dimension of an input is 1.
func fixesBatch(m *Model, opt ImportOptions) bool {
	return slices.ContainsFunc(m.Proto.Graph.Input, func(v *onnxpb.ValueInfoProto) bool {
		d := v.GetType().GetTensorType().GetShape().GetDim()
		if len(d) == 0 || opt.Constants[v.GetName()] != nil || slices.ContainsFunc(m.Proto.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == v.GetName() }) {
			return false
		}
		n, _ := size(d[0])
		return n == 1
	})
}

func importGraph(m *Model, opt ImportOptions) (*ir.Graph, error) {
	im := &importer{m: m, opt: opt, table: operators, g: ir.NewGraph(m.Proto.Graph.GetName()),
		sequences: map[*ir.Value][]*ir.Value{},
		counts:    counts{padded: map[*ir.Value]padding{}, counted: map[*ir.Value]padding{}, used: map[string]bool{}}}
	for _, p := range m.Proto.MetadataProps {
		im.g.Meta[p.GetKey()] = p.GetValue()
	}
	if err := im.run(); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Op != "" && e.Remedy == broken { // which shapes that were not the file's may have caused
			switch {
			case opt.Batch > 1:
				e.Remedy = fmt.Sprintf("a model with fixed shapes may not support --batch %d; export it with a symbolic batch dimension", opt.Batch)
			case len(opt.Shapes) > 0:
				e.Remedy = "give other shapes with --shape if these do not fit; if they should, the file breaks the rules of ONNX: export it again"
			}
		}
		return nil, err
	}
	warn := opt.Warn
	if warn == nil {
		warn = im.m.warn
	}
	for _, w := range im.warnings {
		warn(w)
	}
	return im.g, nil
}

// maxNodes limits the graph after unrolling and inlining.
const maxNodes = 1 << 20

type importer struct {
	m     *Model
	opt   ImportOptions
	table operatorTable
	g     *ir.Graph
	counts
	sequences map[*ir.Value][]*ir.Value // tensors of sequences, by the values that stand for these

	converted int // nodes so far
	warnings  []string
}

// warn keeps a warning about the file until the import has succeeded.
func (im *importer) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if im.m.Path != "" {
		text = im.m.Path + ": " + text
	}
	im.warnings = append(im.warnings, text)
}

func (im *importer) run() error {
	graph := im.m.Proto.Graph
	top := &scope{values: map[string]*ir.Value{}, opsets: im.m.Opsets, top: true}
	if err := im.initializers(top, graph); err != nil {
		return err
	}
	if err := im.inputs(top, graph); err != nil {
		return err
	}
	top.results(valueNames(graph.Output), graph.Node)
	if err := im.nodes(top, graph.Node); err != nil {
		return err
	}
	if err := im.checkBounds(); err != nil {
		return err
	}
	if err := im.outputs(top, graph); err != nil {
		return err
	}
	im.g.RemoveDead()
	return im.checkBatch()
}

// initializers makes the constants of a graph; their bytes are the file's.
func (im *importer) initializers(sc *scope, graph *onnxpb.GraphProto) error {
	for _, t := range graph.Initializer {
		if im.opt.Constants[t.GetName()] != nil && sc.top {
			continue
		}
		data, err := im.m.Tensor(t)
		if err != nil {
			return err
		}
		sc.values[t.GetName()] = im.g.Constant(t.GetName(), data)
	}
	for _, t := range graph.SparseInitializer {
		name := t.GetValues().GetName()
		if im.opt.Constants[name] != nil && sc.top {
			continue
		}
		data, err := im.denseTensor(t)
		if err != nil {
			return err
		}
		sc.values[name] = im.g.Constant(name, data)
	}
	return nil
}

// inputs makes the graph's inputs, except those that initializers and Constants replace.
func (im *importer) inputs(sc *scope, graph *onnxpb.GraphProto) error {
	declared := valueNames(graph.Input)
	for _, name := range slices.Concat(sortedKeys(im.opt.Shapes), sortedKeys(im.opt.Constants)) {
		if !slices.Contains(declared, name) {
			return im.m.fileError("a shape or value is given for %q, which is not an input", name).
				WithRemedy("the inputs are %s", strings.Join(declared, ", "))
		}
	}
	dims, err := im.bindDims(graph)
	if err != nil {
		return err
	}
	for _, in := range graph.Input {
		name := in.GetName()
		if t := im.opt.Constants[name]; t != nil {
			if err := im.checkBound(in, t); err != nil {
				return err
			}
			sc.values[name] = im.g.Constant(name, t)
			continue
		}
		if sc.values[name] != nil {
			continue // an initializer is the default of the input
		}
		t, err := im.inputType(in, dims)
		if err != nil {
			return err
		}
		sc.values[name] = im.g.AddInput(name, t)
	}
	return nil
}

func valueNames(list []*onnxpb.ValueInfoProto) []string {
	return mapped(list, (*onnxpb.ValueInfoProto).GetName)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (im *importer) checkBound(in *onnxpb.ValueInfoProto, t *ir.Tensor) error {
	tt, err := im.tensorType(in)
	if err != nil {
		return err
	}
	d, err := DType(tt.GetElemType())
	if err == nil && d != t.DType {
		err = fmt.Errorf("its type is %v", d)
	}
	if err != nil {
		return im.m.fileError("input %q is bound to a constant of type %v, but %w", in.GetName(), t.DType, err).WithRemedy("bind one of the input's type")
	}
	return nil
}

// tensorType returns the tensor type of an input or refuses the other kinds by name.
func (im *importer) tensorType(in *onnxpb.ValueInfoProto) (*onnxpb.TypeProto_Tensor, error) {
	if t := in.GetType().GetTensorType(); t != nil {
		return t, nil
	}
	t := in.GetType().ProtoReflect()
	kind := t.WhichOneof(t.Descriptor().Oneofs().ByName("value"))
	if kind == nil {
		return nil, im.m.fileError("input %q has no type", in.GetName())
	}
	name := strings.ReplaceAll(strings.TrimSuffix(string(kind.Name()), "_type"), "_", " ")
	return nil, im.m.fileError("input %q is of type %s; only tensors are supported", in.GetName(), name).AsUnsupported("export it with tensors for inputs")
}

// bindDims finds the sizes of symbolic dimensions in the given shapes and bound constants.
func (im *importer) bindDims(graph *onnxpb.GraphProto) (map[string]int, error) {
	dims := map[string]int{}
	for _, in := range graph.Input {
		name := in.GetName()
		shape, given := im.opt.Shapes[name]
		if t := im.opt.Constants[name]; t != nil {
			shape, given = t.Shape, true
		}
		tt := in.GetType().GetTensorType()
		if !given || tt == nil {
			continue
		}
		if tt.Shape != nil && len(tt.Shape.Dim) != len(shape) {
			return nil, im.m.fileError("input %q has %d dimensions, the given shape %v has %d", name, len(tt.Shape.Dim), shape, len(shape)).WithRemedy("give a size for each")
		}
		for i, d := range tt.GetShape().GetDim() {
			n, param := size(d)
			if n != -1 && n != shape[i] {
				return nil, im.m.fileError("input %q: dimension %d is %d in the model, but %d in the given shape %v", name, i, n, shape[i], shape).WithRemedy("give %d, or export the model with a symbolic dimension", n)
			}
			if param == "" {
				continue
			}
			im.bindDim(dims, name, param, shape[i])
		}
	}
	return dims, nil
}

// severalSizes is what a symbolic dimension with contradicting sizes is bound to: it says nothing of other inputs.
const severalSizes = -1

// bindDim binds a symbolic dimension to its size in an input.
func (im *importer) bindDim(dims map[string]int, input, param string, n int) {
	switch have, ok := dims[param]; {
	case !ok || have == n:
		dims[param] = n
	case have != severalSizes:
		im.warn("input %q: dimension %q is %d, but %d elsewhere: each input keeps the size that is given for it",
			input, param, n, have)
		dims[param] = severalSizes
	}
}

// inputType resolves the static type of an input.
func (im *importer) inputType(in *onnxpb.ValueInfoProto, dims map[string]int) (ir.Type, error) {
	name := in.GetName()
	tt, err := im.tensorType(in)
	if err != nil {
		return ir.Type{}, err
	}
	d, err := DType(tt.GetElemType())
	if err != nil {
		return ir.Type{}, im.m.fileError("input %q: %w", name, err).AsUnsupported("export it with numbers of up to 64 bits")
	}
	shape, given := im.opt.Shapes[name]
	shape = slices.Clone(shape)
	if !given {
		if tt.Shape == nil {
			return ir.Type{}, im.m.fileError("input %q has no shape", name).WithRemedy("give one with --shape %s=…", name)
		}
		for i, dim := range tt.Shape.Dim {
			n, err := im.dimension(name, i, dim, dims, len(tt.Shape.Dim))
			if err != nil {
				return ir.Type{}, err
			}
			shape = append(shape, n)
		}
	} else if b := im.opt.Batch; b != 0 && len(shape) > 0 && shape[0] != b {
		return ir.Type{}, im.m.fileError("input %q: --shape %v contradicts --batch %d", name, shape, b).WithRemedy("give one of them")
	}
	if shape == nil {
		shape = []int{}
	}
	if err := ir.CheckShape(shape); err != nil {
		return ir.Type{}, im.m.fileError("input %q: %w", name, err).WithRemedy("give another one with --shape %s=…", name)
	}
	return ir.Type{DType: d, Shape: shape}, nil
}

// unnamedDims are what exporters call every dimension that they do not know, so that two of them need not be equal.
var unnamedDims = []string{"?", "unk", "unknown", "None"}

// size returns a dimension's size, or −1 and its symbol, if it has one. Some exporters write an unnamed symbolic
// dimension as −1, some give all the same name.
func size(d *onnxpb.TensorShapeProto_Dimension) (n int, param string) {
	if v, ok := d.Value.(*onnxpb.TensorShapeProto_Dimension_DimValue); ok {
		return int(v.DimValue), ""
	}
	if param = d.GetDimParam(); slices.Contains(unnamedDims, param) {
		param = ""
	}
	return -1, param
}

func (im *importer) dimension(input string, i int, dim *onnxpb.TensorShapeProto_Dimension, dims map[string]int, rank int) (int, error) {
	n, param := size(dim)
	if b := im.opt.Batch; b != 0 && i == 0 {
		if n != -1 && n != 1 && n != b {
			return 0, im.m.fileError("input %q: its leading dimension is %d, but --batch can only replace a batch of 1", input, n).WithRemedy("leave out --batch, or export the model with a symbolic batch dimension")
		}
		if param != "" {
			im.bindDim(dims, input, param, b)
		}
		return b, nil
	}
	if n != -1 {
		return n, nil
	}
	if n, ok := dims[param]; ok && n != severalSizes && param != "" {
		return n, nil
	}
	if i == 0 { // a batch, most often
		im.warn("input %q: its leading dimension is not fixed and taken as 1: give another with --batch or --shape", input)
		if param != "" {
			im.bindDim(dims, input, param, 1)
		}
		return 1, nil
	}
	what := fmt.Sprintf("dimension %d (%q)", i, param)
	if param == "" {
		what = fmt.Sprintf("dimension %d", i)
	}
	return 0, im.m.fileError("input %q: %s is not fixed", input, what).
		WithRemedy("give its shape, of %d dimensions, with --shape %s=…", rank, input)
}

// outputs gives the graph's outputs the file's names and compares their types with the declared ones.
func (im *importer) outputs(sc *scope, graph *onnxpb.GraphProto) error {
	taken := map[*ir.Value]bool{}
	for _, in := range im.g.Inputs {
		taken[in] = true
	}
	for _, out := range graph.Output {
		name := out.GetName()
		v := sc.lookup(name)
		if v == nil {
			return im.m.fileError("output %q is never computed", out.GetName())
		}
		if _, ok := im.sequences[v]; ok {
			return im.m.fileError("output %q is a sequence", out.GetName()).AsUnsupported("join its tensors by ConcatFromSequence")
		}
		if err := im.checkDeclared(out, v); err != nil {
			return err
		}
		if p, ok := im.counted[v]; ok {
			return im.m.fileError("output %q is the number of outputs of node %q, which is known only at run time", out.GetName(), p.node).
				WithRemedy("remove it: the output %s says it", countName(p.node))
		}
		switch {
		case v.IsConst():
			v = &ir.Value{Name: name, Type: v.Type, Const: v.Const}
		case taken[v]: // an input, or already an output: a second name needs a second value
			n, err := im.g.Add("Reshape", name, ir.Attrs{"shape": append([]int{}, v.Type.Shape...)}, v)
			if err != nil {
				return im.m.fileError("output %q: %w", name, err)
			}
			if v.Name == name {
				name = outputName(name, graph)
				im.warn("output %q is an input, and a program has each name once: the output is named %q", v.Name, name)
			}
			v = n.Outputs[0]
		}
		v.Name = name
		taken[v] = true
		im.g.Outputs = append(im.g.Outputs, v)
	}
	for _, v := range im.counts.outputs {
		if slices.ContainsFunc(im.g.Outputs, func(o *ir.Value) bool { return o.Name == v.Name }) {
			return im.m.fileError("output %q has the name of the count of outputs that --max-output adds", v.Name).WithRemedy("rename it")
		}
		im.g.Outputs = append(im.g.Outputs, v)
	}
	if len(im.g.Outputs) == 0 {
		return im.m.fileError("the graph has no outputs")
	}
	return nil
}

// outputName names the output that is the input of that name: NAME_output, with as many underscores more as make it
// the only one.
func outputName(input string, graph *onnxpb.GraphProto) string {
	name := input + "_output"
	is := func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == name }
	for slices.ContainsFunc(graph.Input, is) || slices.ContainsFunc(graph.Output, is) {
		name += "_"
	}
	return name
}

// checkDeclared compares an output with its declaration. Another type is an error. Another shape is a warning, as in
// ONNX Runtime: exporters write an empty one for one that they do not know. --batch may have changed its sizes.
func (im *importer) checkDeclared(out *onnxpb.ValueInfoProto, v *ir.Value) error {
	tt := out.GetType().GetTensorType()
	if tt == nil || tt.GetElemType() == 0 {
		return nil
	}
	d, err := DType(tt.GetElemType())
	if err != nil {
		return im.m.fileError("output %q: %w", out.GetName(), err).AsUnsupported("export it with numbers of up to 64 bits")
	}
	if d != v.Type.DType {
		return im.m.fileError("output %q is declared as %v, but computed as %v", out.GetName(), d, v.Type.DType)
	}
	if tt.Shape == nil || im.opt.Batch != 0 {
		return nil
	}
	ok := len(tt.Shape.Dim) == v.Type.Rank()
	for i := 0; ok && i < len(tt.Shape.Dim); i++ {
		n, _ := size(tt.Shape.Dim[i])
		p, padded := im.padded[v]
		ok = n == -1 || n == v.Type.Shape[i] || padded && p.axis == i
	}
	if !ok {
		im.warn("output %q is declared with shape %v, but computed with %v, which counts",
			out.GetName(), shapeString(tt.Shape), v.Type.Shape)
	}
	return nil
}

func shapeString(s *onnxpb.TensorShapeProto) string {
	return fmt.Sprint(mapped(s.Dim, func(d *onnxpb.TensorShapeProto_Dimension) string {
		if n, param := size(d); n == -1 {
			return cmp.Or(param, "?")
		}
		return strconv.FormatInt(d.GetDimValue(), 10)
	}))
}

// checkBatch rejects --batch if an output does not have the new leading dimension: the model fixes it inside, for
// instance in the shape of a Reshape.
func (im *importer) checkBatch() error {
	if im.opt.Batch <= 1 {
		return nil
	}
	for _, out := range im.g.Outputs {
		if out.Type.Rank() == 0 || out.Type.Shape[0] != im.opt.Batch {
			return im.m.fileError("--batch %d does not reach output %q, which is %v", im.opt.Batch, out.Name, out.Type).
				WithRemedy("export the model with a symbolic batch dimension")
		}
	}
	return nil
}
