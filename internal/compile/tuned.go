package compile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/runtime"
)

// Tune searches for schedules of an entry and adds what it finds to Options.Tuning; model is for people. What was generated of the entry becomes a program
// that can be run by program.
type Tune func(ctx context.Context, model string, e codegen.Entry, t *target.Target, m *console.Meter, program func(v runtime.Variant, weights []byte) *runtime.Program) error

// choose takes the entry's schedules from Options.Tuning, after a search if one was asked for.
func (r *Result) choose(ctx context.Context, e *codegen.Entry, t *target.Target) (*tunefile.Schedules, error) {
	if r.opt.Tune != nil {
		if err := r.opt.Tune(ctx, r.Program.Model+" "+r.Program.Precision, *e, t, r.opt.meter, r.runnable(*e)); err != nil {
			return nil, err
		}
	}
	c := r.opt.Tuning.For(t.Name, e.Signature())
	if c == nil {
		return nil, nil
	}
	e.Schedules = c
	if a := c.Prefetch; a != nil {
		e.Prefetch = codegen.Prefetch{Off: a.Off, NoHints: a.NoHints, Window: a.Window, Backlog: a.BacklogUS}
	}
	return c, nil
}

// runnable makes programs of what was generated of an entry.
func (r *Result) runnable(e codegen.Entry) func(v runtime.Variant, weights []byte) *runtime.Program {
	return func(v runtime.Variant, weights []byte) *runtime.Program {
		p := &runtime.Program{Format: runtime.FormatVersion, Model: r.Program.Model, Precision: r.Program.Precision, Variants: []runtime.Variant{v}, Weights: weights}
		describe(p, e.Graph, max(1, e.Repeats), nil)
		return p
	}
}

// applied says which entries matched nothing, and of a schedule that cannot be where it comes from.
func (r *Result) applied(c *tunefile.Schedules, err error) error {
	if c == nil {
		return err
	}
	if bad := (*kernel.ScheduleError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w: correct or remove this entry, or tune again with another file", c.Source(bad.Signature), err)
	}
	if unused := c.Unused(); err == nil && len(unused) > 0 {
		r.opt.warn("--tune-file: no kernel of this program matches %s: %s", console.Count(len(unused), "entry"), strings.Join(unused, "; "))
	}
	return err
}
