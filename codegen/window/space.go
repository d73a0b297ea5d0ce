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
			out.Plans = append(out.Plans, kernel.Plan{Schedule: s.String(), At: []int{s.Rows, s.Columns / s.Pixels, s.Channels, s.Pixels, s.Vector}, US: m.Estimate(s.work(p, m)).US})
		}
	}
	for _, s := range p.candidates() {
		add(s)
	}
	out.Within()
	packed := out.Plans
	out.Plans = nil
	for _, x := range packed { // rows are moved apart in those that are left: it takes long
		add(by[x.Schedule].placed(p))
	}
	return out, nil
}
