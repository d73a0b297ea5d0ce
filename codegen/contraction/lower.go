package contraction

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// Lower turns a region of family contraction into a kernel. A region that it refuses (Supported says why) is a loop's.
func Lower(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	p, err := normalise(region, ctx)
	if err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	if p.attn != nil {
		spec, err := lowerAttention(p, ctx)
		if err != nil {
			return nil, fmt.Errorf("contraction: attention: %w", err)
		}
		return spec, nil
	}
	s, reason, err := choose(p, ctx)
	if err != nil {
		return nil, fmt.Errorf("contraction: %w", err)
	}
	spec, err := lower(p, s, ctx)
	if err != nil {
		return nil, fmt.Errorf("contraction: schedule %s: %w", s, err)
	}
	spec.Reason = reason
	return spec, nil
}

// lower writes the kernel of a schedule.
func lower(p *problem, s Schedule, ctx *kernel.Context) (*kernel.Spec, error) {
	if err := s.valid(p, ctx.Target); err != nil {
		return nil, err
	}
	pl, err := makePlan(p, s, ctx)
	if err != nil {
		return nil, err
	}
	if pl.packed {
		pl.operands[pl.b].Const = pack(p, s, pl.panelZ)
	}
	return &kernel.Spec{
		Stem:     stem(p),
		Family:   "contraction",
		Grid:     [3]int{s.blocks(p), 1, 1},
		Block:    [3]int{s.threads(), 1, 1},
		Shared:   s.shared(p),
		Operands: pl.operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: s, t: ctx.Target, plan: pl, params: params}
			g.emit()
		},
		MACs:     p.macs(),
		Schedule: s.String(),
		Note:     note(p),
	}, nil
}

func stem(p *problem) string {
	kind := "f32"
	if p.half {
		kind = "f16"
	}
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
	t := fmt.Sprintf("%s m=%d n=%d k=%d", p.anchor.Op.Name, p.m, p.n, p.k)
	if b := p.batches(); b > 1 {
		t += fmt.Sprintf(" batch=%d", b)
	}
	return t
}

// Supported says why Lower would refuse the region, or nil.
func Supported(region *ir.Node, ctx *kernel.Context) error {
	_, err := normalise(region, ctx)
	return err
}
