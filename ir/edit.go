package ir

import (
	"fmt"
	"maps"
	"slices"
)

// Use is one place where a value is read: input Index of Node, or graph output Index if Node is nil.
type Use struct {
	Node  *Node
	Index int
}

// Uses returns for every value the places that read it, in order of nodes, graph outputs last. Bodies of regions are
// graphs of their own and not included.
func (g *Graph) Uses() map[*Value][]Use {
	uses := map[*Value][]Use{}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if v != nil {
				uses[v] = append(uses[v], Use{n, i})
			}
		}
	}
	for i, v := range g.Outputs {
		uses[v] = append(uses[v], Use{nil, i})
	}
	return uses
}

// ReplaceAll makes every reader of old, graph outputs included, read new.
func (g *Graph) ReplaceAll(old, new *Value) {
	g.Substitute(map[*Value]*Value{old: new})
}

// Substitute replaces every value that is a key by what it maps to, following chains, in one walk over the graph.
func (g *Graph) Substitute(by map[*Value]*Value) {
	resolve := func(v *Value) *Value {
		for range len(by) + 1 {
			w, ok := by[v]
			if !ok || w == v {
				break
			}
			v = w
		}
		return v
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if v != nil {
				n.Inputs[i] = resolve(v)
			}
		}
	}
	for i, v := range g.Outputs {
		g.Outputs[i] = resolve(v)
	}
}

// RemoveDead removes the nodes that no graph output depends on, from bodies of regions too, and returns their number.
// Graph inputs stay.
func (g *Graph) RemoveDead() int {
	live := map[*Node]bool{}
	mark := func(v *Value) {
		if v != nil && v.Def != nil {
			live[v.Def] = true
		}
	}
	for _, v := range g.Outputs {
		mark(v)
	}
	removed := 0
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !live[n] {
			continue
		}
		for _, v := range n.Inputs {
			mark(v)
		}
		if n.Region != nil {
			removed += n.Region.Body.RemoveDead()
		}
	}
	before := len(g.Nodes)
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool { return !live[n] })
	return removed + before - len(g.Nodes)
}

// Toposort puts the nodes in topological order. Nodes that already follow what they depend on keep their order. It
// fails if they form a cycle.
func (g *Graph) Toposort() error {
	const waiting, open = 1, 2
	state := make(map[*Node]int, len(g.Nodes)) // 0: placed, or not of this graph
	for _, n := range g.Nodes {
		state[n] = waiting
	}
	order := make([]*Node, 0, len(g.Nodes))
	var place func(n *Node) error
	place = func(n *Node) error {
		state[n] = open
		for _, v := range n.Inputs {
			if v == nil || state[v.Def] == 0 {
				continue
			}
			if state[v.Def] == open {
				return fmt.Errorf("cycle through node %q (%s) and %%%s", v.Def.Name, v.Def.Op.Name, v.Name)
			}
			if err := place(v.Def); err != nil {
				return err
			}
		}
		state[n] = 0
		order = append(order, n)
		return nil
	}
	for _, n := range g.Nodes {
		if state[n] == waiting {
			if err := place(n); err != nil {
				return err
			}
		}
	}
	g.Nodes = order
	return nil
}

// Append adds the nodes of h after those of g. Names from Fresh are then new to both.
func (g *Graph) Append(h *Graph) {
	g.Nodes = append(g.Nodes, h.Nodes...)
	g.next = max(g.next, h.next)
}

// Constants returns the constants that the graph reads, in order of first use; those of bodies are not included.
func (g *Graph) Constants() []*Value {
	var out []*Value
	seen := map[*Value]bool{}
	add := func(v *Value) {
		if v != nil && v.IsConst() && !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			add(v)
		}
	}
	for _, v := range g.Outputs {
		add(v)
	}
	return out
}

// Clone returns a copy that shares only attribute slices and constants' data.
func (g *Graph) Clone() *Graph {
	c, _ := g.CloneMapped()
	return c
}

