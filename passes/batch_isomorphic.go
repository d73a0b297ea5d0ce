package passes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

func itoa(n int) string { return strconv.Itoa(n) }

var _ = register(Pass{
	Name:    "batch-isomorphic",
	Summary: "batch isomorphic regions of equal depth into one region with members",
	After: map[string]string{
		"fuse": "regions are compared",
	},
	Needs: []string{"fuse"},
	Run:   batchIsomorphic,
})

// batchIsomorphic joins isomorphic kernels of equal depth (the two towers; projections of one input) into regions
// with members: same body, other constants, operands that are members of one batched value. Where towers begin, at
// different inputs of the graph, a loop region reads all of them and writes the first batched value.
//
//	batch_isomorphic.go       which regions form a class
//	batch_isomorphic_build.go a class → one region
func batchIsomorphic(_ *Context, g *ir.Graph) error {
	banned := map[*ir.Node]bool{}
	for {
		s := newBatcher(g, banned)
		s.classify()
		if !s.banUseless() {
			return s.build()
		}
	}
}

// class is regions that become one. Member r of a class reads member r of every class that it depends on.
type class struct {
	members []*ir.Node
	joins   bool // members read different inputs of the graph
	used    bool // another class reads its members
}

// classPlace is a region's place in its class.
type classPlace struct {
	class *class
	rank  int
}

type batcher struct {
	g      *ir.Graph
	uses   map[*ir.Value][]ir.Use
	banned map[*ir.Node]bool
	depth  map[*ir.Node]int
	of     map[*ir.Node]classPlace
	ids    map[*ir.Value]int
	list   []*class
	to     map[*ir.Value]*ir.Value
}

func newBatcher(g *ir.Graph, banned map[*ir.Node]bool) *batcher {
	s := &batcher{g: g, uses: g.Uses(), banned: banned, depth: map[*ir.Node]int{}, of: map[*ir.Node]classPlace{}, ids: map[*ir.Value]int{}, to: map[*ir.Value]*ir.Value{}}
	for _, n := range g.Nodes {
		d := 0
		for _, v := range n.Inputs {
			if v != nil && v.Def != nil {
				d = max(d, s.depth[v.Def])
			}
		}
		if !n.IsFamily(ir.FamilyView) {
			d++
		}
		s.depth[n] = d
	}
	return s
}

// operand describes an input of a region to classify: inputs with equal keys can be batched or shared, and rank
// orders them.
type operand struct {
	key  string
	rank int // -1: says nothing about the order
	of   *class
	span span
	kind operandKind
}

type operandKind uint8

const (
	operandShared operandKind = iota // the same value for all members
	operandConst
	operandMember // an output of the member of a class
	operandSpan   // one of several equal runs of a value
	operandJoin   // an input of the graph, another one for each member
)

func (s *batcher) id(v *ir.Value) string {
	if s.ids[v] == 0 {
		s.ids[v] = len(s.ids) + 1
	}
	return itoa(s.ids[v])
}

func (s *batcher) operand(n *ir.Node, v *ir.Value) operand {
	if v.IsConst() {
		return operand{key: "const", rank: -1, kind: operandConst}
	}
	if v.Def == nil {
		if n.IsFamily(ir.FamilyLoop) && isLightBody(n.Region.Body) {
			return operand{key: "input", rank: -1, kind: operandJoin}
		}
		return operand{key: "v" + s.id(v), rank: -1}
	}
	sp := spanOf(v)
	whole := sp.size == sp.base.Type.Numel()
	if p := s.of[sp.base.Def]; p.class != nil && whole {
		return operand{key: fmt.Sprintf("m%d.%d", slices.Index(s.list, p.class), sp.base.Index), rank: p.rank, of: p.class, span: sp, kind: operandMember}
	}
	if !whole && !sp.base.IsConst() && s.of[sp.base.Def].class == nil {
		return operand{key: "s" + s.id(sp.base), rank: -1, span: sp, kind: operandSpan}
	}
	return operand{key: "v" + s.id(v), rank: -1}
}

// isLightBody reports whether a body has no heavy node: several of them fit into one loop.
func isLightBody(b *ir.Graph) bool {
	return !slices.ContainsFunc(b.Nodes, func(n *ir.Node) bool { return n.Role() != ir.RoleLight })
}

// classify forms classes level by level.
func (s *batcher) classify() {
	deepest := 0
	for _, n := range s.g.Nodes {
		deepest = max(deepest, s.depth[n])
	}
	for d := 1; d <= deepest; d++ {
		var keys []string
		buckets := map[string][]*ir.Node{}
		for _, n := range s.g.Nodes {
			if s.depth[n] != d || n.IsFamily(ir.FamilyView) || s.banned[n] || n.Region.Members > 0 {
				continue
			}
			key, ok := s.key(n)
			if !ok {
				continue
			}
			if buckets[key] == nil {
				keys = append(keys, key)
			}
			buckets[key] = append(buckets[key], n)
		}
		for _, k := range keys {
			s.form(buckets[k])
		}
	}
}

