package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Pass is one step from graph to graph: a row of the table. Each pass registers its own, in its own file.
type Pass struct {
	Name    string
	Summary string
	// Runs lists the places of the pass in the default pipelines.
	Runs []Place
	// Last passes stand at the end of a stage.
	Last bool
	// Behind names the pass that this one follows where both stand in one stage. Any other order would do no harm, but
	// pipelines print and run the same way everywhere. Passes without an order go by name.
	Behind string
	// After maps the pass that must come before this one, where both run, to the reason.
	After map[string]string
	// Needs names passes without which this one cannot run. They are in After too.
	Needs []string
	// Run rewrites g in place.
	Run func(ctx *Context, g *ir.Graph) error
	// Tolerance bounds the relative L2 distance between the outputs of the graph before and after, evaluated without
	// rounding; 0 means equal up to the order of float64 operations.
	Tolerance float64
}

// Place is a stage of some pipelines.
type Place struct {
	stage stage
	in    pipelines
}

// stage is a part of a pipeline.
type stage uint8

// Stages in the order in which they run. The passes that clean up end a stage.
const (
	stageTypes    stage = iota // values get the types in which they are computed
	stageTraining              // adapters are put in, and gradients behind losses
	stageOps                   // ops of files that no kernel computes are taken apart
	stagePatterns              // chains of ops become the op that they mean
	stageWeights               // constants become weights, and channels the last dimension
	stageChannels              // what now meets along the channels: constants of attention blocks and their weights, norms
	stageRegions               // nodes become regions, and regions get their storage
)

// pipelines is a set of pipelines, by what precisions store between regions.
type pipelines uint8

const (
	asInFile pipelines = 1 << iota // the file's types: passes leave every rounding in its place
	wide                           // f32
	halves                         // 16 bits or blocks of fewer
	eighths                        // 16 or 8 bits
	narrowed = halves | eighths
	computed = wide | narrowed
	every    = asInFile | computed
)

// pipelineOf is the pipeline that a precision runs.
func pipelineOf(p *precision.Precision) pipelines {
	switch p.Between {
	case "":
		return asInFile
	case "f32":
		return wide
	}
	if len(p.Ladder) > 0 && p.Ladder[0].Activations.Bits() == 8 {
		return eighths
	}
	return halves
}

// cleanUp is where passes run that clean up after others.
var cleanUp = []Place{{stageTypes, every}, {stageOps, computed}, {stageWeights, every}, {stageChannels, computed}}

// Context tells passes about the compilation.
type Context struct {
	Target    *target.Target
	Precision string // of internal/precision
	// Quantisation is what narrow stores in 8 and 4 bits; nil: nothing.
	Quantisation *Quantisation
	// Greatest is the greatest magnitude of each float input in the data that formats are calibrated on, by name.
	Greatest map[string]float64
	// Siblings is for programs with adapters, which train: fuse lets contractions have several results, computes cheap values again for
	// each reader, makes one kernel of elementwise loops that read one value, and one product of a layer's and its adapter's. Other
	// programs would gain by the first alone, in precision file (docs/measurements.md, "What a run would have of a step's fusions").
	Siblings bool
	// Adapters is what insert-dora puts in.
	Adapters []Adapter
	// Base is what quantise-base stores frozen weights as.
	Base Base
	// Wide is the name of nodes, as of a loss, whose operands and results narrow leaves f32 where no anchor multiplies them; "": none.
	Wide string
	// Losses and Variables name the outputs of one number whose sum differentiate differentiates, and the inputs by which.
	Losses, Variables []string
	// Memory bounds the bytes that values between regions take at a time; 0: not. Recomputed is filled by rematerialise.
	Memory     int
	Recomputed []Recomputed
	// Means is what centre subtracts from values, by name: a number for each channel, members one after another.
	Means map[string][]float64
	// Was is filled by narrow unless it is nil: the name that a value had before it was stored, by the name that it has then.
	Was map[string]string
	// Halved is filled by narrow unless it is nil: weights in 16 bits, by those that they were made of. Graphs that share weights may
	// share it in one precision, so that these are rounded once.
	Halved map[*ir.Tensor]*ir.Tensor
	// Chained is how many microseconds less the kernel of a chain is predicted to take than those of its regions: chain asks it, and makes no
	// chain where it is nil. Regions of a name in Apart stay launches of their own.
	Chained func(n *ir.Node) float64
	Apart   []string
	// F32Inputs and F32Outputs make inputs and outputs of the graph f32 where the file has f16 or bf16.
	F32Inputs, F32Outputs bool

	quantisedFile bool // the file has quantised layers
}

var table = map[string]*Pass{}

