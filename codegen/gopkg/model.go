package gopkg

import (
	"bytes"
	"fmt"
	"strings"

	. "github.com/dave/jennifer/jen"
	"golang.org/x/tools/imports"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// Module is what a generated package imports its runtime from.
const Module = "github.com/spark-compile/spark-compile"

const (
	runtimePath = Module + "/runtime"
	halPath     = Module + "/hal"
	detectPath  = Module + "/hal/detect"
	modeldPath  = runtimePath + "/modeld"
	float16Path = "github.com/x448/float16"
)

// source describes the package to generate.
type source struct {
	name    string
	program *runtime.Program
	golden  *Golden

	inputs, outputs []field
	slices          []accessor
	states          map[string]bool // names of state inputs
}

// field is a port and the struct field that holds it.
type field struct {
	port runtime.Port
	name string
}

// accessor is a method for a named slice of an output.
type accessor struct {
	output field
	slice  runtime.Slice
	name   string
}

func newSource(name string, p *runtime.Program, golden *Golden) *source {
	s := &source{name: name, program: p, golden: golden, states: map[string]bool{}}
	hidden := map[string]bool{}
	for _, st := range p.States {
		s.states[st.Input], hidden[st.Output] = true, st.Delay > 1
	}
	in, out := namer{}, namer{}
	for _, q := range p.Inputs {
		if !s.states[q.Name] {
			s.inputs = append(s.inputs, field{q, in.name(q.Name)})
		}
	}
	for _, q := range p.Outputs {
		if !hidden[q.Name] { // its place changes from run to run: Session().Output has it
			s.outputs = append(s.outputs, field{q, out.name(q.Name)})
		}
	}
	for _, f := range s.outputs {
		for _, sl := range f.port.Slices {
			s.slices = append(s.slices, accessor{f, sl, out.name(sl.Name)})
		}
	}
	return s
}

// file starts a file of the package.
func (s *source) file() *File {
	f := NewFile(s.name)
	f.HeaderComment(header)
	f.ImportNames(map[string]string{runtimePath: "runtime", halPath: "hal", detectPath: "detect", modeldPath: "modeld", float16Path: "float16"})
	return f
}

// element is the Go type of a port's elements.
func element(dtype string) *Statement {
	switch dtype {
	case "f16":
		return Qual(float16Path, "Float16")
	case "bf16":
		return Qual(runtimePath, "BFloat16")
	case "f32":
		return Float32()
	case "f64":
		return Float64()
	case "bool":
		return Bool()
	case "i8", "i16", "i32", "i64":
		return Id("int" + dtype[1:])
	case "u8", "u16", "u32", "u64":
		return Id("uint" + dtype[1:])
	}
	if f := minifloat.Named(dtype); dtype == "e8m0" || f != nil && f.Bits() == 8 {
		return Qual(runtimePath, "Float8")
	}
	return Byte() // packed sub-byte elements
}

// model writes model.go.
func (s *source) model() ([]byte, error) {
	f := s.file()
	for _, line := range strings.Split(s.packageDoc(), "\n") {
		f.PackageComment(strings.TrimSuffix("// "+line, " "))
	}
	f.Comment("compiledFiles holds the program, its weights and its kernels.")
	f.Comment("//")
	f.Comment(s.embed())
	f.Var().Id("compiledFiles").Qual("embed", "FS")
	f.Line()
	s.types(f)
	s.load(f)
	s.methods(f)
	return render(f)
}

func (s *source) embed() string {
	patterns := []string{runtime.ProgramFile, runtime.WeightsFile}
	for _, v := range s.program.Variants {
		patterns = append(patterns, v.Target)
	}
	return "//go:embed " + strings.Join(patterns, " ")
}

func (s *source) packageDoc() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Package %s runs %s, compiled to %s for", s.name, s.program.Model, s.program.Precision)
	for i, v := range s.program.Variants {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + v.Target)
	}
	b.WriteString("." + s.origin() + "\n\nLoad it once, fill the inputs in place, and Run as often as you like:\n\n\tm, err := " + s.name + ".Load(ctx)\n\tdefer m.Close()\n\tin := m.Inputs()\n")
	for _, q := range s.inputs {
		fmt.Fprintf(&b, "\tcopy(in.%s, …)\n", q.name)
	}
	b.WriteString("\tout, err := m.Run(ctx)\n\nOnly one goroutine may use a Model at a time.")
	return b.String()
}