// key is equal for regions that could be members of one class.
func (s *batcher) key(n *ir.Node) (string, bool) {
	var b strings.Builder
	b.WriteString(n.Region.Family)
	rank := -1
	for i, v := range n.Inputs {
		o := s.operand(n, v)
		if o.rank >= 0 {
			if rank >= 0 && rank != o.rank {
				return "", false
			}
			rank = o.rank
		}
		fmt.Fprintf(&b, "|%s:%v %v", o.key, n.Region.Body.Inputs[i].Type, n.Region.Operands[i])
	}
	b.WriteString(n.Region.Body.Signature())
	return b.String(), true
}

// form groups the regions of one bucket into classes.
func (s *batcher) form(nodes []*ir.Node) {
	if len(nodes) < 2 {
		return
	}
	var from *class
	for _, v := range nodes[0].Inputs {
		if o := s.operand(nodes[0], v); o.of != nil {
			from = o.of
		}
	}
	if from == nil {
		s.add(nodes)
		return
	}
	byRank := make([][]*ir.Node, len(from.members))
	for _, n := range nodes {
		for _, v := range n.Inputs {
			if o := s.operand(n, v); o.of != nil {
				byRank[o.rank] = append(byRank[o.rank], n)
				break
			}
		}
	}
	for k := 0; ; k++ {
		var set []*ir.Node
		for _, list := range byRank {
			if k >= len(list) {
				return
			}
			set = append(set, list[k])
		}
		s.add(set)
	}
}

// add makes the nodes a class, in an order in which their spans follow each other, unless an operand forbids it.
func (s *batcher) add(nodes []*ir.Node) {
	if len(nodes) < 2 {
		return
	}
	nodes = slices.Clone(nodes)
	first := s.operandsOf(nodes[0])
	ranked := slices.ContainsFunc(first, func(o operand) bool { return o.kind == operandMember })
	for i, o := range first {
		if o.kind == operandSpan && !ranked {
			slices.SortStableFunc(nodes, func(a, b *ir.Node) int {
				return s.operand(a, a.Inputs[i]).span.from - s.operand(b, b.Inputs[i]).span.from
			})
			break
		}
	}
	c := &class{members: nodes}
	for i := range nodes[0].Inputs {
		if !s.stackable(c, i) {
			return
		}
	}
	if !s.outputsAllow(c) {
		return
	}
	for _, o := range first {
		if o.of != nil {
			o.of.used = true
		}
	}
	s.list = append(s.list, c)
	for r, n := range nodes {
		s.of[n] = classPlace{c, r}
	}
}

func (s *batcher) operandsOf(n *ir.Node) []operand {
	list := make([]operand, len(n.Inputs))
	for i, v := range n.Inputs {
		list[i] = s.operand(n, v)
	}
	return list
}

// stackable checks input i over the members: spans must follow each other, inputs of the graph be all the same or all
// read by a loop.
func (s *batcher) stackable(c *class, i int) bool {
	o := s.operand(c.members[0], c.members[0].Inputs[i])
	same := true
	for r, n := range c.members {
		v := n.Inputs[i]
		same = same && v == c.members[0].Inputs[i]
		if o.kind == operandSpan {
			if sp := s.operand(n, v).span; sp.from != o.span.from+r*o.span.size {
				return false
			}
		}
	}
	if o.kind == operandJoin && !same {
		c.joins = true
	}
	return true
}

// outputsAllow reports whether the readers of the members' outputs can read slices of one value: an output of the graph
// cannot, and a Concat in place only if it wants the members side by side.
func (s *batcher) outputsAllow(c *class) bool {
	for k := range c.members[0].Outputs {
		for r, n := range c.members {
			for _, u := range s.readersThroughViews(n.Outputs[k]) {
				if u.Node == nil {
					return false
				}
				if !u.Node.IsFamily(ir.FamilyView) {
					continue
				}
				operands := concatOperands(u.Node)
				at := slices.IndexFunc(operands, func(v *ir.Value) bool { return spanOf(v).base == n.Outputs[k] })
				first := at - r
				if first < 0 || first+len(c.members) > len(operands) {
					return false
				}
				for q, m := range c.members {
					if spanOf(operands[first+q]).base != m.Outputs[k] {
						return false
					}
				}
			}
		}
	}
	return true
}

// readersThroughViews lists the readers of a value and of its views; view regions of one operand are not listed
// themselves.
func (s *batcher) readersThroughViews(v *ir.Value) []ir.Use {
	var list []ir.Use
	for _, u := range s.uses[v] {
		if u.Node != nil && u.Node.IsFamily(ir.FamilyView) && len(u.Node.Inputs) == 1 {
			list = append(list, s.readersThroughViews(u.Node.Outputs[0])...)
			continue
		}
		list = append(list, u)
	}
	return list
}

// banUseless forbids joins that no class reads: they would merge two kernels only to add a copy.
func (s *batcher) banUseless() bool {
	changed := false
	for _, c := range s.list {
		if c.joins && !c.used {
			for _, n := range c.members {
				s.banned[n] = true
				changed = true
			}
		}
	}
	return changed
}
