package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// sweep is one walk over a graph's nodes in topological order. A visitor sees each node after its operands were
// rewritten; it adds nodes before the visited one and replaces the visited one's outputs. Use counts stay exact
// throughout, so that a matcher can ask whether it is the only reader of a value.
type sweep struct {
	g       *ir.Graph
	uses    map[*ir.Value]int       // node inputs and graph outputs that read the value
	to      map[*ir.Value]*ir.Value // replaced values
	nodes   []*ir.Node              // visited and added so far
	dead    map[*ir.Node]bool
	steps   map[*ir.Value]bool // those that stepsOf finds, where a visitor has asked
	gone    []*ir.Node         // dead since the visit began
	changed bool
	err     error // the first error of add or replace
}

// maxRounds bounds rewriteToFixpoint: a pass that still changes the graph after that many sweeps is undoing its own
// work.
const maxRounds = 100

// rewriteToFixpoint sweeps until a sweep changes nothing.
func rewriteToFixpoint(g *ir.Graph, visit func(s *sweep, n *ir.Node)) error {
	for range maxRounds {
		changed, err := rewrite(g, visit)
		if err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("no fixpoint after %d sweeps", maxRounds)
}

// rewrite sweeps once, drops what became unused and reports whether anything changed.
func rewrite(g *ir.Graph, visit func(s *sweep, n *ir.Node)) (bool, error) {
	s := &sweep{
		g:    g,
		uses: map[*ir.Value]int{},
		to:   map[*ir.Value]*ir.Value{},
		dead: map[*ir.Node]bool{},
	}
	for _, n := range g.Nodes {
		s.count(n, 1)
	}
	for _, v := range g.Outputs {
		s.uses[v]++
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			n.Inputs[i] = s.resolve(v)
		}
		if s.dead[n] {
			continue
		}
		before := len(s.nodes)
		s.gone = s.gone[:0]
		if visit(s, n); s.err != nil {
			return false, fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, s.err)
		}
		s.inherit(n, s.nodes[before:])
		s.nodes = append(s.nodes, n)
	}
	if err := s.setOutputs(); err != nil {
		return false, err
	}
	g.Nodes = s.live()
	return s.changed, nil
}

// inherit gives the nodes that a visit made what those came from that it made superfluous. If none were made the
// visited node has it, or what takes its place.
func (s *sweep) inherit(n *ir.Node, made []*ir.Node) {
	if len(made) == 0 {
		if s.dead[n] {
			if n = s.resolve(n.Outputs[0]).Def; n == nil {
				return
			}
		}
		made = []*ir.Node{n}
	}
	for _, old := range s.gone {
		ir.Inherit(made, old.From)
	}
}

// setOutputs replaces graph outputs. The name of an output is the port's, so the new value takes it over; one that
// has a name of its own to keep, an input, a constant or another output, is copied.
func (s *sweep) setOutputs() error {
	for i, v := range s.g.Outputs {
		w := s.resolve(v)
		if w == v {
			continue
		}
		if w.Def == nil || slices.Contains(s.g.Outputs, w) {
			n, err := s.g.NewNode("Reshape", v.Name, ir.Attrs{"shape": w.Type.Shape}, w)
			if err != nil {
				return err
			}
			s.place(n)
			s.uses[w]--
			w = n.Outputs[0]
			s.uses[w]++
		}
		v.Name, w.Name = s.g.Fresh(v.Name), v.Name
		s.g.Outputs[i] = w
	}
	return nil
}

// keepsName reports whether old must not be replaced by v because both are ports with names of their own.
func (s *sweep) keepsName(old, v *ir.Value) bool {
	return slices.Contains(s.g.Outputs, old) && (v.Def == nil || slices.Contains(s.g.Outputs, v))
}

// live drops dead nodes, readers before what they read.
func (s *sweep) live() []*ir.Node {
	for i := len(s.nodes) - 1; i >= 0; i-- {
		s.bury(s.nodes[i])
	}
	live := s.nodes[:0]
	for _, n := range s.nodes {
		if !s.dead[n] {
			live = append(live, n)
		}
	}
	return live
}

func (s *sweep) count(n *ir.Node, by int) {
	for _, v := range n.Inputs {
		if v != nil {
			s.uses[v] += by
		}
	}
}

// bury marks n dead if nothing reads it, then its operands that nothing else reads.
func (s *sweep) bury(n *ir.Node) {
	if n == nil || s.dead[n] {
		return
	}
	for _, v := range n.Outputs {
		if s.uses[v] > 0 {
			return
		}
	}
	s.dead[n], s.gone = true, append(s.gone, n)
	s.changed = true
	for _, v := range n.Inputs {
		if v == nil {
			continue
		}
		if v = s.resolve(v); s.uses[v] > 0 {
			s.uses[v]--
		}
		if s.uses[v] == 0 {
			s.bury(v.Def)
		}
	}
}

func (s *sweep) resolve(v *ir.Value) *ir.Value { return resolve(s.to, v) }

// resolve follows v through the values that have been replaced.
func resolve(to map[*ir.Value]*ir.Value, v *ir.Value) *ir.Value {
	for to[v] != nil {
		v = to[v]
	}
	return v
}

// only reports whether v is the output of a node and has a single reader: once that reader is replaced, the node is
// dead.
func (s *sweep) only(v *ir.Value) bool { return v.Def != nil && s.uses[v] == 1 }

// add inserts a new node before the visited one and returns its first output.
func (s *sweep) add(op, hint string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	if s.err != nil {
		return &ir.Value{}
	}
	n, err := s.g.NewNode(op, hint, attrs, inputs...)
	if err != nil {
		s.err = err
		return &ir.Value{}
	}
	s.place(n)
	return n.Outputs[0]
}

// place inserts an existing node before the visited one.
func (s *sweep) place(n *ir.Node) {
	s.count(n, 1)
	s.nodes = append(s.nodes, n)
	s.changed = true
}

// setInput replaces input i of n, the visited node, by v.
func (s *sweep) setInput(n *ir.Node, i int, v *ir.Value) {
	old := n.Inputs[i]
	if old == v {
		return
	}
	n.Inputs[i] = v
	s.changed = true
	if v != nil {
		s.uses[v]++
	}
	if old != nil {
		if s.uses[old]--; s.uses[old] == 0 {
			s.bury(old.Def)
		}
	}
}

// replace makes every reader of old, an output of the visited node or of one before it whose readers all follow, read
// v.
func (s *sweep) replace(old, v *ir.Value) {
	if s.err != nil || old == v {
		return
	}
	if !old.Type.Equal(v.Type) {
		s.err = fmt.Errorf("replacing %s %s by %s %s", old.Name, old.Type, v.Name, v.Type)
		return
	}
	s.changed = true
	s.to[old] = v
	s.uses[v] += s.uses[old]
	s.uses[old] = 0
	s.bury(old.Def)
}

// defOp returns the node that computes v if its op is one of those named, else nil.
func defOp(v *ir.Value, ops ...string) *ir.Node {
	if v == nil || v.Def == nil {
		return nil
	}
	for _, op := range ops {
		if v.Def.Op.Name == op {
			return v.Def
		}
	}
	return nil
}

// mirrored calls match with the two inputs of a commutative node in both orders until it succeeds.
func mirrored(n *ir.Node, match func(a, b *ir.Value) bool) bool {
	return match(n.Inputs[0], n.Inputs[1]) || match(n.Inputs[1], n.Inputs[0])
}
