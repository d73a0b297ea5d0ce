package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// storage is memory that a program gives to values between launches, as codegen does: to a value and its views, or to
// a Concat and what is written in place there.
type storage struct {
	bytes   int
	joined  bool     // of a Concat
	writer  *ir.Node // the first region that writes it
	at      int      // the writer's place in the list
	readers []int    // places of the nodes that read it, in order

	tape // what rematerialise knows of it
}

// storages returns the storage of each value of a graph of regions, and all of them in the order in which they are
// first written. Constants, inputs and outputs of the graph have none: their memory is not the arena's.
func storages(g *ir.Graph) (of map[*ir.Value]*storage, list []*storage) {
	of = map[*ir.Value]*storage{}
	outputs := &storage{}
	for _, v := range g.Outputs {
		of[v] = outputs
	}
	for _, n := range slices.Backward(g.Nodes) { // what a Concat or an output views is written in place
		if !n.IsFamily(ir.FamilyView) {
			continue
		}
		y := n.Outputs[0]
		if of[y] == nil && !renames(n) {
			of[y] = newStorage(y)
			of[y].joined = true
		}
		for _, v := range n.Inputs {
			if of[y] != nil && of[v] == nil && v.Def != nil && (!renames(n) || v.Type.Bytes() == y.Type.Bytes()) {
				of[v] = of[y]
			}
		}
	}
	for i, n := range g.Nodes {
		for _, v := range n.Inputs {
			if s := of[v]; s != nil && !renames(n) && !slices.Contains(s.readers, i) {
				s.readers = append(s.readers, i)
			}
		}
		for _, y := range n.Outputs {
			switch {
			case of[y] != nil:
			case renames(n):
				of[y] = of[n.Inputs[0]] // nil: of an input or a constant
			default:
				of[y] = newStorage(y)
			}
			if s := of[y]; s != nil && s != outputs && s.writer == nil {
				s.writer, s.at = n, i
				list = append(list, s)
			}
		}
	}
	for v, s := range of {
		if s == outputs || s == nil {
			delete(of, v)
		}
	}
	return of, list
}

func newStorage(v *ir.Value) *storage { return &storage{bytes: (v.Type.Bytes() + 255) &^ 255} }

// renames reports whether a node is a view that no launch stands for: it only names bytes of its operand.
func renames(n *ir.Node) bool { return n.IsFamily(ir.FamilyView) && len(n.Inputs) == 1 }

// peakMemory is the largest sum of bytes that the storages of a graph of regions have at a time.
func peakMemory(g *ir.Graph) (most int) {
	_, list := storages(g)
	change := make([]int, len(g.Nodes)+1)
	for _, s := range list {
		change[s.at] += s.bytes
		change[slices.Max(append(s.readers, s.at))+1] -= s.bytes
	}
	live := 0
	for _, bytes := range change {
		live += bytes
		most = max(most, live)
	}
	return most
}