// register adds a row to the table while package variables are initialised.
func register(p Pass) bool {
	if table[p.Name] != nil {
		panic("pass declared twice: " + p.Name)
	}
	table[p.Name] = &p
	return true
}

// Table returns every pass in the order in which pipelines first reach it.
func Table() []*Pass {
	var rows []*Pass
	for _, name := range pipeline(every, stageTypes, stageRegions) {
		if p := table[name]; !slices.Contains(rows, p) {
			rows = append(rows, p)
		}
	}
	return rows
}

// Pipeline names the passes that run by default at a precision, in order. A pass that cleans up after others is named
// more than once.
func Pipeline(name string) ([]string, error) {
	p, err := precision.Lookup(name)
	if err != nil {
		return nil, err
	}
	return pipeline(pipelineOf(p), stageTypes, stageRegions), nil
}

// pipeline names the passes that run from one stage of a pipeline to another.
func pipeline(in pipelines, from, to stage) []string {
	var names []string
	for s := from; s <= to; s++ {
		here := slices.DeleteFunc(slices.Sorted(maps.Keys(table)), func(name string) bool {
			return !slices.ContainsFunc(table[name].Runs, func(at Place) bool { return at.stage == s && at.in&in != 0 })
		})
		names = append(names, arrange(here)...)
	}
	return names
}

// arrange puts each pass of a stage behind those that it follows. It breaks a cycle at the first name, for CheckOrder to
// report.
func arrange(names []string) []string {
	var out []string
	for len(names) > 0 {
		next := slices.IndexFunc(names, func(name string) bool {
			p := table[name]
			return !slices.ContainsFunc(names, func(other string) bool {
				if p.Last != table[other].Last {
					return p.Last
				}
				return other == p.Behind || p.After[other] != ""
			})
		})
		next = max(next, 0)
		out = append(out, names[next])
		names = slices.Delete(names, next, next+1)
	}
	return out
}

// Lookup returns the pass of that name, or an error that lists what there is.
func Lookup(name string) (*Pass, error) {
	if p := table[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("unknown pass %q (have %s)", name, strings.Join(slices.Sorted(maps.Keys(table)), ", "))
}

// Run applies the named passes to g, or the default pipeline of the context's precision if names is nil. After each pass
// the graph is verified and, if observe is not nil, shown to it.
func Run(ctx *Context, g *ir.Graph, names []string, observe func(pass string, g *ir.Graph)) error {
	if names == nil {
		var err error
		if names, err = Pipeline(ctx.Precision); err != nil {
			return err
		}
	}
	if err := CheckOrder(names); err != nil {
		return err
	}
	if err := g.Verify(); err != nil {
		return fmt.Errorf("graph before the passes: %w", err)
	}
	for _, name := range names {
		p, err := Lookup(name)
		if err != nil {
			return err
		}
		if err := p.Run(ctx, g); err != nil {
			return fmt.Errorf("pass %s: %w", name, err)
		}
		if err := g.Verify(); err != nil {
			return fmt.Errorf("graph after pass %s: %w", name, err)
		}
		if observe != nil {
			observe(name, g)
		}
	}
	return nil
}

// CheckOrder checks a list of passes against the table's After constraints: of two constrained passes in the list,
// the first occurrence of the earlier one precedes the first occurrence of the later one.
func CheckOrder(names []string) error {
	for i, name := range names {
		p, err := Lookup(name)
		if err != nil {
			return err
		}
		if slices.Index(names, name) != i {
			continue
		}
		for _, before := range slices.Sorted(maps.Keys(p.After)) {
			if j := slices.Index(names, before); j > i {
				return fmt.Errorf("pass %s must come after %s: %s", name, before, p.After[before])
			}
		}
	}
	return nil
}

// CheckNeeds reports the first pass of a whole pipeline that lacks one it needs.
func CheckNeeds(names []string) error {
	for i, name := range names {
		p, err := Lookup(name)
		if err != nil {
			return err
		}
		for _, need := range p.Needs {
			if !slices.Contains(names[:i], need) {
				return fmt.Errorf("pass %s needs %s before it: %s", name, need, p.After[need])
			}
		}
	}
	return nil
}

// Help is the text of --help-passes: the table, then the pipelines.
func Help() string {
	var b strings.Builder
	for _, p := range Table() {
		fmt.Fprintf(&b, "%-22s %s\n", p.Name, p.Summary)
		for _, before := range slices.Sorted(maps.Keys(p.After)) {
			fmt.Fprintf(&b, "%-22s   after %s: %s\n", "", before, p.After[before])
		}
	}
	for _, p := range precision.All() {
		fmt.Fprintf(&b, "\n%s: %s\n", p.Name, strings.Join(pipeline(pipelineOf(p), stageTypes, stageRegions), " "))
	}
	return b.String()
}
