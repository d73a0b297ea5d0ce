package randgraph

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Judge is a Python process that runs models by ONNX Runtime (testdata/judge.py).
type Judge struct {
	mu          sync.Mutex
	interpreter string
	script      string
	cmd         *exec.Cmd
	in          io.WriteCloser
	out         *bufio.Reader
	log         bytes.Buffer
}

// Verdict is a judge's answer.
type Verdict struct {
	By      string // "ort", "ort in f32", "reference in f32", "reference", or "": nobody ran it
	Missing bool   // it has no judge: an operator, a type or an opset is missing in both
	Error   string // ONNX Runtime's
	Outputs map[string]*ir.Tensor
}

// NewJudge starts the process.
func NewJudge(interpreter, script string) (*Judge, error) {
	j := &Judge{interpreter: interpreter, script: script}
	return j, j.start()
}

func (j *Judge) start() (err error) {
	j.cmd = exec.Command(j.interpreter, j.script)
	j.cmd.Stderr = &j.log
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	j.out = bufio.NewReaderSize(out, 1<<20)
	return j.cmd.Start()
}

// Close ends the process.
func (j *Judge) Close() error {
	j.in.Close()
	return j.cmd.Wait()
}

// Run runs a case; by "reference" leaves only the onnx package's evaluator.
func (j *Judge) Run(c *Case, by string) (*Verdict, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	model, err := c.Model.Marshal()
	if err != nil {
		return nil, err
	}
	inputs := map[string][]byte{}
	for name, t := range c.Inputs {
		if !c.isInput(name) {
			continue
		}
		if inputs[name], err = onnx.TensorFile(name, t); err != nil {
			return nil, err
		}
	}
	question, err := json.Marshal(map[string]any{"model": model, "inputs": inputs, "by": by})
	if err != nil {
		return nil, err
	}
	if _, err := j.in.Write(append(question, '\n')); err != nil {
		return nil, err
	}
	line, err := j.out.ReadBytes('\n')
	if err != nil { // a crash is an answer too
		_ = j.cmd.Wait()
		if err := j.start(); err != nil {
			return nil, err
		}
		return &Verdict{Error: fmt.Sprintf("ONNX Runtime crashed (%v)", err), Missing: true}, nil
	}
	var answer struct {
		By, Error string
		Missing   bool
		Outputs   map[string][]byte
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, line)
	}
	v := &Verdict{answer.By, answer.Missing, answer.Error, map[string]*ir.Tensor{}}
	for name, raw := range answer.Outputs {
		p := &onnxpb.TensorProto{}
		if err := proto.Unmarshal(raw, p); err != nil {
			return nil, err
		}
		if v.Outputs[name], err = c.Model.Tensor(p); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// output is an output in the type that the model has for it; nil if it is missing.
func (v *Verdict) output(name string, d ir.DType) *ir.Tensor {
	t := v.Outputs[name]
	switch {
	case t == nil:
	case t.DType == ir.Uint8 && d.IsFloat() && d.Bits() == 8: // which NumPy lacks
		return &ir.Tensor{Type: ir.T(d, t.Shape...), Data: t.Data}
	case strings.HasSuffix(v.By, "in f32") && t.DType == ir.Float32 && d.IsFloat():
		return ir.FromFloats(ir.T(d, t.Shape...), t.Floats())
	}
	return t
}

// Compare holds the evaluator against a verdict.
func (c *Case) Compare(v *Verdict) *Fault { return c.compare(v, mostRuns) }

func (c *Case) compare(v *Verdict, runs int) *Fault {
	c, err := c.unfolded()
	if err != nil {
		return &Fault{Stage: "import", Err: err}
	}
	g, err := c.importIt()
	if err != nil {
		return &Fault{Stage: "import", Err: err}
	}
	how := others
	if v.By != "ort" {
		how = inF32
	}
	b, err := newBounds(g, c.Inputs, how, runs)
	if err != nil {
		return &Fault{Stage: "evaluate", Err: err}
	}
	for _, o := range g.Outputs {
		got := v.output(o.Name, o.Type.DType)
		if got == nil {
			return &Fault{Stage: "judge", Err: fmt.Errorf("%s has no output %q", v.By, o.Name)}
		}
		if err := b.compare(o.Name, got); err != nil {
			return &Fault{Stage: "judge", Err: fmt.Errorf("%s: %w", v.By, err)}
		}
	}
	return nil
}

// unfolded is the case with its constants as inputs, so that the importer folds nothing but shapes: another runtime rounds what
// it computes of constants as anything else.
func (c *Case) unfolded() (*Case, error) {
	p := proto.CloneOf(c.Model.Proto)
	data := maps.Clone(c.Inputs)
	given := map[string]bool{}
	for _, v := range p.Graph.Input {
		given[v.GetName()] = true
	}
	add := func(name string, t *ir.Tensor) {
		data[name] = t
		if !given[name] {
			b := onnx.NewBuilder("", onnx.MaxOpset)
			b.Input(name, t.DType, dims(t.Shape)...)
			p.Graph.Input = append(p.Graph.Input, b.Graph().Input...)
		}
	}
	deciding := map[string]bool{} // how many outputs there are
	for _, n := range p.Graph.Node {
		if op := n.GetOpType(); op == "NonZero" || op == "Compress" {
			deciding[n.Input[len(n.Input)-1]] = true
		}
	}
	var left []*onnxpb.TensorProto
	for _, t := range p.Graph.Initializer {
		v, err := c.Model.Tensor(t)
		if err != nil {
			return nil, err
		}
		if deciding[t.GetName()] {
			left = append(left, t)
			continue
		}
		add(t.GetName(), v)
	}
	p.Graph.Initializer = left
	p.Graph.Node = slices.DeleteFunc(p.Graph.Node, func(n *onnxpb.NodeProto) bool {
		if n.GetOpType() != "Constant" || deciding[n.Output[0]] || len(n.Attribute) != 1 || n.Attribute[0].GetName() != "value" {
			return false
		}
		v, err := c.Model.Tensor(n.Attribute[0].GetT())
		if err == nil {
			add(n.Output[0], v)
		}
		return err == nil
	})
	m, err := modelOf(p)
	return &Case{Name: c.Name, Model: m, Inputs: data, Ops: c.Ops}, err
}

// modelOf is a model of a changed protobuf message.
func modelOf(p *onnxpb.ModelProto) (*onnx.Model, error) {
	raw, err := proto.Marshal(p)
	if err != nil {
		return nil, err
	}
	m, err := onnx.Decode("model.onnx", raw)
	if err != nil {
		return nil, err
	}
	return m, m.Validate()
}
