package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/ir"
)

// cutPoint is a place in a list of regions where one value goes on.
type cutPoint struct {
	at    int       // the last node before the cut
	value *ir.Value // computed before the cut and read after it
	key   string    // identifies what precedes the cut
}

// cutsOf lists where a graph of regions can be cut: no outputs and no state that persists between runs may precede
// the cut. Graphs of one model for different batch sizes have cuts with the same key where the same nodes of the
// file, in as many operations, yield a value of the same name.
func cutsOf(g *ir.Graph) (cuts []cutPoint) {
	ends, last := map[*ir.Value]bool{}, map[*ir.Value]int{}
	for _, v := range g.Outputs {
		ends[v] = true
	}
	for i, n := range g.Nodes {
		for _, v := range n.Inputs {
			if v != nil {
				last[v] = i
			}
		}
	}
	kept := map[string]bool{}
	for _, k := range States(g) {
		kept[k.Input] = true
	}
	live, ops := map[*ir.Value]bool{}, map[string]int{}
	var from []ir.Origin
	for i, n := range g.Nodes {
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			if kept[v.Name] {
				return cuts
			}
			if last[v] == i {
				delete(live, v)
			}
		}
		for _, v := range n.Outputs {
			if ends[v] {
				return cuts
			}
			if last[v] > i {
				live[v] = true
			}
		}
		countOps(n, ops)
		from = ir.JoinOrigins(from, n.Region.Origins())
		if len(live) == 1 {
			for v := range live {
				cuts = append(cuts, cutPoint{i, v, keyOf(v, ops, from)})
			}
		}
	}
	return cuts
}

// countOps counts the operations that a region computes.
func countOps(n *ir.Node, ops map[string]int) {
	if n.Region == nil {
		ops[n.Op.Name]++
		return
	}
	for _, m := range n.Region.Body.Nodes {
		countOps(m, ops)
	}
}

// keyOf is the same for the same value of batches of other sizes. Names that passes make end with a number, which tells nothing.
func keyOf(v *ir.Value, ops map[string]int, from []ir.Origin) string {
	var b strings.Builder
	name, _, _ := strings.Cut(v.Name, "~")
	fmt.Fprint(&b, name, " ", v.Type.DType, " ", v.Type.Rank())
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		fmt.Fprint(&b, " ", op, ops[op])
	}
	for _, o := range from {
		fmt.Fprint(&b, " ", o.At)
	}
	return b.String()
}

// splitPoint joins the prefix of a graph of few samples to the rest of another graph of the same model.
type splitPoint struct{ prefix, rest cutPoint }

// splitPoints lists them. The value's axis of samples is as long as there are samples, and nothing else differs.
func splitPoints(prefix, rest *trial) (joints []splitPoint) {
	known := map[string]cutPoint{}
	for _, c := range prefix.cuts {
		if _, ok := known[c.key]; !ok {
			known[c.key] = c
		}
	}
	for _, c := range rest.cuts {
		f, ok := known[c.key]
		if !ok {
			continue
		}
		a, b := f.value.Type.Shape, c.value.Type.Shape
		axis := 0
		for axis < len(a) && a[axis] == b[axis] {
			axis++
		}
		if axis == len(a) || a[axis] != prefix.size {
			continue
		}
		if _, err := codegen.SlicesOf(f.value.Type, c.value.Type, rest.size/prefix.size); err == nil {
			joints = append(joints, splitPoint{f, c})
		}
	}
	return joints
}

// estimate is the time of a joint's two parts for the samples of the second, in µs, without the copies between them.
func (j splitPoint) estimate(prefix, rest *trial) float64 {
	return float64(prefix.upTo[j.prefix.at]*float64(rest.size/prefix.size)) + rest.upTo[len(rest.upTo)-1] - rest.upTo[j.rest.at]
}

// prefixed is how a batch runs whose first layers compute fewer samples at a time than the others.
type prefixed struct {
	splitPoint
	prefix, rest *trial
	us           float64
}

// entry is an entry of the two parts; g is the graph of the second one, whole.
func (f *prefixed) entry(g *ir.Graph) (codegen.Entry, error) {
	at := slices.IndexFunc(cutsOf(g), func(c cutPoint) bool { return c.at == f.splitPoint.rest.at && c.key == f.splitPoint.rest.key })
	if at < 0 {
		return codegen.Entry{}, fmt.Errorf("the graph cannot be cut behind %q any more: this is a bug in the compiler, please report it", f.splitPoint.rest.value.Name)
	}
	c := cutsOf(g)[at]
	rest, to := g.CloneMapped()
	rest.Nodes = rest.Nodes[c.at+1:]
	v := to[c.value]
	v.Def = nil
	rest.Inputs = append(rest.Inputs, v)
	first, to := f.prefix.graph.CloneMapped()
	first.Nodes = first.Nodes[:f.splitPoint.prefix.at+1]
	w := to[f.splitPoint.prefix.value]
	w.Name, first.Outputs = v.Name, []*ir.Value{w}
	for _, part := range []*ir.Graph{first, rest} {
		uses := part.Uses()
		part.Inputs = slices.DeleteFunc(part.Inputs, func(v *ir.Value) bool { return len(uses[v]) == 0 })
		if err := part.Verify(); err != nil {
			return codegen.Entry{}, err
		}
	}
	e := entries(rest)[0]
	e.Prefix = &codegen.BatchPrefix{Graph: first, Repeats: f.rest.size / f.prefix.size}
	return e, nil
}

// best of all joints of these sizes by estimate, the best of each pair first; at most so many.
func bestPrefixes(trials []*trial, most int) (list []*prefixed) {
	for _, rest := range trials {
		for _, prefix := range trials {
			if prefix.size >= rest.size || rest.size%prefix.size != 0 {
				continue
			}
			var best *prefixed
			for _, j := range splitPoints(prefix, rest) {
				if us := j.estimate(prefix, rest); best == nil || us < best.us {
					best = &prefixed{j, prefix, rest, us}
				}
			}
			if best != nil {
				list = append(list, best)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *prefixed) int { return cmp.Compare(a.us/float64(a.rest.size), b.us/float64(b.rest.size)) })
	return list[:min(len(list), most)]
}
