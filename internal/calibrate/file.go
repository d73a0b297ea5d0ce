package calibrate

import (
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// FileLayers are the layers of a graph of regions whose weights the file has quantised, which every precision keeps.
func FileLayers(g *ir.Graph) []LayerChoice {
	var out []LayerChoice
	for _, s := range passes.Sites(g) {
		if l, ok := fileLayer(&s); ok {
			out = append(out, l)
		}
	}
	return out
}

// fileLayer is the choice of a layer that the file has made. A layer that no kernel multiplies as it is quantised is
// reported too, but not kept.
func fileLayer(s *passes.Site) (l LayerChoice, ok bool) {
	file, stored, kept := s.FromFile(ir.Float16)
	if file == nil {
		return l, false
	}
	l = LayerChoice{Name: s.Node.Name, Op: s.Anchor.Op.Name, Precision: fmt.Sprintf("%v (file)", file.DType), MACs: s.MACs, Weights: s.Members * s.N * s.K, K: s.K, File: kept}
	switch {
	case !kept:
		l.Why = fmt.Sprintf("the file has %v weights with scales that no kernel multiplies: they are stored with their values", file.DType)
	case stored == file.DType:
		l.Why = "quantised in the file, and stored as there"
	default:
		l.Why = fmt.Sprintf("quantised in the file; %v holds its numbers exactly", stored)
	}
	return l, true
}
