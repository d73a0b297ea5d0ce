package contraction

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Family makes the kernels of contractions, attentions among them, and of fused regions that end in one. Regions it
// rejects fall back to loop.
var Family = kernel.Family{Name: ir.FamilyContraction, Analyse: (*Shared)(nil).analyse}

// Family is Family of the entries of a program, whose kernels share weights.
func (s *Shared) Family() kernel.Family {
	return kernel.Family{Name: ir.FamilyContraction, Analyse: s.analyse}
}

func (s *Shared) analyse(region *ir.Node, ctx *kernel.Context) (kernel.Kernel, error) {
	p, err := normaliseFor(region, ctx.Target)
	if err != nil {
		return nil, err
	}
	if err := ctx.StoresBlocks(p.region); err != nil {
		return nil, err
	}
	switch {
	case p.attn != nil && p.attn.dy != nil:
		return newAttentionGrad(p, ctx)
	case p.attn != nil:
		return newAttention(p, ctx)
	}
	pl, err := newPlan(p, ctx)
	if err != nil {
		return nil, err
	}
	if p.producer == nil {
		pl.share(p, s)
	}
	return &tiled{p, pl, ctx, region}, nil
}

// tiled is the kernel of a product of tiles, whose schedule is open.
type tiled struct {
	p      *problem
	plan   *plan
	ctx    *kernel.Context
	region *ir.Node
}

// Signature implements kernel.Kernel.
func (k *tiled) Signature() string {
	return k.ctx.Signature(k.p.family(), fmt.Sprintf("%s %s", stem(k.p), strings.TrimPrefix(note(k.p), k.p.anchor.Op.Name+" ")), k.region)
}

// Spec implements kernel.Kernel.
func (k *tiled) Spec(c kernel.Choice) (*kernel.Spec, error) {
	s := c.Schedule.(Schedule)
	return write(k.p, k.plan.at(k.p, s), s, k.ctx.Target), nil
}

// normaliseFor is the normal form with the numerics of a target.
func normaliseFor(region *ir.Node, t *target.Target) (*problem, error) {
	if region.IsFamily(ir.FamilyFused) {
		return normaliseFused(region, t)
	}
	p, err := normalise(region)
	if err == nil {
		err = p.num.on(t)
	}
	return p, err
}

// write makes the kernel of a valid schedule.
func write(p *problem, pl *plan, s Schedule, t *target.Target) *kernel.Spec {
	hints := &kernel.Hints{}
	return &kernel.Spec{
		Hints:    hints,
		Stem:     stem(p),
		Family:   p.family(),
		Grid:     [3]int{s.blocks(p), 1, 1},
		Block:    [3]int{s.threads(), 1, 1},
		Shared:   s.shared(p),
		Operands: pl.Operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: s, t: t, plan: pl, params: params, hints: hints}
			g.emit()
		},
		MACs:     p.macs(),
		Schedule: s.String(),
		Note:     note(p),
	}
}

// family is the region's family, and macs its multiply-adds.
func (p *problem) family() string {
	if p.producer != nil {
		return ir.FamilyFused
	}
	return ir.FamilyContraction
}

func (p *problem) macs() int64 {
	if p.producer != nil {
		return p.region.MACs() + p.traits.macs
	}
	return p.region.MACs()
}

func stem(p *problem) string {
	if p.producer != nil {
		return p.traits.stem + "_" + stemOf(p)
	}
	return stemOf(p)
}

func stemOf(p *problem) string {
	kind := p.num.String()
	if p.anchor.Op.Name == "Conv" {
		w := p.anchor.Inputs[1].Type.Shape
		k := fmt.Sprint(w[2])
		for _, d := range w[3:] {
			k += fmt.Sprintf("x%d", d)
		}
		return "conv" + k + "_" + kind
	}
	return strings.ToLower(p.anchor.Op.Name) + "_" + kind
}

func note(p *problem) string {
	t := ""
	if p.producer != nil {
		t = p.traits.stem + ", "
	}
	t += fmt.Sprintf("%s m=%d n=%d k=%d", p.anchor.Op.Name, p.m, p.n, p.k)
	if p.added != nil {
		t += fmt.Sprintf("+%d", p.added.k)
	}
	if b := p.batches(); b > 1 {
		t += fmt.Sprintf(" batch=%d", b)
	}
	return t
}
