package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Values stored in blocks: elements and a tensor of scales, both of which block-scaled mma reads.

// BlockReaders returns the sites that would read v, and what shares its bytes, in blocks, or the reason why v cannot be
// stored so. It does not check that their weights are stored in blocks too.
func (s *Storage) BlockReaders(v *ir.Value) ([]Site, error) { return s.w.blockReaders(v) }

func (w *storageAssigner) blockReaders(v *ir.Value) ([]Site, error) {
	group := w.find(v)
	if w.fixed[group] || v.Type.DType != ir.Float32 {
		return nil, fmt.Errorf("%%%s keeps its type: it is an input or output, or other than f32", v.Name)
	}
	if c := v.Type.Shape; len(c) < 2 || c[len(c)-1]%ir.BlockSize != 0 {
		return nil, fmt.Errorf("%%%s is %v: its channels are no multiple of %d", v.Name, v.Type, ir.BlockSize)
	}
	var sites []Site
	producers := 0
	for _, n := range w.g.Nodes {
		view := n.IsFamily(ir.FamilyView)
		if slices.ContainsFunc(n.Outputs, func(o *ir.Value) bool { return w.find(o) == group }) {
			switch {
			case view && !keepsBlocks(n):
				return nil, fmt.Errorf("%%%s is viewed in other blocks by %s", v.Name, n.Name)
			case !view && len(n.Outputs) > 1:
				return nil, fmt.Errorf("%%%s is one of several outputs of %s", v.Name, n.Name)
			case !view:
				producers++
			}
		}
		if view {
			continue
		}
		for i, x := range n.Inputs {
			if x.IsConst() || w.find(x) != group {
				continue
			}
			s, ok := SiteOf(n)
			if !ok || i != s.X || !s.readsBlocks() {
				return nil, fmt.Errorf("%%%s is read by %s, which multiplies no rows of it by constant weights", v.Name, n.Name)
			}
			sites = append(sites, s)
		}
	}
	if producers != 1 || len(sites) == 0 {
		return nil, fmt.Errorf("%%%s has %d producers and %d readers", v.Name, producers, len(sites))
	}
	return sites, nil
}

// readsBlocks reports whether the anchor, and it alone, multiplies the site's activations along their last axis.
func (s *Site) readsBlocks() bool {
	if !s.Direct || !OnlyPrologueReads(s.Node, s.X) || !s.Node.IsFamily(ir.FamilyContraction) || len(s.Node.Region.Body.Uses()[s.Node.Region.Body.Inputs[s.X]]) != 1 {
		return false
	}
	return s.Geometry.Group == 1 && s.Geometry.InAxis == s.Anchor.Inputs[0].Type.Rank()-1
}

// keepsBlocks reports whether a view leaves every 16 neighbours of one value together.
func keepsBlocks(n *ir.Node) bool {
	whole := func(shape []int) bool { return len(shape) > 0 && shape[len(shape)-1]%ir.BlockSize == 0 }
	return len(n.Inputs) == 1 && !slices.ContainsFunc(n.Region.Body.Nodes, func(m *ir.Node) bool { return m.Op.Name != "Reshape" }) &&
		whole(n.Inputs[0].Type.Shape) && whole(n.Outputs[0].Type.Shape)
}

// checkBlocks reports why the plan cannot store v in blocks.
func (w *storageAssigner) checkBlocks(v *ir.Value) error {
	sites, err := w.blockReaders(v)
	if err != nil {
		return fmt.Errorf("activations in blocks: %w", err)
	}
	for _, s := range sites {
		if w.plan.Layers[s.Name()].Blocks == nil {
			return fmt.Errorf("activations in blocks: %%%s is read by %s, whose weights are not in blocks", v.Name, s.Name())
		}
	}
	return nil
}
