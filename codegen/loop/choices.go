package loop

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// Choices remembers the schedules that were chosen, for programs that have most regions in common: to choose one, each is emitted and
// counted. The zero value remembers none yet, nil nothing.
type Choices struct {
	mu     sync.Mutex
	known  map[string]choice
	chains map[string]chainChoice
}

type choice struct {
	schedule schedule
	work     cost.Work
}

func (c *Choices) choose(p *problem) (*schedule, *cost.Work, error) {
	candidates := p.candidates()
	if c == nil {
		return p.choose(candidates)
	}
	key := p.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.known[key]; ok {
		return &was.schedule, &was.work, nil
	}
	s, work, err := p.choose(candidates)
	if err != nil {
		return nil, nil, err
	}
	if c.known == nil {
		c.known = map[string]choice{}
	}
	c.known[key] = choice{*s, *work}
	return s, work, nil
}

type chainChoice struct {
	schedule chained
	work     cost.Work
}

// chooseChain chooses for a chain.
func (c *Choices) chooseChain(of *chain, n *ir.Node, ctx *kernel.Context) (*chained, *cost.Work, error) {
	if c == nil {
		return of.choose(n, ctx)
	}
	var k strings.Builder
	for _, p := range of.parts {
		fmt.Fprintln(&k, p.kept, p.held, p.key())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.chains[k.String()]
	if !ok {
		s, work, err := of.choose(n, ctx)
		if err != nil {
			return nil, nil, err
		}
		was = chainChoice{*s, *work}
		if c.chains == nil {
			c.chains = map[string]chainChoice{}
		}
		c.chains[k.String()] = was
	}
	return &was.schedule, &was.work, nil
}

// key is all that a schedule and its work depend on: the target, the output, expressions node by node, and what is known of operands.
func (p *problem) key() string {
	var k strings.Builder
	fmt.Fprintln(&k, p.ctx.Target.Name, p.shape, p.outputs, ids(p.index), p.l.Member != nil)
	if p.blocks != nil {
		fmt.Fprintln(&k, p.blocks.Attrs)
	}
	var values []*expr.Expr
	for _, o := range p.outs {
		values = append(values, o.value)
		fmt.Fprint(&k, o.value.ID(), o.dtype, o.sub, " ")
		if o.linear != nil {
			values = append(values, o.linear)
			fmt.Fprint(&k, o.linear.ID())
		}
		fmt.Fprintln(&k)
	}
	expr.Walk(append(values, p.index...), func(e *expr.Expr) {
		fmt.Fprintln(&k, e.ID(), e.Op, e.Type, ids(e.Args), e.I, math.Float64bits(e.F), e.Coef, ids(e.Vars), e.Red, e.DType, e.Name, e.Lo, e.Hi)
	})
	for _, o := range p.l.Operands {
		fmt.Fprint(&k, len(o.Const), o.Workspace, o.Counter, o.Number, o.Write, o.Read)
		if o.Value != nil {
			fmt.Fprint(&k, o.Value.Type, o.Value.IsConst())
			fmt.Fprint(&k, p.ctx.AlignOf(o.Value))
		}
		fmt.Fprintln(&k)
	}
	return k.String()
}

func ids(list []*expr.Expr) (out []int) {
	for _, e := range list {
		out = append(out, e.ID())
	}
	return out
}
