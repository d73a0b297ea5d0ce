package openpilot

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Names of the inputs that a step has besides those of its models, runtime.TransformsInput and runtime.CameraInput.
const (
	Frame     = "frame"     // the road camera's picture, or the driver camera's: luma, then interleaved chroma
	WideFrame = "big_frame" // the wide camera's
	Planes    = "planes"    // u8 [cameras, planes, height, width] of a plane: what models see (Options.Planes)
	OldPlanes = "state_frames"
	Desire    = "desire" // f32 [8]: 1 where a desire began
)

// Options of a step.
type Options struct {
	Import onnx.ImportOptions
	// Largest picture that a frame holds; the zero value is that of openpilot's 1928 × 1208 cameras.
	Largest runtime.FrameLayout
	// Sampling is nearest or linear; "": as modeld of the models' time does, nearest but for models with histories at the full rate.
	Sampling string
	// Planes says that pictures are given as the models see them, by who draws them: input planes stands for frames,
	// transforms and camera, and nothing is warped. Where a model sees earlier pictures too, input state_frames has the
	// planes of as many runs ago as its delay says: who gives planes keeps them.
	Planes bool
}

// Step is a graph. Inputs state_… keep what outputs next_state_… are, for as many runs as their delays say.
type Step struct {
	Run  *ir.Graph
	Skip *ir.Graph // what a missed frame changes, where the models are not run; nil: they are
	Loop runtime.Loop
	// Models are those of the step in the order in which they run.
	Models []*onnx.Model
	// Slices are the named parts of each output.
	Slices map[string][]onnx.Slice
}

