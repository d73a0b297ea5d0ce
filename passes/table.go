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

// Pass is one step from graph to graph.
type Pass struct {
	Name    string
	Summary string
	// After maps the pass that must come before this one, where both run, to the reason.
	After map[string]string
	// Run rewrites g in place.
	Run func(ctx *Context, g *ir.Graph) error
	// Tolerance bounds the relative L2 distance between the outputs of the graph before and after, evaluated without
	// rounding; 0 means equal up to the order of float64 operations.
	Tolerance float64
}

// Context tells passes about the compilation.
type Context struct {
	Target    *target.Target
	Precision string // of internal/precision
	// Quantisation is what narrow stores in 8 and 4 bits; nil: nothing.
	Quantisation *Quantisation

	quantisedFile bool // the file has quantised layers
}

// Table returns every pass in the order of the default pipelines.
func Table() []*Pass {
	return slices.Concat(semanticTable(), regionTable())
}

// Pipeline names the passes that run by default at a precision, in order. A pass that cleans up after others is named
// more than once.
func Pipeline(name string) ([]string, error) {
	p, err := precision.Lookup(name)
	if err != nil {
		return nil, err
	}
	return slices.Concat(semanticPipeline(p), regionPipeline(p)), nil
}

// Lookup returns the pass of that name, or an error that lists what there is.
func Lookup(name string) (*Pass, error) {
	var names []string
	for _, p := range Table() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, fmt.Errorf("unknown pass %q (have %s)", name, strings.Join(names, ", "))
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
		fmt.Fprintf(&b, "\n%s: %s\n", p.Name, strings.Join(slices.Concat(semanticPipeline(p), regionPipeline(p)), " "))
	}
	return b.String()
}
