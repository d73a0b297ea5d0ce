package contraction

import (
	"fmt"
	"slices"
	"sync"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Choices remembers the schedules that were chosen, for programs that have most products in common: to choose one, thousands are weighed. The zero
// value remembers none yet, nil nothing.
type Choices struct {
	mu    sync.Mutex
	known map[string]choice
}

type choice struct {
	schedule Schedule
	work     cost.Work
	reason   string
}

// Lower is the function Lower with what is remembered.
func (c *Choices) Lower(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return lowered(region, ctx, nil, c)
}

// choose is the function choose with what is remembered. What computes A in front of a product is weighed each time.
func (c *Choices) choose(p *problem, pl *plan, t *target.Target, signature string) (Schedule, *cost.Work, string, error) {
	if c == nil || p.prologue != nil {
		return choose(p, pl, t)
	}
	key := p.key(pl, t, signature)
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.known[key]
	if !ok {
		s, work, reason, err := choose(p, pl, t)
		if err != nil {
			return s, nil, "", err
		}
		was = choice{s, *work, reason}
		if c.known == nil {
			c.known = map[string]choice{}
		}
		c.known[key] = was
	}
	work := was.work
	work.Products = slices.Clone(work.Products)
	return was.schedule, &work, was.reason, nil
}

// key is all that a schedule and its work depend on: the target, the signature, which tells bodies, types and alignments apart, and what follows from
// the values of constants and from other readers of weights, which it does not.
func (p *problem) key(pl *plan, t *target.Target, signature string) string {
	e := pl.epilogue
	k := fmt.Sprint(t.Name, signature, p.num, e.size, e.reads, e.group, e.wide, e.bare, pl.packed)
	if w := pl.tiles; w != nil {
		k += fmt.Sprint(" ", w.rows, w.cols, w.width, w.bytes, w.byK)
	}
	return k
}
