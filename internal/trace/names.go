package trace

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// names says which nodes of the file each region computes, and where a node or value of the file is computed.
type names struct {
	source  *ir.Graph
	all     []*ir.Node            // regions that have a launch
	inside  map[*ir.Node][]string // nodes of the file in their order
	regions map[string][]*ir.Node // that a node of the file is inside of
	aside   map[string]string     // why a node or input has no region
}

// label is the name of the node of the file that a node of the imported graph stands for.
func label(n *ir.Node) string {
	if len(n.From) > 0 {
		return n.From[0].Name
	}
	return n.Name
}

// newNames finds the names. A node that vanished, since it only moves elements or joined another, is where its result is read
// next.
func newNames(source, regions *ir.Graph) *names {
	x := &names{source: source, inside: map[*ir.Node][]string{}, regions: map[string][]*ir.Node{}, aside: map[string]string{}}
	computes := launched(regions)
	for _, n := range regions.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			x.all = append(x.all, n)
		}
		for _, o := range n.Region.Origins() {
			for _, r := range computes[n] {
				x.add(o.Name, r)
			}
		}
	}
	named := func(n *ir.Node) bool { return len(x.regions[label(n)]) > 0 }
	reads, live := map[*ir.Node][]*ir.Node{}, map[*ir.Value]bool{}
	for _, v := range source.Inputs {
		live[v], x.aside[v.Name] = true, "is an input, which no kernel computes"
	}
	order, lost := map[string]int{}, []*ir.Node{}
	for i, n := range source.Nodes {
		if _, ok := order[label(n)]; !ok {
			order[label(n)] = i
		}
		computed := slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return live[v] })
		for _, v := range n.Outputs {
			live[v] = computed
		}
		for _, m := range producers(n) {
			reads[m] = append(reads[m], n)
		}
		switch {
		case named(n):
		case computed:
			lost = append(lost, n)
		default:
			x.aside[label(n)] = "depends on no input: its value is computed when compiling"
		}
	}
	found := make([][]*ir.Node, len(lost)) // of all, before one is named by another
	for i, n := range lost {
		near := nearest(n, named, func(n *ir.Node) []*ir.Node { return reads[n] })
		if len(near) == 0 {
			near = nearest(n, named, producers)
		}
		for _, m := range near {
			found[i] = append(found[i], x.regions[label(m)]...)
		}
	}
	for i, n := range lost {
		for _, r := range found[i] {
			x.add(label(n), r)
		}
	}
	for _, list := range x.inside {
		slices.SortStableFunc(list, func(a, b string) int { return order[a] - order[b] })
	}
	return x
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
			take(n.Name, label(n))
			take(label(n), label(n))
			for _, v := range n.Outputs {
				take(v.Name, label(n))
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
		if len(x.regions[label(n)]) == 0 {
			continue
		}
		see(label(n))
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