// CloneMapped is Clone; it also returns the copy of every value.
func (g *Graph) CloneMapped() (*Graph, map[*Value]*Value) {
	c := &Graph{Name: g.Name, Meta: maps.Clone(g.Meta), next: g.next}
	to := map[*Value]*Value{}
	value := func(v *Value) *Value {
		if v == nil {
			return nil
		}
		if to[v] == nil {
			to[v] = &Value{Name: v.Name, Type: v.Type.Clone(), Index: v.Index, Const: v.Const, Delay: v.Delay, Sample: v.Sample}
		}
		return to[v]
	}
	for _, v := range g.Inputs {
		c.Inputs = append(c.Inputs, value(v))
	}
	for _, n := range g.Nodes {
		m := &Node{Op: n.Op, Name: n.Name, Attrs: n.Attrs.Clone(), From: n.From}
		for _, v := range n.Inputs {
			m.Inputs = append(m.Inputs, value(v))
		}
		for _, v := range n.Outputs {
			w := value(v)
			w.Def = m
			m.Outputs = append(m.Outputs, w)
		}
		if n.Region != nil {
			m.Region = n.Region.Clone()
		}
		c.Nodes = append(c.Nodes, m)
	}
	for _, v := range g.Outputs {
		c.Outputs = append(c.Outputs, value(v))
	}
	return c, to
}

// Diff describes the first difference between two graphs but for the names of values and nodes, in inputs, nodes in
// order, attributes, constants by content, bodies and outputs; or returns "".
func (g *Graph) Diff(h *Graph) string {
	if len(g.Inputs) != len(h.Inputs) || len(g.Nodes) != len(h.Nodes) || len(g.Outputs) != len(h.Outputs) {
		return fmt.Sprintf("%d inputs, %d nodes, %d outputs against %d, %d, %d",
			len(g.Inputs), len(g.Nodes), len(g.Outputs), len(h.Inputs), len(h.Nodes), len(h.Outputs))
	}
	pair := map[*Value]*Value{}
	for i, v := range g.Inputs {
		if w := h.Inputs[i]; !v.Type.Equal(w.Type) {
			return fmt.Sprintf("input %d: %v against %v", i, v.Type, w.Type)
		} else if v.Delay != w.Delay || !slices.Equal(v.Sample, w.Sample) {
			return fmt.Sprintf("input %d: delay %d, sample %v against %d, %v", i, v.Delay, v.Sample, w.Delay, w.Sample)
		}
		pair[v] = h.Inputs[i]
	}
	same := func(v, w *Value) bool {
		switch {
		case v == nil || w == nil:
			return v == w
		case v.IsConst() || w.IsConst():
			return v.IsConst() && w.IsConst() && v.Const.Equal(w.Const)
		}
		return pair[v] == w
	}
	for i, n := range g.Nodes {
		m := h.Nodes[i]
		if d := n.diff(m, same); d != "" {
			return fmt.Sprintf("node %d %q (%s): %s", i, n.Name, n.Op.Name, d)
		}
		for j, v := range n.Outputs {
			pair[v] = m.Outputs[j]
		}
	}
	for i, v := range g.Outputs {
		if !same(v, h.Outputs[i]) {
			return fmt.Sprintf("output %d: %%%s against %%%s", i, v.Name, h.Outputs[i].Name)
		}
	}
	return ""
}

func (n *Node) diff(m *Node, same func(v, w *Value) bool) string {
	if n.Op != m.Op || len(n.Inputs) != len(m.Inputs) || len(n.Outputs) != len(m.Outputs) {
		return fmt.Sprintf("%d inputs, %d outputs against %s with %d, %d",
			len(n.Inputs), len(n.Outputs), m.Op.Name, len(m.Inputs), len(m.Outputs))
	}
	if !n.Attrs.Equal(m.Attrs) {
		return fmt.Sprintf("attributes %v against %v", n.Attrs, m.Attrs)
	}
	for i, v := range n.Inputs {
		if !same(v, m.Inputs[i]) {
			return fmt.Sprintf("input %d differs", i)
		}
	}
	for i, v := range n.Outputs {
		if !v.Type.Equal(m.Outputs[i].Type) {
			return fmt.Sprintf("output %d: %v against %v", i, v.Type, m.Outputs[i].Type)
		}
	}
	if n.Region != nil && m.Region != nil {
		return n.Region.diff(m.Region)
	}
	if n.Region != m.Region {
		return "only one has a body"
	}
	return ""
}

// Equal reports whether both hold the same names with the same values; floats are compared by their bits.
func (a Attrs) Equal(b Attrs) bool {
	return maps.EqualFunc(a, b, func(x, y any) bool {
		return fmt.Sprintf("%T", x) == fmt.Sprintf("%T", y) && attrText(x) == attrText(y) // which is exact
	})
}
