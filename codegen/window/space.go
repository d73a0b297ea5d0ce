package window

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// chosen is the schedule that was chosen from outside.
func (p *problem) chosen(text string, t *target.Target) (schedule, error) {
	for _, s := range p.candidates() {
		if s.String() != text {
			continue
		}
		if s = s.placed(p); s.shared(p) > t.SharedBlock {
			return s, fmt.Errorf("%d bytes of shared memory, a block has %d", s.shared(p), t.SharedBlock)
		}
		return s, nil
	}
	return schedule{}, fmt.Errorf("no such tile of %dx%d pixels and %d channels: want a form like tile=4x8x32 thread=2x4, rows, columns and channels of a block, and pixels and channels of a thread", p.oh, p.ow, p.co)
}

// signature names the kernel for those who choose its schedule.
func (p *problem) signature(ctx *kernel.Context, region *ir.Node) string {
	what := fmt.Sprintf("%s %dx%dx%dx%d", p.stem(), p.n, p.oh, p.ow, p.co)
	if p.g > 1 {
		what += fmt.Sprintf(" members=%d", p.g)
	}
	return ctx.Signature(ir.FamilyWindow, what, region)
}

// Space lists the schedules that the kernel of a region may have, for a tuner.
func Space(region *ir.Node, ctx *kernel.Context) (out *kernel.Space, err error) {
	defer lower.Catch(&err)
	p, err := analyse(region)
	if err != nil {
		return nil, err
	}
	own, err := p.choose(ctx.Target)
	if err != nil {
		return nil, err
	}
	m := cost.Of(ctx.Target)
	out = &kernel.Space{Signature: p.signature(ctx, region), Default: own.String()}
	by := map[string]schedule{}
	add := func(s schedule) {
		if s.shared(p) <= ctx.Target.SharedBlock {
			by[s.String()] = s
			out.Plans = append(out.Plans, kernel.Plan{Schedule: s.String(), At: s.coordinates(), US: m.Estimate(s.work(p, m)).US})
		}
	}
	for _, s := range p.candidates() {
		add(s)
	}
	out.Within(own.coordinates())
	packed := out.Plans
	out.Plans = nil
	for _, x := range packed { // rows are moved apart in those that are left: it takes long
		add(by[x.Schedule].placed(p))
	}
	return out, nil
}

// signature names the kernel of a chain.
func (c *chain) signature(ctx *kernel.Context, n *ir.Node) string {
	q := c.second
	what := fmt.Sprintf("%s_%s %dx%dx%dx%d", c.first.stem(), q.stem(), q.n, q.oh, q.ow, q.co)
	if q.g > 1 {
		what += fmt.Sprintf(" members=%d", q.g)
	}
	return ctx.Signature(ir.FamilyChain, what, n)
}

// chosen is the schedule of a chain that was chosen from outside.
func (c *chain) chosen(text string, t *target.Target) (chained, error) {
	for s := range c.all() {
		if s.String() != text {
			continue
		}
		if s = c.placed(s); c.shared(s) > t.SharedBlock {
			return s, fmt.Errorf("%d bytes of shared memory, a block has %d", c.shared(s), t.SharedBlock)
		}
		return s, nil
	}
	return chained{}, fmt.Errorf("no such tiles: want a form like tile=10x14x32 thread=7x4, then tile=4x8x32 thread=2x4, of both windows")
}

// ChainSpace lists the schedules that the kernel of a chain of two windows may have.
func ChainSpace(n *ir.Node, ctx *kernel.Context) (out *kernel.Space, err error) {
	defer lower.Catch(&err)
	c, err := analyseChain(n)
	if err != nil {
		return nil, err
	}
	own, _, err := c.choose(ctx.Target)
	if err != nil {
		return nil, err
	}
	m := cost.Of(ctx.Target)
	out = &kernel.Space{Signature: c.signature(ctx, n), Default: own.String()}
	by := map[string]chained{}
	add := func(s chained) {
		if c.shared(s) <= ctx.Target.SharedBlock {
			by[s.String()] = s
			out.Plans = append(out.Plans, kernel.Plan{Schedule: s.String(), At: s.coordinates(), US: m.Estimate(c.work(s, m)).US})
		}
	}
	for s := range c.all() {
		add(s)
	}
	out.Within(own.coordinates())
	packed := out.Plans
	out.Plans = nil
	for _, x := range packed {
		add(c.placed(by[x.Schedule]))
	}
	return out, nil
}

func (s schedule) coordinates() []int {
	return []int{s.Rows, s.Columns / s.Pixels, s.Channels, s.Pixels, s.Vector}
}

func (s chained) coordinates() []int { return append(s.second.coordinates(), s.first.Pixels) }
