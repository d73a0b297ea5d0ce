package contraction

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Lower turns a region of family contraction into a kernel. Regions it rejects fall back to loop; the error says why.
func Lower(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return lowered(region, ctx, nil, nil)
}

// Lower is Lower of a region of the program.
func (s *Shared) Lower(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	return lowered(region, ctx, s, s.choices)
}

func lowered(region *ir.Node, ctx *kernel.Context, s *Shared, c *Choices) (*kernel.Spec, error) {
	p, err := normaliseFor(region, ctx.Target)
	if err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	if err := ctx.StoresBlocks(p.region); err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	if p.attn != nil {
		spec, err := lowerAttention(p, ctx)
		if err != nil {
			return nil, fmt.Errorf("contraction: attention: %w", err)
		}
		return spec, nil
	}
	pl, err := newPlan(p, ctx)
	if err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	pl.share(p, s)
	signature := p.signature(ctx, region)
	var sch Schedule
	var work *cost.Work
	var reason string
	switch text := ctx.Chosen(signature); {
	case text == kernel.Apart && p.prologue != nil:
		return nil, kernel.ErrApart
	case text != "":
		if sch, work, reason, err = chosen(text, p, pl, ctx.Target); err != nil {
			err = &kernel.ChoiceError{Signature: signature, Schedule: text, Err: err}
		}
	default:
		sch, work, reason, err = c.choose(p, pl, ctx.Target, signature, region)
	}
	if err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	spec := write(p, pl.at(p, sch), sch, ctx.Target)
	spec.Work, spec.Reason, spec.Signature = work, reason, signature
	return spec, nil
}

// normaliseFor is the normal form with the numerics of a target.
func normaliseFor(region *ir.Node, t *target.Target) (*problem, error) {
	if region.IsFamily(ir.FamilyChain) {
		return chained(region, t)
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

// family is that of the region, and macs its multiply-adds.
func (p *problem) family() string {
	if p.prologue != nil {
		return ir.FamilyChain
	}
	return ir.FamilyContraction
}

func (p *problem) macs() int64 {
	if p.prologue != nil {
		return p.region.MACs() + p.prologue.macs()
	}
	return p.region.MACs()
}

func stem(p *problem) string {
	if p.prologue != nil {
		return p.prologue.stem() + "_" + stemOf(p)
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
	if p.prologue != nil {
		t = p.prologue.stem() + ", "
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
