package ir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Signature prints what a graph computes without names and without the values of its constants: graphs of one
// signature differ in those alone.
func (g *Graph) Signature() string {
	var b strings.Builder
	id := map[*Value]int{}
	for _, v := range g.Inputs {
		id[v] = len(id)
	}
	ref := func(v *Value) {
		switch {
		case v == nil:
			b.WriteString("-,")
		case v.IsConst():
			fmt.Fprintf(&b, "c%v,", v.Type)
		default:
			fmt.Fprintf(&b, "%d,", id[v])
		}
	}
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, ";%s%s(", n.Op.Name, n.Attrs.Key())
		for _, v := range n.Inputs {
			ref(v)
		}
		b.WriteString(")")
		for _, v := range n.Outputs {
			id[v] = len(id)
		}
	}
	b.WriteString(">")
	for _, v := range g.Outputs {
		ref(v)
	}
	return b.String()
}

// Key prints attributes so that equal ones, and no others, have equal texts.
func (a Attrs) Key() string {
	var k strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a)) {
		fmt.Fprintf(&k, "{%s=%#v}", name, a[name])
	}
	return k.String()
}