// origin says where the program comes from, with a line for each.
func (s *source) origin() string {
	from := s.program.Provenance
	if from.SHA256 == "" {
		return ""
	}
	var b strings.Builder
	line := func(what string, x any) { fmt.Fprintf(&b, "\n\t%-16s %v", what, x) }
	b.WriteString("\n")
	line("compiler", "spark-compile "+from.Compiler)
	line("sha256", from.SHA256)
	if from.Checkpoint != "" {
		line("model_checkpoint", from.Checkpoint)
	}
	if len(from.Flags) > 0 {
		line("flags", strings.Join(from.Flags, " "))
	}
	if c := from.Calibration; c != nil {
		line("calibration", fmt.Sprintf("%d inputs, sha256 %s", c.Inputs, c.SHA256))
	}
	if a := from.Accuracy; a != nil {
		line("lowest cosine", fmt.Sprintf("%.6f, %s, %s", a.Cosine, a.Of, a.On))
	}
	return b.String()
}

func (s *source) types(f *File) {
	ports := func(name, doc string, fields []field) {
		f.Comment(name + doc)
		f.Type().Id(name).StructFunc(func(g *Group) {
			for _, q := range fields {
				g.Comment(fmt.Sprintf("%s is %q: %s, row-major.", q.name, q.port.Name, q.port.String()))
				g.Id(q.name).Index().Add(element(q.port.DType))
			}
		})
	}
	ports("Inputs", " are the model's inputs in device-visible memory: fill them before Run. Their contents stay from run to run.", s.inputs)
	ports("Outputs", " are the model's outputs. They are valid until the next Run.", s.outputs)
	for _, a := range s.slices {
		if every := a.slice.Every; every > 0 {
			f.Comment(fmt.Sprintf("%s returns %s[%d:%d] of a sample, of which each has %d elements.", a.name, a.output.name, a.slice.Start, a.slice.Stop, every))
			f.Func().Params(Id("o").Op("*").Id("Outputs")).Id(a.name).Params(Id("sample").Int()).Index().Add(element(a.output.port.DType)).Block(
				Id("at").Op(":=").Lit(every).Op("*").Id("sample"),
				Return(Id("o").Dot(a.output.name).Index(Id("at").Op("+").Lit(a.slice.Start), Id("at").Op("+").Lit(a.slice.Stop), Id("at").Op("+").Lit(a.slice.Stop))))
			continue
		}
		f.Comment(fmt.Sprintf("%s returns %s[%d:%d].", a.name, a.output.name, a.slice.Start, a.slice.Stop))
		f.Func().Params(Id("o").Op("*").Id("Outputs")).Id(a.name).Params().Index().Add(element(a.output.port.DType)).Block(
			Return(Id("o").Dot(a.output.name).Index(Lit(a.slice.Start), Lit(a.slice.Stop), Lit(a.slice.Stop))))
	}
	f.Comment("Model is the program loaded on a device, with one set of inputs and outputs.")
	f.Type().Id("Model").Struct(
		Id("device").Qual(halPath, "Device"),
		Id("session").Op("*").Qual(runtimePath, "Session"),
		Id("shared").Bool(),
		Id("closed").Bool(),
		Id("notice").String(),
		Id("in").Id("Inputs"),
		Id("out").Id("Outputs"),
	)
	f.Comment("Option is a setting of Load.")
	f.Type().Id("Option").Func().Params(Op("*").Id("loadOptions"))
	f.Line()
	f.Type().Id("loadOptions").Struct(Id("device").Qual(detectPath, "Options"), Id("session").Qual(runtimePath, "SessionOptions"), Id("target").String(), Id("dir").String())
	option := func(name, doc, param string, kind *Statement, field string) {
		f.Comment(name + doc)
		f.Func().Id(name).Params(Id(param).Add(kind)).Id("Option").Block(Return(Func().Params(Id("o").Op("*").Id("loadOptions")).Block(Id("o").Op(".").Id(field).Op("=").Id(param))))
	}
	option("WithDevice", " chooses the device: auto (the default: a GPU if there is one, else the CPU device), cuda, cuda:N or emu.", "name", String(), "device.Name")
	option("WithOpenDevice", " loads the model onto a device that is open, which several models may share. Who opened the device closes it, after them.", "device", Qual(halPath, "Device"), "device.Device")
	option("WithSession", " binds inputs and outputs to what lies on the device: other.Session().At(name) is what another model computes. Without another option for the device, the model is loaded onto that model's. Fields of Inputs that another model fills are nil.", "session", Qual(runtimePath, "SessionOptions"), "session")
	option("WithTarget", " chooses the variant compiled for that target, on a device that runs any of them; the default is the device's own.", "target", String(), "target")
	option("WithDir", " loads program, weights and kernels from a directory that spark-compile wrote for the same model, in any precision, instead of the files embedded here.", "dir", String(), "dir")
	f.Comment("WithChecks makes the CPU device check memory accesses, races and synchronisation.")
	f.Func().Id("WithChecks").Params().Id("Option").Block(Return(Func().Params(Id("o").Op("*").Id("loadOptions")).Block(Id("o").Dot("device").Dot("Check").Op("=").True())))
}

