package calibrate

import (
	"maps"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Assignment maps layers, by site name, to formats.
type Assignment map[string]precision.Layer

// of is the format of a site; Half where it is not listed.
func (a Assignment) of(site string) precision.Layer {
	if l, ok := a[site]; ok {
		return l
	}
	return precision.Half
}

// narrows reports whether any layer is quantised.
func (a Assignment) narrows() bool {
	for _, f := range a {
		if f != precision.Half {
			return true
		}
	}
	return false
}

// storage is what a plan says of values that are stored, or rounded when read, as an operand of a layer.
func storage(o precision.Operand, scale float64) ir.Storage {
	s := ir.Storage{DType: ir.DTypeOf(o.Format), Scale: scale}
	if o.Blocks {
		s.Block = ir.BlockSize
	}
	if o.HiLo {
		s.SplitTerms = 2
	}
	return s
}

// stores says how the values between regions are stored.
type stores struct {
	group   func(v *ir.Value) *ir.Value
	half    map[*ir.Value]bool              // stored in 16 bits, unless its group is narrow
	narrow  map[*ir.Value]precision.Operand // groups stored in less
	read    map[string]bool                 // sites that round their activations as they read them
	formats Assignment                      // as asked for, but for what blocks and unshared say
}

// store decides which values are stored in less than 16 bits: those that only layers of that format multiply and nothing
// else reads.
func (c *Calibration) store(a Assignment) *stores {
	s := c.storage
	a = c.unshared(c.blocks(a))
	out := &stores{group: s.Group, half: map[*ir.Value]bool{}, narrow: map[*ir.Value]precision.Operand{}, read: map[string]bool{}, formats: a}
	wanted, refused := map[*ir.Value]precision.Operand{}, map[*ir.Value]bool{}
	producers := map[*ir.Value]int{}
	rounds := func(st *step) (precision.Operand, bool) { // activations that can be rounded one by one, when stored or when read
		if st.site == nil || !s.Matrix(st.node, st.site.X) {
			return precision.Operand{}, false
		}
		x := a.of(st.site.Name()).Activations
		return x, x.Narrow() && !x.Blocks
	}
	for _, st := range c.walk.steps {
		n := st.node
		view := n.IsFamily(ir.FamilyView)
		x, round := rounds(st)
		for i, v := range n.Inputs {
			switch {
			case v.IsConst() || view:
			case st.site == nil || i != st.site.X:
				refused[s.Group(v)] = true
			case round:
				wanted[s.Group(v)] = x
				if x.HiLo || !passes.OnlyPrologueReads(n, i) {
					refused[s.Group(v)] = true
				}
			case a.of(st.site.Name()).Activations.Blocks:
				out.narrow[s.Group(v)] = a.of(st.site.Name()).Activations
			default:
				refused[s.Group(v)] = true
			}
		}
		for _, v := range n.Outputs {
			if s.Is16Bit(v) {
				out.half[v] = true
			} else {
				refused[s.Group(v)] = true
			}
			if !view {
				producers[s.Group(v)]++
			}
		}
	}
	for r, x := range wanted {
		if !refused[r] && producers[r] == 1 {
			out.narrow[r] = x
		}
	}
	for _, st := range c.walk.steps {
		if _, round := rounds(st); round && out.narrow[s.Group(st.node.Inputs[st.site.X])].Format == nil {
			out.read[st.site.Name()] = true
		}
	}
	return out
}

// blocks is the assignment in which layers multiply activations in blocks only if all readers of those activations do.
func (c *Calibration) blocks(a Assignment) Assignment {
	out := Assignment{}
	for name, f := range a {
		if out[name] = f; !f.Activations.Blocks {
			continue
		}
		readers := c.readers[name]
		all := len(readers) > 0
		for _, r := range readers {
			all = all && a[r] == f
		}
		if !all {
			out[name] = f.WeightsOnly()
		}
	}
	return out
}

// unshared is the assignment in which layers keep activations of 16 bits where another node of their region reads them
// too, which would read them rounded.
func (c *Calibration) unshared(a Assignment) Assignment {
	out := maps.Clone(a)
	for _, st := range c.walk.steps {
		if st.site == nil || !c.storage.Matrix(st.node, st.site.X) || passes.OnlyPrologueReads(st.node, st.site.X) {
			continue
		}
		name := st.site.Name()
		switch f := a.of(name); {
		case !f.Activations.Narrow():
		case f.Weights.HiLo:
			out[name] = precision.Half
		default:
			out[name] = f.WeightsOnly()
		}
	}
	return out
}

// blockReaders finds, for every layer whose activations can be stored in blocks, all layers that read them.
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
