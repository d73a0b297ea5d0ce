package compile

import (
	"path"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/ir"
)

// RegionNames are what the launches of a run compute on the first target; "" for a copy.
func (r *Result) RegionNames() []string {
	out := make([]string, len(r.regions))
	for i, n := range r.regions {
		if n != nil {
			out[i] = RegionName(n)
		}
	}
	return out
}

// Original cuts off what a pass added to a name.
func Original(name string) string {
	name, _, _ = strings.Cut(name, "~")
	return name
}

// RegionName is what a region is called: a fused region by all its parts, and each of these by all its members.
func RegionName(n *ir.Node) string {
	var all []string
	for _, part := range n.Parts() {
		all = append(all, console.Braces(memberNames(part)))
	}
	return strings.Join(all, " + ")
}

// memberNames are the nodes of the file that a region's members are called after: of one that batches isomorphic regions
// the same node of each. Files list a tower after the other, or the towers' nodes in turn.
func memberNames(part *ir.Node) []string {
	name, members := Original(part.Name), part.Region.Count()
	for _, m := range bodyNodes(part.Region) {
		from := m.From
		at := slices.IndexFunc(from, func(o ir.Origin) bool { return o.Name == name })
		if at >= 0 && m.Op.Name == "SegmentedMatVec" {
			return grouped(from, name)
		}
		if at < 0 || members == 1 || len(from)%members != 0 {
			continue
		}
		n := len(from) / members
		var towers, turns []string
		for i := range members {
			towers = append(towers, from[at%n+i*n].Name)
			turns = append(turns, from[at/members*members+i].Name)
		}
		if alike(turns) && !alike(towers) {
			return turns
		}
		return towers
	}
	return []string{name}
}

// grouped are the layers of a grouped GEMV whose path ends as a name does.
func grouped(from []ir.Origin, name string) (out []string) {
	for _, o := range from {
		if alike([]string{o.Name, name}) {
			out = append(out, o.Name)
		}
	}
	return out
}

// bodyNodes are the nodes of a region's body, and of the regions in it.
func bodyNodes(r *ir.Region) (out []*ir.Node) {
	for _, m := range r.Body.Nodes {
		if out = append(out, m); m.Region != nil {
			out = append(out, bodyNodes(m.Region)...)
		}
	}
	return out
}

// alike reports whether paths end in the same segment, as the same node of several towers does.
func alike(names []string) bool {
	for _, n := range names {
		if path.Base(n) != path.Base(names[0]) {
			return false
		}
	}
	return true
}