func (s *source) load(f *File) {
	ctx := Id("ctx").Qual("context", "Context")
	fail := If(Err().Op("!=").Nil()).Block(Return(Nil(), Err()))
	f.Comment("Load loads the program onto a device. Close the model after use.")
	f.Func().Id("Load").Params(ctx.Clone(), Id("opts").Op("...").Id("Option")).Params(Op("*").Id("Model"), Error()).Block(
		Id("o").Op(":=").Id("loadOptions").Values(Dict{Id("device"): Qual(detectPath, "Options").Values(Dict{Id("Called"): Lit("WithDevice")})}),
		For(List(Id("_"), Id("opt")).Op(":=").Range().Id("opts")).Block(Id("opt").Call(Op("&").Id("o"))),
		List(Id("program"), Err()).Op(":=").Qual(runtimePath, "ReadInstead").Call(Id("compiledFiles"), Id("o").Dot("dir")),
		fail.Clone(),
		If(Id("o").Dot("device").Dot("Device").Op("==").Nil()).Block(Id("o").Dot("device").Dot("Device").Op("=").Id("o").Dot("session").Dot("Device").Call()),
		Id("m").Op(":=").Op("&").Id("Model").Values(),
		Comment("Without a named device, the next one is tried if the model does not load."),
		List(Id("device"), Id("notices"), Err()).Op(":=").Qual(detectPath, "Use").Call(Id("ctx"), Id("o").Dot("device"), Func().Params(Id("device").Qual(halPath, "Device")).Error().Block(
			Id("m").Op("=").Op("&").Id("Model").Values(Dict{Id("device"): Id("device"), Id("shared"): Id("o").Dot("device").Dot("Device").Op("!=").Nil()}),
			Return(Id("m").Dot("open").Call(Id("ctx"), Id("program"), Op("&").Id("o"))),
		)),
		fail.Clone(),
		List(Id("m").Dot("device"), Id("m").Dot("notice")).Op("=").List(Id("device"), Qual("strings", "Join").Call(Id("notices"), Lit("; "))),
		Return(Id("m"), Nil()),
	)
	f.Line()
	f.Func().Params(Id("m").Op("*").Id("Model")).Id("open").Params(ctx.Clone(), Id("program").Op("*").Qual(runtimePath, "Program"), Id("o").Op("*").Id("loadOptions")).Error().BlockFunc(func(g *Group) {
		g.Var().Err().Error()
		g.If(List(Id("m").Dot("session"), Err()).Op("=").Qual(runtimePath, "OpenBound").Call(Id("ctx"), Id("program"), Id("m").Dot("device"), Qual(runtimePath, "ModelOptions").Values(Dict{Id("Target"): Id("o").Dot("target")}), Id("o").Dot("session")), Err().Op("!=").Nil()).Block(Return(Err()))
		for _, q := range s.inputs {
			g.Id("m").Dot("in").Dot(q.name).Op("=").Qual(runtimePath, "View").Types(element(q.port.DType)).Call(Id("m").Dot("session").Dot("Input").Call(Lit(q.port.Name)))
		}
		for _, q := range s.outputs {
			g.Id("m").Dot("out").Dot(q.name).Op("=").Qual(runtimePath, "View").Types(element(q.port.DType)).Call(Id("m").Dot("session").Dot("Output").Call(Lit(q.port.Name)))
		}
		g.Return(Nil())
	})
}

