package compile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Recomputed is a region of an entry that is computed again to save memory.
type Recomputed struct {
	Entry string
	passes.Recomputed
}

// MemoryError says that the arena of a program cannot have the size that was asked for.
type MemoryError struct {
	Budget int // bytes
	Least  int // that was found to do
	Target string
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: values between launches cannot fit %d bytes: with all that may be computed again they take %d", e.Target, e.Budget, e.Least)
}

// tightenings bounds how often fit compiles for one target.
const tightenings = 8

// fit adds the variant of a target, and computes values again where its arena would exceed Options.Memory. The pass knows what
// values take, but neither the workspaces of kernels nor what lies between ranges of the arena: where these make the plan too
// large, the pass is given less. It returns the weights so far.
func (r *Result) fit(ctx context.Context, entries []codegen.Entry, t *target.Target, w *codegen.Weights) (*codegen.Weights, error) {
	families := r.sharing(entries, t)
	if r.opt.Memory == 0 {
		r.opt.meter.Begin(0, "%s: kernels", t.Name)
		out, err := codegen.Generate(entries, t, families, w)
		if err != nil {
			return nil, err
		}
		return w, r.add(ctx, entries, out, t, nil)
	}
	budget, least := r.opt.Memory, false
	found := math.MaxInt // bytes of the smallest plan
	for range tightenings {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.opt.meter.Begin(0, "%s: kernels within %d bytes", t.Name, r.opt.Memory)
		list, again, err := rematerialised(entries, t, budget)
		if over := (*passes.OverBudgetError)(nil); errors.As(err, &over) {
			budget, least = over.Least, true
			continue
		}
		if err != nil {
			return nil, err
		}
		weights := w.Clone()
		out, err := codegen.Generate(list, t, families, weights)
		if err != nil {
			return nil, err
		}
		bytes := out.Variant.ArenaBytes
		if bytes <= r.opt.Memory {
			if len(r.Program.Variants) == 0 {
				r.Recomputed = again
			}
			return weights, r.add(ctx, list, out, t, nil)
		}
		found = min(found, bytes)
		if least {
			break
		}
		budget = min(budget, out.Variant.LiveBytes) - (bytes - r.opt.Memory)
	}
	return nil, &MemoryError{r.opt.Memory, found, t.Name}
}

// sharing are the families of a program of several entries: weights that more than one kernel reads lie in memory once, and regions that several
// entries have in common, or the same ones within another budget, have their schedules chosen once.
func (r *Result) sharing(entries []codegen.Entry, t *target.Target) *kernel.Families {
	var graphs []*ir.Graph
	for _, e := range entries {
		graphs = append(graphs, e.Graph)
	}
	if r.opt.chosen == nil {
		r.opt.chosen = new(kernel.Memo)
	}
	return families.New(r.opt.chosen).With(contraction.Share(graphs, t).Family())
}

// LeastMemory is the least that Options.Memory can be for the first target.
func (r *Result) LeastMemory(ctx context.Context) (int, error) {
	t, err := r.opt.target(r.Program.Variants[0].Target)
	if err != nil {
		return 0, err
	}
	try := &Result{Program: &runtime.Program{}, opt: r.opt}
	try.opt.Memory, try.opt.Assembler = 1, nil
	_, err = try.fit(ctx, r.entries, t, codegen.NewWeights())
	if over := (*MemoryError)(nil); errors.As(err, &over) {
		return over.Least, nil
	}
	return 0, err
}

// rematerialised are the entries within a budget, and what they compute again.
func rematerialised(entries []codegen.Entry, t *target.Target, budget int) ([]codegen.Entry, []Recomputed, error) {
	var again []Recomputed
	entries = slices.Clone(entries)
	for i := range entries {
		e := &entries[i]
		e.Graph = e.Graph.Clone()
		pc := &passes.Context{Target: t, RematerialiseOptions: passes.RematerialiseOptions{Memory: budget}}
		if err := passes.Run(pc, e.Graph, []string{"rematerialise"}, nil); err != nil {
			return nil, nil, fmt.Errorf("entry %s: %w", e.Name, err)
		}
		for _, c := range pc.Recomputed {
			again = append(again, Recomputed{e.Name, c})
		}
	}
	return entries, again, nil
}

// Rematerialised says in lines for people what the entries compute again, the greatest first; "" where that is nothing.
func (r *Result) Rematerialised() string {
	var b strings.Builder
	for _, e := range r.Program.Variants[0].Entries {
		var list []Recomputed
		times, macs := 0, int64(0)
		for _, c := range r.Recomputed {
			if c.Entry == e.Name {
				list = append(list, c)
				times += c.Times
				macs += c.MACs
			}
		}
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %s of %d computed again, %d more multiply-accumulates\n", e.Name, console.Count(times, "launch"), len(e.Launches), macs)
		slices.SortStableFunc(list, func(a, b Recomputed) int { return b.Bytes - a.Bytes })
		for _, c := range list {
			fmt.Fprintf(&b, "  %s: %s, %d bytes", c.Region, cmp.Or(strings.Join(c.Ops, " "), "a copy"), c.Bytes)
			if c.Times > 1 {
				fmt.Fprintf(&b, ", %d times", c.Times)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
