package gopkg

import (
	"maps"
	"slices"

	. "github.com/dave/jennifer/jen"
)

// Golden is a run recorded when the model was compiled: inputs as the port's bytes, outputs as the reference evaluator
// computed them, and how close a run must come.
type Golden struct {
	Inputs  map[string][]byte
	Outputs map[string][]float64
	Program map[string][]byte // outputs as the CPU device computed them; it must repeat them bit for bit; nil: not recorded
	Bounds  map[string]Bounds // of each output
}

// Bounds say how close a run must come to the reference: the least cosine and the greatest relative L2.
type Bounds struct{ MinCosine, RelL2 float64 }

// files returns the golden files by path: testdata/in_NAME.bin holds elements, testdata/out_NAME.bin float64,
// testdata/emu_NAME.bin elements.
func (g *Golden) files() map[string][]byte {
	out := map[string][]byte{}
	for name, b := range g.Inputs {
		out[goldenPath("in", name)] = b
	}
	for name, x := range g.Outputs {
		out[goldenPath("out", name)] = float64Bytes(x)
	}
	for name, b := range g.Program {
		out[goldenPath("emu", name)] = b
	}
	return out
}

// example writes example_test.go.
func (s *source) example() ([]byte, error) {
	f := s.file()
	f.Func().Id("Example").Params().BlockFunc(func(g *Group) {
		g.Id("ctx").Op(":=").Qual("context", "Background").Call()
		g.List(Id("m"), Err()).Op(":=").Id("Load").Call(Id("ctx"))
		g.If(Err().Op("!=").Nil()).Block(Qual("log", "Fatal").Call(Err()))
		g.Defer().Id("m").Dot("Close").Call()
		if len(s.inputs) > 0 {
			g.Id("in").Op(":=").Id("m").Dot("Inputs").Call()
			for _, q := range s.inputs {
				g.Clear(Id("in").Dot(q.name)).Comment("fill with " + q.port.String())
			}
		}
		g.List(Id("out"), Err()).Op(":=").Id("m").Dot("Run").Call(Id("ctx"))
		g.If(Err().Op("!=").Nil()).Block(Qual("log", "Fatal").Call(Err()))
		for _, q := range s.outputs {
			g.Qual("fmt", "Println").Call(Len(Id("out").Dot(q.name)))
		}
	})
	return render(f)
}

// test writes model_test.go: the golden run on the device that auto finds.
func (s *source) test() ([]byte, error) {
	f := s.file()
	t := Id("t").Op("*").Qual("testing", "T")
	check := func(g *Group) { g.If(Err().Op("!=").Nil()).Block(Id("t").Dot("Fatal").Call(Err())) }
	f.Comment("TestGolden runs the inputs that were recorded when the model was compiled and compares with the reference.")
	f.Func().Id("TestGolden").Params(t).BlockFunc(func(g *Group) {
		g.Id("ctx").Op(":=").Qual("context", "Background").Call()
		g.List(Id("m"), Err()).Op(":=").Id("Load").Call(Id("ctx"))
		check(g)
		g.Defer().Id("m").Dot("Close").Call()
		g.Id("session").Op(":=").Id("m").Dot("Session").Call()
		for _, name := range sortedKeys(s.golden.Inputs) {
			if s.states[name] {
				g.If(Err().Op(":=").Id("session").Dot("SetState").Call(Lit(name), Id("readGolden").Call(Id("t"), Lit(GoldenFile("in", name)))), Err().Op("!=").Nil()).Block(Id("t").Dot("Fatal").Call(Err()))
				continue
			}
			g.Copy(Id("session").Dot("Input").Call(Lit(name)), Id("readGolden").Call(Id("t"), Lit(GoldenFile("in", name))))
		}
		g.If(List(Id("_"), Err()).Op(":=").Id("m").Dot("Run").Call(Id("ctx")), Err().Op("!=").Nil()).Block(Id("t").Dot("Fatal").Call(Err()))
		for _, q := range s.program.Outputs {
			b := s.golden.Bounds[q.Name]
			g.Id("compareGolden").Call(Id("t"), Lit(q.Name), Lit(q.DType), Lit(b.MinCosine), Lit(b.RelL2), Id("session").Dot("Output").Call(Lit(q.Name)), Id("readGolden").Call(Id("t"), Lit(GoldenFile("out", q.Name))))
		}
		if s.golden.Program == nil {
			return
		}
		g.Comment("The CPU device recorded these outputs and repeats them bit for bit.")
		g.If(List(Id("info"), Id("_")).Op(":=").Id("m").Dot("Device").Call(), Id("info").Dot("Backend").Op("==").Lit("emu")).BlockFunc(func(g *Group) {
			for _, q := range s.program.Outputs {
				g.If(Op("!").Qual("bytes", "Equal").Call(Id("session").Dot("Output").Call(Lit(q.Name)), Id("readGolden").Call(Id("t"), Lit(GoldenFile("emu", q.Name))))).Block(
					Id("t").Dot("Errorf").Call(Lit("%s is not what the CPU device computed when the model was compiled"), Lit(q.Name)))
			}
		})
	})
	f.Line()
	f.Func().Id("compareGolden").Params(t.Clone(), List(Id("name"), Id("dtype")).String(), List(Id("minCosine"), Id("relL2")).Float64(), List(Id("got"), Id("want")).Index().Byte()).BlockFunc(func(g *Group) {
		g.Id("t").Dot("Helper").Call()
		g.List(Id("x"), Err()).Op(":=").Qual(runtimePath, "Float64s").Call(Id("dtype"), Id("got"))
		check(g)
		g.List(Id("c"), Err()).Op(":=").Qual(runtimePath, "Compare").Call(Id("x"), Qual(runtimePath, "View").Types(Float64()).Call(Id("want")), Lit(0.0), Lit(0.0))
		check(g)
		g.If(Id("c").Dot("Cosine").Op("<").Id("minCosine").Op("||").Id("c").Dot("RelL2").Op(">").Id("relL2")).Block(
			Id("t").Dot("Errorf").Call(Lit("%s: cosine %.9f (want ≥ %g), relative L2 %.3g (want ≤ %g)"), Id("name"), Id("c").Dot("Cosine"), Id("minCosine"), Id("c").Dot("RelL2"), Id("relL2")))
	})
	f.Line()
	f.Func().Id("readGolden").Params(t.Clone(), Id("name").String()).Index().Byte().BlockFunc(func(g *Group) {
		g.Id("t").Dot("Helper").Call()
		g.List(Id("b"), Err()).Op(":=").Qual("os", "ReadFile").Call(Lit("testdata/").Op("+").Id("name"))
		check(g)
		g.Return(Id("b"))
	})
	return render(f)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
