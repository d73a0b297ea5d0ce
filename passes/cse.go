package passes

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "cse",
	Summary: "merge identical operations on identical operands, and constants with the same content",
	Run: func(_ *Context, g *ir.Graph) error {
		consts := newConstPool()
		seen := map[string]*ir.Node{}
		ids := map[*ir.Value]int{}
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			for i, v := range n.Inputs {
				if v != nil && v.IsConst() {
					s.setInput(n, i, consts.intern(v))
				}
			}
			if n.Region != nil {
				return
			}
			key := expressionKey(n, ids)
			first := seen[key]
			if first == nil {
				seen[key] = n
				return
			}
			for i, v := range n.Outputs {
				if s.keepsName(v, first.Outputs[i]) {
					return
				}
			}
			for i, v := range n.Outputs {
				s.replace(v, first.Outputs[i])
			}
		})
		return err
	},
})

// expressionKey is equal for nodes that compute the same: op, attributes and the identities of their operands.
func expressionKey(n *ir.Node, ids map[*ir.Value]int) string {
	var b strings.Builder
	b.WriteString(n.Op.Name + n.Attrs.Key())
	operands := make([]int, len(n.Inputs))
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if ids[v] == 0 {
			ids[v] = len(ids) + 1
		}
		operands[i] = ids[v]
	}
	if n.Op.Commutative {
		slices.Sort(operands)
	}
	fmt.Fprint(&b, " ", operands)
	return b.String()
}

// constPool finds constants of equal type and content.
type constPool struct {
	seed maphash.Seed
	by   map[uint64][]*ir.Value
	of   map[*ir.Value]*ir.Value
}

func newConstPool() *constPool {
	return &constPool{maphash.MakeSeed(), map[uint64][]*ir.Value{}, map[*ir.Value]*ir.Value{}}
}

// intern returns the first constant that equals v, v itself if there was none.
func (p *constPool) intern(v *ir.Value) *ir.Value {
	if w := p.of[v]; w != nil {
		return w
	}
	w := p.constant(v.Const, func() *ir.Value { return v })
	p.of[v] = w
	return w
}

// constant returns the first constant that equals t, or makes it.
func (p *constPool) constant(t *ir.Tensor, make func() *ir.Value) *ir.Value {
	key := maphash.Bytes(p.seed, t.Data)
	for _, w := range p.by[key] {
		if w.Const.Splat == t.Splat && w.Const.Equal(t) {
			return w
		}
	}
	v := make()
	p.by[key] = append(p.by[key], v)
	return v
}