func (s *source) methods(f *File) {
	m := Id("m").Op("*").Id("Model")
	f.Comment("Inputs returns the inputs; fill them in place.")
	f.Func().Params(m.Clone()).Id("Inputs").Params().Op("*").Id("Inputs").Block(Return(Op("&").Id("m").Dot("in")))
	run := func(name, doc string, call *Statement) {
		f.Comment(name + doc)
		f.Func().Params(m.Clone()).Id(name).Params(Id("ctx").Qual("context", "Context")).Params(Op("*").Id("Outputs"), Error()).Block(
			If(Err().Op(":=").Id("m").Dot("session").Add(call), Err().Op("!=").Nil()).Block(Return(Nil(), Err())),
			Return(Op("&").Id("m").Dot("out"), Nil()),
		)
	}
	run("Run", " runs the model on the current inputs and returns the outputs, which the next Run overwrites.", Dot("Run").Call(Id("ctx")))
	runs := namer{"Run": true}
	for _, e := range s.program.Variants[0].Entries {
		if e.Name != "run" && (s.program.Adapters == nil || e.Name != runtime.AdapterEntry) {
			run(runs.name("Run_"+e.Name), fmt.Sprintf(" runs the entry %q and returns the outputs; those that it does not compute keep their values.", e.Name),
				Dot("RunEntry").Call(Id("ctx"), Lit(e.Name)))
		}
	}
	setters := namer{}
	for _, st := range s.program.States {
		name := setters.name(st.Input)
		f.Comment(fmt.Sprintf("Set%s sets the state %q, which otherwise carries over from the last run.", name, st.Input))
		f.Func().Params(m.Clone()).Id("Set" + name).Params(Id("state").Index().Add(element(s.dtype(st.Input)))).Error().Block(
			Return(Id("m").Dot("session").Dot("SetState").Call(Lit(st.Input), Qual(runtimePath, "Bytes").Call(Id("state")))))
	}
	if a := s.program.Adapters; a != nil {
		s.adapters(f, a)
	}
	if l := s.program.Loop; l != nil {
		name, of := "Driving", "Drive"
		if l.Kind == generation.Monitoring {
			name, of = "Monitoring", "Monitor"
		}
		f.Comment(name + " is openpilot's loop around the model: its steps take camera frames and give parsed outputs. While it is used, Inputs and Run are its own. Close the model after it.")
		f.Func().Params(m.Clone()).Id(name).Params().Params(Op("*").Qual(modeldPath, name), Error()).Block(Return(Qual(modeldPath, of).Call(Id("m").Dot("session"))))
	}
	f.Comment("Device describes the device that Load chose. The notice says why no better one was chosen and whether inputs and outputs are copied.")
	f.Func().Params(m.Clone()).Id("Device").Params().Params(Id("info").Qual(halPath, "Info"), Id("notice").String()).Block(Return(Id("m").Dot("device").Dot("Info").Call(), Id("m").Dot("notice")))
	f.Comment("Session returns the session of the runtime: At says where inputs and outputs lie on the device, to bind another model to them.")
	f.Func().Params(m.Clone()).Id("Session").Params().Op("*").Qual(runtimePath, "Session").Block(Return(Id("m").Dot("session")))
	f.Comment("Close closes the session, and the device unless it is shared. While another model is bound to this one, it is an error, runtime.ErrInUse, and nothing is closed: close that model first.")
	f.Func().Params(m.Clone()).Id("Close").Params().Error().Block(
		If(Id("m").Dot("closed")).Block(Return(Nil())),
		Err().Op(":=").Id("m").Dot("session").Dot("Close").Call(),
		If(Qual("errors", "Is").Call(Err(), Qual(runtimePath, "ErrInUse"))).Block(Return(Err())),
		If(Id("m").Dot("closed").Op("=").True(), Op("!").Id("m").Dot("shared")).Block(Err().Op("=").Qual("errors", "Join").Call(Err(), Id("m").Dot("device").Dot("Close").Call())),
		Return(Err()))
}

// adapters writes the methods that load adapters into slots.
func (s *source) adapters(f *File, a *runtime.Adapters) {
	method := func(name, doc, session string, params []Code, args ...Code) {
		f.Comment(name + doc)
		f.Func().Params(Id("m").Op("*").Id("Model")).Id(name).Params(params...).Error().Block(Return(Id("m").Dot("session").Dot(session).Call(args...)))
	}
	ctx, slot := Id("ctx").Qual("context", "Context"), Id("slot").Int()
	method("LoadAdapter", fmt.Sprintf(" loads an adapter's file, as spark-dora or PEFT writes it, into one of %d slots, counted from 0. The model's weights stay where they are. An adapter of another model is an error.", a.Slots),
		"LoadAdapter", []Code{ctx.Clone(), slot.Clone(), Id("path").String()}, Id("ctx"), Id("slot"), Id("path"))
	method("UnloadAdapter", " empties a slot: runs that take it compute what the model does.",
		"UnloadAdapter", []Code{ctx.Clone(), slot.Clone()}, Id("ctx"), Id("slot"))
	method("UseAdapter", " chooses the slot that the following runs take; at first that is 0.", "UseAdapter", []Code{slot.Clone()}, Id("slot"))
}

// dtype is the element type of an input.
func (s *source) dtype(input string) string {
	for _, p := range s.program.Inputs {
		if p.Name == input {
			return p.DType
		}
	}
	return ""
}

// render formats a file and groups its imports.
func render(f *File) ([]byte, error) {
	var b bytes.Buffer
	if err := f.Render(&b); err != nil {
		return nil, err
	}
	return imports.Process("", b.Bytes(), &imports.Options{FormatOnly: true, Comments: true, TabIndent: true, TabWidth: 8})
}
