package compile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Entry is what becomes an entry of a program: parts that run one after the other, each compiled in a precision of its own. An
// input of a later part that is called as an output of an earlier one is that output, which is then no output of the entry
// unless it is the new value of what is kept; other inputs of one name are one input.
type Entry struct {
	Name   string
	Parts  []Part
	States []codegen.StateBinding
}

// Part is a graph and the precision that it is compiled in.
type Part struct {
	Graph     *ir.Graph
	Precision string
	Wide      string // name of nodes whose operands and results stay f32 where no anchor multiplies them; "": none

	// Of precisions that calibrate: the part is calibrated alone, on files as those of Options.Calibrate with its inputs.
	Calibrate []string
	MinCosine float64 // accuracy budget of its outputs, as Options.MinCosine; 0: every layer is quantised
}

// Entries compiles the entries of one program, over the same constants, kept values and arena. One is called run. It changes
// none of the graphs.
func Entries(ctx context.Context, path string, entries []Entry, opt Options) (*Result, error) {
	begin := time.Now()
	targets, err := opt.targets()
	if err != nil {
		return nil, err
	}
	opt.meter = console.New(opt.Progress)
	r := &Result{Source: entries[0].Parts[0].Graph, Program: &runtime.Program{Format: runtime.FormatVersion, Model: filepath.Base(path), Precision: opt.Precision}, path: path, opt: opt, digest: opt.Digest}
	weights := codegen.NewWeights()
	for i, t := range targets {
		var list []codegen.Entry
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			opt.meter.Begin(0, "%s: %s: passes", t.Name, e.Name)
			layers := map[string]int{}
			g, err := e.lowered(ctx, t, &opt, layers)
			if err != nil {
				return nil, fmt.Errorf("%s: entry %s: %w", path, e.Name, err)
			}
			if i == 0 && len(layers) > 0 {
				r.Layers = layers
			}
			list = append(list, codegen.Entry{Name: e.Name, Graph: g, States: e.States})
		}
		if i == 0 {
			describeEntries(r.Program, list)
			r.entries = list
			name(r.Program.Outputs, opt.Slices)
		}
		if weights, err = r.fit(ctx, list, t, weights); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	r.Program.Weights = weights.Bytes()
	if err := r.Program.Validate(); err != nil {
		return nil, err
	}
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}

// lower runs the passes of a part, and counts the layers of one that is calibrated by precision.
func (part *Part) lower(ctx context.Context, t *target.Target, opt *Options, layers map[string]int) (*ir.Graph, error) {
	in := part.Precision
	if precision.Calibrates(part.Precision) && len(part.Calibrate) == 0 {
		return nil, fmt.Errorf("precision %s is calibrated, and there are no inputs of part %s: take fp32, fp16 or bf16", part.Precision,
			part.Graph.Name)
	}
	if precision.Calibrates(in) {
		r, err := Graph(ctx, part.Graph.Name, part.Graph, Options{Precision: part.Precision, Targets: []string{t.Name}, Machine: opt.Machine,
			Calibrate: part.Calibrate, MinCosine: part.MinCosine, Warn: opt.Warn, meter: opt.meter, part: true})
		if err != nil {
			return nil, err
		}
		for _, l := range r.Accuracy.Layers {
			layers[l.Precision]++
		}
		if r.Accuracy.Fallback == nil {
			return r.Graph, nil
		}
		in = r.opt.Precision // the program is the one of a part that is asked for in it
	}
	g, c := part.Graph.Clone(), &passes.Context{Target: t, Precision: in}
	c.KeepF32, c.Siblings = part.Wide, true
	return g, passes.Run(c, g, nil, nil)
}

// lowered runs the passes of every part and joins them; layers are as lower counts them.
func (e *Entry) lowered(ctx context.Context, t *target.Target, opt *Options, layers map[string]int) (*ir.Graph, error) {
	joined := ir.NewGraph(e.Name)
	known, inputs, taken := map[string]*ir.Value{}, map[string]*ir.Value{}, map[string]bool{}
	for _, part := range e.Parts {
		g, err := part.lower(ctx, t, opt, layers)
		if err != nil {
			return nil, err
		}
		by := map[*ir.Value]*ir.Value{}
		for _, v := range g.Inputs {
			to := known[v.Name]
			switch {
			case to != nil && slices.ContainsFunc(e.States, func(k codegen.StateBinding) bool { return k.Output == v.Name }):
			case to != nil:
				joined.Outputs = slices.DeleteFunc(joined.Outputs, func(o *ir.Value) bool { return o == to })
			case inputs[v.Name] != nil:
				to = inputs[v.Name]
			default:
				inputs[v.Name], to = v, v
				joined.Inputs = append(joined.Inputs, v)
			}
			if !to.Type.Equal(v.Type) {
				return nil, fmt.Errorf("%q is %v in one part and %v in another", v.Name, to.Type, v.Type)
			}
			by[v] = to
		}
		joined.Append(g)
		unique := func(name string) string {
			for taken[name] {
				name = joined.Fresh(name)
			}
			taken[name] = true
			return name
		}
		g.Substitute(by)
		for _, v := range g.Constants() {
			v.Name = unique(v.Name)
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				v.Name = unique(v.Name)
			}
		}
		joined.Outputs = append(joined.Outputs, g.Outputs...)
		for _, v := range g.Outputs {
			known[v.Name] = v
		}
	}
	return joined, joined.Verify()
}

// describeEntries fills in the inputs, outputs and states of all entries, each once.
func describeEntries(p *runtime.Program, entries []codegen.Entry) {
	add := func(to *[]runtime.Port, values []*ir.Value) {
		for _, v := range values {
			if !slices.ContainsFunc(*to, func(q runtime.Port) bool { return q.Name == v.Name }) {
				*to = append(*to, port(v))
			}
		}
	}
	for _, e := range entries {
		add(&p.Inputs, e.Graph.Inputs)
		add(&p.Outputs, e.Graph.Outputs)
		for _, k := range e.States {
			i := slices.IndexFunc(p.States, func(s runtime.State) bool { return s.Input == k.Input })
			switch {
			case i < 0:
				p.States = append(p.States, runtime.State{Input: k.Input, Output: k.Output, Delay: k.Delay})
			case k.Output != "":
				p.States[i].Output, p.States[i].Delay = k.Output, k.Delay
			}
		}
	}
}