// Compose makes the step of one model, or of a vision model and a policy, in either order. Errors name the file.
func Compose(models []*onnx.Model, opt Options) (*Step, error) {
	if len(models) == 0 || len(models) > 2 {
		return nil, fmt.Errorf("%d models: give one, or a vision model and a policy", len(models))
	}
	if opt.Largest == (runtime.FrameLayout{}) {
		opt.Largest = generation.Largest()
	}
	if err := opt.Largest.Validate(); err != nil {
		return nil, fmt.Errorf("the largest picture: %w", err)
	}
	if !slices.Contains([]string{"", runtime.Nearest, runtime.Linear}, opt.Sampling) {
		return nil, fmt.Errorf("sampling %q: want %s or %s", opt.Sampling, runtime.Nearest, runtime.Linear)
	}
	var parts []*part
	for _, m := range models {
		p, err := load(m, opt.Import)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return compose(parts, opt)
}

func compose(parts []*part, opt Options) (*Step, error) {
	s := &step{opt: opt, g: ir.NewGraph("step"), Step: &Step{Slices: map[string][]onnx.Slice{}}}
	if len(parts) == 2 {
		if parts[0].has(generation.Features) {
			slices.Reverse(parts)
		}
		if !parts[0].sees() || parts[0].has(generation.Features) || !parts[1].has(generation.Features) || parts[1].sees() {
			return nil, fmt.Errorf("%s and %s are no vision model and policy: of two models one takes pictures (%s), and the other %s, which the first one's %s feeds",
				parts[0].file(), parts[1].file(), strings.Join(generation.PictureInputs(), ", "), generation.Features, generation.HiddenState)
		}
		parts[0].qualify("vision")
		parts[1].qualify("policy")
	}
	var err error
	if len(parts) == 1 && parts[0].has(generation.DriverPicture) {
		err = s.monitoring(parts[0])
	} else {
		err = s.driving(parts)
	}
	if err != nil {
		return nil, err
	}
	s.Run = s.g
	if err := s.g.Toposort(); err != nil {
		return nil, err
	}
	return s.Step, s.g.Verify()
}

// part is an imported model.
type part struct {
	model  *onnx.Model
	graph  *ir.Graph
	slices []onnx.Slice
	output *ir.Value // the vector with the slices
}

func load(m *onnx.Model, opt onnx.ImportOptions) (*part, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	g, err := onnx.Import(m, opt)
	if err != nil {
		return nil, err
	}
	p := &part{model: m, graph: g}
	for _, v := range g.Outputs {
		if p.output == nil || v.Name == "outputs" {
			p.output = v
		}
	}
	if p.output == nil {
		return nil, fmt.Errorf("%s: it has no output", m.Path)
	}
	p.slices, err = m.OutputSlices(p.output.Type.Numel())
	return p, err
}

func (p *part) file() string { return filepath.Base(p.model.Path) }

// input is the graph's input of a name in the file, or nil.
func (p *part) input(name string) *ir.Value {
	i := slices.IndexFunc(p.graph.Inputs, func(v *ir.Value) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return p.graph.Inputs[i]
}

func (p *part) has(name string) bool { return p.input(name) != nil }

// Sees reports whether a file takes a road or wide camera's pictures, as driving models do, and their vision models.
func Sees(m *onnx.Model) bool {
	names := generation.PictureInputs()
	return slices.ContainsFunc(m.Proto.GetGraph().GetInput(), func(v *onnxpb.ValueInfoProto) bool {
		return slices.Contains(names, v.GetName())
	})
}

// sees reports whether the model takes pictures.
func (p *part) sees() bool {
	names := generation.PictureInputs()
	return slices.ContainsFunc(p.graph.Inputs, func(v *ir.Value) bool { return slices.Contains(names, v.Name) })
}

// qualify prefixes the names of nodes, values and outputs, so that those of two models differ.
func (p *part) qualify(name string) {
	for _, n := range p.graph.Nodes {
		n.Name = name + "/" + strings.TrimPrefix(n.Name, "/")
		for _, v := range n.Outputs {
			v.Name = name + "/" + strings.TrimPrefix(v.Name, "/")
		}
	}
	for _, v := range p.graph.Constants() {
		v.Name = name + "/" + v.Name
	}
	p.output.Name = name + "_outputs"
}

// missing is an error that says which inputs make a model one of openpilot's.
func (p *part) missing(format string, args ...any) error {
	return &onnx.Error{File: p.model.Path, Reason: fmt.Sprintf(format, args...) + "; its inputs are " + strings.Join(p.inputs(), ", ")}
}

func (p *part) inputs() (names []string) {
	for _, v := range p.graph.Inputs {
		names = append(names, v.Name)
	}
	return names
}

// step is a Step that is being made.
type step struct {
	*Step
	opt Options
	row *generation.Row // of driving models
	g   *ir.Graph
	by  map[*ir.Value]*ir.Value // inputs of models → what feeds them
	err error                   // the first, of add
}

// add appends a node, whose names say what they belong to.
func (s *step) add(op, name string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	if s.err != nil {
		return inputs[0]
	}
	n, err := s.g.Add(op, "loop/"+name, attrs, inputs...)
	if err != nil {
		s.err = fmt.Errorf("loop/%s: %w", name, err)
		return inputs[0]
	}
	return n.Outputs[0]
}

func (s *step) concat(name string, axis int, inputs ...*ir.Value) *ir.Value {
	return s.add("Concat", name, ir.Attrs{"axis": axis}, inputs...)
}

// rows are those from a row on, every so many.
func (s *step) rows(name string, x *ir.Value, from, every int) *ir.Value {
	if from == 0 && every == 1 {
		return x
	}
	starts, sizes, steps := make([]int, x.Type.Rank()), slices.Clone(x.Type.Shape), make([]int, x.Type.Rank())
	for i := range steps {
		steps[i] = 1
	}
	starts[0], sizes[0], steps[0] = from, (x.Type.Shape[0]-from+every-1)/every, every
	return s.add("Slice", name, ir.Attrs{"starts": starts, "sizes": sizes, "steps": steps}, x)
}

// push drops the first row of a history and appends one.
func (s *step) push(name string, old, row *ir.Value) *ir.Value {
	return s.concat(name, 0, s.rows(name, old, 1, 1), row)
}

// like is a value as the type of a model's input.
func (s *step) like(name string, x, in *ir.Value) *ir.Value {
	if !slices.Equal(x.Type.Shape, in.Type.Shape) {
		x = s.add("Reshape", name, ir.Attrs{"shape": slices.Clone(in.Type.Shape)}, x)
	}
	return s.cast(name, x, in.Type.DType)
}

func (s *step) cast(name string, x *ir.Value, to ir.DType) *ir.Value {
	if x.Type.DType == to {
		return x
	}
	return s.add("Cast", name, ir.Attrs{"to": to}, x)
}

// slice is a part of a model's output as f32: [n].
func (s *step) slice(p *part, name string, from, size int) *ir.Value {
	flat := s.add("Reshape", name, ir.Attrs{"shape": []int{p.output.Type.Numel()}}, p.output)
	x := s.add("Slice", name, ir.Attrs{"starts": []int{from}, "sizes": []int{size}}, flat)
	return s.cast(name, x, ir.Float32)
}

// keep makes a value the one that the returned input, a state, has so many runs later.
func (s *step) keep(name string, t ir.Type, delay int, next func(old *ir.Value) *ir.Value) *ir.Value {
	old := s.g.AddInput("state_"+name, t)
	v := next(old)
	v.Name = "next_" + old.Name
	s.g.Outputs = append(s.g.Outputs, v)
	delayed(old, delay)
	return old
}

// delayed says how many runs ago an input's value was made.
func delayed(in *ir.Value, runs int) {
	if runs > 1 {
		in.Delay = runs
	}
}

func floats[T float32 | int32](list []T) (out []float64) {
	for _, x := range list {
		out = append(out, float64(x))
	}
	return out
}

// take appends a model whose inputs are fed.
func (s *step) take(p *part) {
	s.g.Append(p.graph)
	s.g.Substitute(s.by)
	s.g.Outputs = append(s.g.Outputs, p.output)
	s.Slices[p.output.Name], s.Models = p.slices, append(s.Models, p.model)
}

// frames adds the inputs with pictures of cameras, and what they show through matrices.
func (s *step) frames(height, width int, attrs ir.Attrs, names ...string) *ir.Value {
	s.Loop.Height, s.Loop.Width = height, width
	if s.opt.Planes {
		shape := []int{len(names), 1, height, width}
		if luma := len(attrs.Ints("phases")) / 2; luma > 0 {
			shape = []int{len(names), luma + 2, height / 2, width / 2}
		}
		return s.g.AddInput(Planes, ir.T(ir.Uint8, shape...))
	}
	l := s.opt.Largest
	matrices := s.g.AddInput(runtime.TransformsInput, ir.T(ir.Float32, len(names), 3, 3))
	format := s.g.AddInput(runtime.CameraInput, ir.T(ir.Int32, 4))
	inputs := []*ir.Value{matrices, format}
	for _, name := range names {
		inputs = append(inputs, s.g.AddInput(name, ir.T(ir.Uint8, l.Bytes())))
		s.Loop.Frames = append(s.Loop.Frames, name)
	}
	s.Loop.Largest = l
	s.Loop.Sampling = runtime.Nearest
	if attrs["linear"] == true {
		s.Loop.Sampling = runtime.Linear
	}
	attrs["height"], attrs["width"] = height, width
	transforms, camera := generation.Sample(&s.Loop)
	matrices.Sample, format.Sample = floats(transforms), floats(camera)
	return s.add("WarpFrame", "warp", attrs, inputs...)
}
