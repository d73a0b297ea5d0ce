package trace

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// names says which nodes of the file each region computes. Passes keep the name of a node that they rewrite, and drop that of
// one which they merge into another: it is then the region that has its numbers, or else the one where its result is read next.
type names struct {
	source  *ir.Graph
	all     []*ir.Node              // regions that have a launch
	inside  map[*ir.Node][]string   // nodes of the file in their order
	regions map[string][]*ir.Node   // that a node of the file is inside of
	aside   map[string]string       // why a node or input has no region
	order   map[string]int          // of nodes in the file
	reads   map[*ir.Node][]*ir.Node // nodes of the file that read what a node computes
}

// original cuts off what a pass added to a name.
func original(name string) string {
	name, _, _ = strings.Cut(name, "~")
	return name
}

// newNames finds the names. In values are some of the file by name, and in exact those of the regions, on one input.
func newNames(source, regions *ir.Graph, values, exact map[string]*ir.Array, was map[string]string) *names {
	x := &names{source: source, inside: map[*ir.Node][]string{}, regions: map[string][]*ir.Node{}, aside: map[string]string{}, order: map[string]int{}, reads: map[*ir.Node][]*ir.Node{}}
	live := map[*ir.Value]bool{}
	for _, v := range source.Inputs {
		live[v], x.aside[v.Name] = true, "is an input, which no kernel computes"
	}
	var nodes []*ir.Node // that compute something from the inputs
	for i, n := range source.Nodes {
		if _, ok := x.order[n.Name]; !ok {
			x.order[n.Name] = i
		}
		computed := slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return live[v] })
		for _, v := range n.Outputs {
			live[v] = computed
		}
		for _, v := range n.Inputs {
			if v != nil && v.Def != nil {
				x.reads[v.Def] = append(x.reads[v.Def], n)
			}
		}
		if computed {
			nodes = append(nodes, n)
		} else {
			x.aside[n.Name] = "depends on no input: its value is computed when compiling"
		}
	}
	computes := launched(regions)
	for _, n := range regions.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			x.all = append(x.all, n)
		}
	}
	named := func(n *ir.Node) bool { return len(x.regions[n.Name]) > 0 }
	arithmetic := map[string]bool{} // names of nodes that do more than move elements
	for _, n := range nodes {
		arithmetic[n.Name] = arithmetic[n.Name] || !moves(n)
	}
	x.fromBodies(regions, computes, func(m *ir.Node) bool { return !moves(m) })
	for _, n := range nodes {
		if !named(n) && moves(n) != arithmetic[n.Name] {
			if r := x.alike(n, values, exact, was); r != nil {
				x.add(n.Name, r)
			}
		}
	}
	x.fromBodies(regions, computes, func(m *ir.Node) bool { return moves(m) && !arithmetic[original(m.Name)] })
	found := map[*ir.Node][]*ir.Node{} // of all nodes without a name, before one is named by another
	for _, n := range nodes {
		if named(n) {
			continue
		}
		near := nearest(n, named, func(n *ir.Node) []*ir.Node { return x.reads[n] })
		if len(near) == 0 {
			near = nearest(n, named, producers)
		}
		for _, m := range near {
			found[n] = append(found[n], x.regions[m.Name]...)
		}
	}
	for n, list := range found {
		for _, r := range list {
			x.add(n.Name, r)
		}
	}
	for r := range x.inside {
		slices.SortFunc(x.inside[r], func(a, b string) int { return x.order[a] - x.order[b] })
	}
	return x
}

// fromBodies takes the names that have no region yet from nodes in the regions. Passes call a change of layout after the node
// that wants it, so nodes that move elements name only those that do nothing else in the file.
func (x *names) fromBodies(regions *ir.Graph, computes map[*ir.Node][]*ir.Node, wanted func(*ir.Node) bool) {
	fresh := map[string]bool{}
	for _, n := range regions.Nodes {
		for _, m := range n.Region.Body.Nodes {
			name := original(m.Name)
			if _, ours := x.order[name]; !ours || !wanted(m) || len(x.regions[name]) > 0 && !fresh[name] {
				continue
			}
			for _, r := range computes[n] {
				fresh[name] = true
				x.add(name, r)
			}
		}
	}
}

func moves(n *ir.Node) bool { return n.Op.Kind == ir.KindMovement || n.Op.Name == "Cast" }

// alike returns the region that computes the numbers of a node of the file, at their place in the file or with the channels
// last, alone or with others behind and in front of them; nil if there is none.
func (x *names) alike(n *ir.Node, values, exact map[string]*ir.Array, was map[string]string) *ir.Node {
	if len(n.Outputs) != 1 || values[n.Outputs[0].Name] == nil {
		return nil
	}
	a := values[n.Outputs[0].Name]
	forms := [][]float64{a.Floats()}
	if a.Rank() == 4 {
		forms = append(forms, channelsLast(a))
	}
	for _, r := range x.all {
		for _, v := range r.Outputs {
			if y := exact[was[v.Name]]; y != nil {
				for _, f := range forms {
					if contains(y.Floats(), f) {
						return r
					}
				}
			}
		}
	}
	return nil
}

