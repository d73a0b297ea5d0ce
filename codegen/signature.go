package codegen

import (
	"crypto/sha256"
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
)

// Signature names an entry's launches for those who choose their schedules as a whole.
func (e *Entry) Signature() string {
	if e.Prefix == nil {
		return Signature(e.Graph)
	}
	return fmt.Sprintf("%s behind %d of %s", Signature(e.Graph), e.Prefix.Repeats, Signature(e.Prefix.Graph))
}

// Signature names a graph of regions for those who choose its schedules as a whole: whatever has it has the same
// launches.
func Signature(g *ir.Graph) string {
	h := sha256.New()
	id := map[*ir.Value]int{}
	for _, v := range g.Inputs {
		id[v] = len(id)
		fmt.Fprint(h, v.Type, " ")
	}
	regions := 0
	for _, n := range g.Nodes {
		fmt.Fprint(h, "\n", n.Op.Name, n.Attrs.Key())
		for _, v := range n.Inputs {
			switch {
			case v == nil:
			case v.IsConst():
				fmt.Fprint(h, " c", v.Type)
			default:
				fmt.Fprint(h, " ", id[v])
			}
		}
		for _, v := range n.Outputs {
			id[v] = len(id)
			fmt.Fprint(h, " ", v.Type)
		}
		if r := n.Region; r != nil {
			regions++
			fmt.Fprintln(h, r.Family, r.Members, r.Body.Signature())
			for _, o := range r.Operands {
				o.Scale, o.Read.Scale = 1, 1
				fmt.Fprint(h, o, " ")
			}
			for _, s := range r.Results {
				s.Scale = 1
				fmt.Fprint(h, s, " ")
			}
		}
	}
	for _, v := range g.Outputs {
		fmt.Fprint(h, " ", id[v])
	}
	return fmt.Sprintf("%d regions #%x", regions, h.Sum(nil)[:8])
}
