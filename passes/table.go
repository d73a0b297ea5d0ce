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

// Pass is one step from graph to graph: a row of the table. Each pass registers its own, in its own file, and stands in
// pipeline.go.
type Pass struct {
	Name    string
	Summary string
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

// Context is what passes are told of the compilation, and their options.
type Context struct {
	Target    *target.Target
	Precision string // of internal/precision

	PromoteF32Options
	InsertDoRAOptions
	QuantiseBaseOptions
	DifferentiateOptions
	SplitImageOptions
	FuseOptions
	SubtractMeanOptions
	AssignStorageOptions
	FuseProducersOptions
	RematerialiseOptions

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

// Lookup returns the pass of that name, or an error that lists what there is.
func Lookup(name string) (*Pass, error) {
	if p := table[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("unknown pass %q (have %s)", name, strings.Join(slices.Sorted(maps.Keys(table)), ", "))
}

// Run applies the named passes to g, or the default pipeline of the context's precision if names is nil. After each
// pass the graph is verified and, if observe is not nil, shown to it.
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
		fmt.Fprintf(&b, "%-26s %s\n", p.Name, p.Summary)
		for _, before := range slices.Sorted(maps.Keys(p.After)) {
			fmt.Fprintf(&b, "%-26s   after %s: %s\n", "", before, p.After[before])
		}
	}
	for _, p := range precision.All() {
		fmt.Fprintf(&b, "\n%s: %s\n", p.Name, strings.Join(pipeline(pipelineOf(p), stages), " "))
	}
	return b.String()
}