func channelsLast(a *ir.Array) []float64 {
	xs := a.Floats()
	out := make([]float64, len(xs))
	c, inner := a.Shape[1], a.Shape[2]*a.Shape[3]
	for i, x := range xs {
		b, k, at := i/(c*inner), i/inner%c, i%inner
		out[(b*inner+at)*c+k] = x
	}
	return out
}

// short is the length up to which numbers are looked for among others.
const short = 1 << 12

// contains reports whether numbers stand somewhere in a row, up to what rounding constants to f32 does to them. Few numbers, and
// numbers that are all the same, prove nothing.
func contains(in, xs []float64) bool {
	if len(xs) < 8 || len(xs) > len(in) || len(xs) > short && len(xs) != len(in) || !slices.ContainsFunc(xs, func(x float64) bool { return x != xs[0] }) {
		return false
	}
	near := 1e-5 * norm(xs) / math.Sqrt(float64(len(xs)))
	for from := range len(in) - len(xs) + 1 {
		same := true
		for i, x := range xs {
			if same = math.Abs(in[from+i]-x) <= near; !same {
				break
			}
		}
		if same {
			return true
		}
	}
	return false
}

func (x *names) add(name string, r *ir.Node) {
	if !slices.Contains(x.regions[name], r) {
		x.regions[name] = append(x.regions[name], r)
		x.inside[r] = append(x.inside[r], name)
	}
}

// launched maps each region to those that have a launch: itself, or what a view shows.
func launched(g *ir.Graph) map[*ir.Node][]*ir.Node {
	out := map[*ir.Node][]*ir.Node{}
	for _, n := range g.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			out[n] = []*ir.Node{n}
			continue
		}
		for _, v := range n.Inputs {
			if v.Def != nil {
				out[n] = append(out[n], out[v.Def]...)
			}
		}
	}
	return out
}

func producers(n *ir.Node) (out []*ir.Node) {
	for _, v := range n.Inputs {
		if v != nil && v.Def != nil {
			out = append(out, v.Def)
		}
	}
	return out
}

// nearest are the first nodes on each way from n that are wanted.
func nearest(n *ir.Node, wanted func(*ir.Node) bool, next func(*ir.Node) []*ir.Node) (out []*ir.Node) {
	seen := map[*ir.Node]bool{n: true}
	for todo := next(n); len(todo) > 0; todo = todo[1:] {
		switch m := todo[0]; {
		case seen[m]:
		case wanted(m):
			seen[m] = true
			out = append(out, m)
		default:
			seen[m] = true
			todo = append(slices.Clone(todo), next(m)...)
		}
	}
	return out
}

// choose returns the regions of the nodes and values that patterns name: names of the file, in which * and ? stand for any
// text and any character. "all", or no pattern, are all regions.
func (x *names) choose(patterns []string) (map[*ir.Node]bool, error) {
	out := map[*ir.Node]bool{}
	if len(patterns) == 0 || slices.Equal(patterns, []string{"all"}) {
		for _, r := range x.all {
			out[r] = true
		}
		return out, nil
	}
	for _, p := range patterns {
		text := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(p))
		is, err := regexp.Compile("^" + text + "$")
		if err != nil {
			return nil, err
		}
		found, why := false, ""
		take := func(name, node string) {
			if !is.MatchString(name) {
				return
			}
			for _, r := range x.regions[node] {
				out[r], found = true, true
			}
			if aside, ok := x.aside[node]; ok && len(x.regions[node]) == 0 {
				why = fmt.Sprintf("%q %s", name, aside)
			}
		}
		for _, n := range x.source.Nodes {
			take(n.Name, n.Name)
			for _, v := range n.Outputs {
				take(v.Name, n.Name)
			}
		}
		for _, v := range x.source.Inputs {
			take(v.Name, v.Name)
		}
		switch {
		case found:
		case why != "":
			return nil, fmt.Errorf("--trace %s: %s", p, why)
		default:
			return nil, fmt.Errorf("--trace %s: the file has no node or value of that name; near: %s", p, strings.Join(x.near(p), ", "))
		}
	}
	return out, nil
}

// near are up to five names of the file that are most like one.
func (x *names) near(name string) []string {
	type candidate struct {
		name string
		far  int
	}
	var all []candidate
	seen := map[string]bool{}
	see := func(s string) {
		if s == "" || seen[s] {
			return
		}
		seen[s] = true
		all = append(all, candidate{s, distance(strings.ToLower(strings.Trim(name, "*?")), strings.ToLower(s))})
	}
	for _, n := range x.source.Nodes {
		if len(x.regions[n.Name]) == 0 {
			continue
		}
		see(n.Name)
		for _, v := range n.Outputs {
			see(v.Name)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Or(a.far-b.far, len(a.name)-len(b.name)) })
	var out []string
	for _, c := range all[:min(5, len(all))] {
		out = append(out, c.name)
	}
	return out
}

// distance is the least number of characters to insert, delete or replace that make a part of b of a (Sellers, The theory and
// computation of evolutionary distances, 1980).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return slices.Min(row)
}
