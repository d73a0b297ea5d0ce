package contraction

import (
	"crypto/sha256"
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

// choose is the function choose of a region with what is remembered.
func (c *Choices) choose(p *problem, pl *plan, t *target.Target, signature string, region *ir.Node) (Schedule, *cost.Work, string, error) {
	if c == nil {
		return choose(p, pl, t)
	}
	key := p.key(pl, t, signature)
	if p.prologue != nil {
		key += fmt.Sprintf(" %x", contents(region))
	}
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

// contents is a digest of what the signature of a region leaves out: values of constants, scales of what is stored. What is in front of a product is
// emitted to count what it does.
func contents(region *ir.Node) []byte {
	h := sha256.New()
	add := func(values []*ir.Value) {
		for _, v := range values {
			if v != nil && v.IsConst() {
				fmt.Fprintln(h, v.Type, v.Const.Splat, len(v.Const.Data))
				h.Write(v.Const.Data)
			}
		}
	}
	for _, part := range region.Parts() {
		add(part.Inputs)
		for _, n := range part.Region.Body.Nodes {
			add(n.Inputs)
		}
		fmt.Fprintf(h, "%+v %+v\n", part.Region.Operands, part.Region.Results)
	}
	return h.Sum(nil)
}
