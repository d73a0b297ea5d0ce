package calibrate

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Format is how a layer's operands are stored.
type Format struct {
	Weights     ir.DType // e4m3, e2m1, or f16
	Activations ir.DType // e4m3, e2m1 or f16
}

// Formats of layers.
var (
	Half   = Format{ir.Float16, ir.Float16}
	FP8    = Format{ir.Float8E4M3FN, ir.Float8E4M3FN}
	FP8W   = Format{ir.Float8E4M3FN, ir.Float16}  // weights only
	NVFP4  = Format{ir.Float4E2M1, ir.Float4E2M1} // block-scaled mma
	NVFP4W = Format{ir.Float4E2M1, ir.Float16}    // weights only
)

// formatOf converts a row of the table of precisions to the IR's element types.
func formatOf(l precision.Layer) Format {
	w, _ := ir.ParseDType(l.Weights)
	a, _ := ir.ParseDType(l.Activations)
	return Format{w, a}
}

// String is the name in reports.
func (f Format) String() string {
	for _, l := range precision.Layers() {
		if formatOf(l) == f {
			return l.Name
		}
	}
	return fmt.Sprintf("%s weights, %s activations", f.Weights, f.Activations)
}

// Assignment maps layers, by site name, to formats; layers not listed are Half.
type Assignment map[string]Format

// stores says how the values between regions are stored.
type stores struct {
	group   func(v *ir.Value) *ir.Value
	half    map[*ir.Value]bool // stored in 16 bits
	byte1   map[*ir.Value]bool // groups stored as e4m3
	blocks  map[*ir.Value]bool // groups stored as NVFP4
	read    map[string]bool    // sites that round their activations to e4m3 as they read them
	formats Assignment         // as asked for; layers whose activations cannot be NVFP4 have NVFP4 weights only
}

// store decides which values are stored as one byte or in blocks: those that only layers of that format multiply and
// nothing else reads.
func (c *Calibration) store(a Assignment) *stores {
	s := c.storage
	out := &stores{group: s.Group, half: map[*ir.Value]bool{}, byte1: map[*ir.Value]bool{}, blocks: map[*ir.Value]bool{}, read: map[string]bool{}, formats: c.blocks(a)}
	wanted, refused := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	producers := map[*ir.Value]int{}
	eight := func(st *step) bool {
		return st.site != nil && a[st.site.Name()].Activations == ir.Float8E4M3FN && s.Matrix(st.node, st.site.X)
	}
	for _, st := range c.walk.steps {
		n := st.node
		view := n.IsFamily(ir.FamilyView)
		for i, v := range n.Inputs {
			switch {
			case v.IsConst() || view:
			case st.site != nil && i == st.site.X && out.formats[st.site.Name()] == NVFP4:
				out.blocks[s.Group(v)] = true
			case eight(st) && i == st.site.X:
				wanted[s.Group(v)] = true
				if !passes.OnlyFront(n, i) {
					refused[s.Group(v)] = true
				}
			default:
				refused[s.Group(v)] = true
			}
		}
		for _, v := range n.Outputs {
			if s.Narrow(v) {
				out.half[v] = true
			} else {
				refused[s.Group(v)] = true
			}
			if !view {
				producers[s.Group(v)]++
			}
		}
	}
	for r := range wanted {
		if !refused[r] && producers[r] == 1 {
			out.byte1[r] = true
		}
	}
	for _, st := range c.walk.steps {
		if eight(st) && !out.byte1[s.Group(st.node.Inputs[st.site.X])] {
			out.read[st.site.Name()] = true
		}
	}
	return out
}

// blocks is the assignment in which layers multiply NVFP4 activations only if all readers of those activations do.
func (c *Calibration) blocks(a Assignment) Assignment {
	out := Assignment{}
	for name, f := range a {
		if out[name] = f; f != NVFP4 {
			continue
		}
		out[name] = NVFP4W
		readers := c.readers[name]
		all := len(readers) > 0
		for _, r := range readers {
			all = all && a[r] == NVFP4
		}
		if all {
			out[name] = NVFP4
		}
	}
	return out
}

// blockReaders finds, for every layer whose activations can be NVFP4, all layers that read them.
func blockReaders(w *walk, s *passes.Storage) map[string][]string {
	out := map[string][]string{}
	for _, st := range w.steps {
		if st.node.IsFamily(ir.FamilyView) || len(st.node.Outputs) != 1 {
			continue
		}
		sites, err := s.BlockReaders(st.node.Outputs[0])
		if err != nil {
			continue // it stays in 16 bits
		}
		var names []string
		for _, r := range sites {
			names = append(names, r.Name())
		}
		for _, name := range names {
			out[name] = names
		}
	}
	return out
}
