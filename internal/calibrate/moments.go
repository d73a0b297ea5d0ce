package calibrate

import (
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// moments are what a layer's rounding needs to know of its inputs, of one member and group: second moments about the mean
// of what the quantised graph yields (hat), and how the exact graph's input differs from that.
type moments struct {
	h    *square // E[x̂·x̂ᵀ]
	miss *square // E[(x−x̂)·x̂ᵀ]; nil: not known
}

// patches reads rows of what an anchor multiplies: the elements that meet one output position.
type patches struct {
	site      *passes.Site
	k, groups int
	positions int
	gather    func(a *ir.Array, member, group, position int, row []float64)
}

// patchesOf returns nil where the anchor's rows cannot be read one by one.
func patchesOf(s *passes.Site) *patches {
	p := &patches{site: s, k: s.K, groups: 1}
	a := s.Anchor
	x, y := a.Inputs[0].Type, a.Outputs[0].Type
	size := x.Numel()
	if s.Region.Attrs.Int("members", 0) == 0 {
		size = 0
	}
	switch {
	case a.Op.Name == "MatMul" && !a.Attrs.Bool("transA") && x.Rank() > 1:
		p.positions = x.Numel() / s.K
		p.gather = func(arr *ir.Array, member, _, position int, row []float64) {
			copy(row, arr.F[member*size+position*s.K:])
		}
	case a.Op.Name == "Conv" && a.Attrs.String("layout", "NCHW") == "NHWC" && x.Rank() == 4:
		p.groups = a.Attrs.Int("group", 1)
		p.positions = y.Shape[0] * y.Shape[1] * y.Shape[2]
		w := a.Inputs[1].Type.Shape
		stride, pads, dilation := a.Attrs.Ints("strides"), a.Attrs.Ints("pads"), a.Attrs.Ints("dilations")
		taps := w[2] * w[3]
		p.gather = func(arr *ir.Array, member, group, position int, row []float64) {
			ox, oy, b := position%y.Shape[2], position/y.Shape[2]%y.Shape[1], position/y.Shape[2]/y.Shape[1]
			for t := range taps {
				iy := oy*stride[0] - pads[0] + t/w[3]*dilation[0]
				ix := ox*stride[1] - pads[1] + t%w[3]*dilation[1]
				if iy < 0 || ix < 0 || iy >= x.Shape[1] || ix >= x.Shape[2] {
					for c := range w[1] {
						row[c*taps+t] = 0
					}
					continue
				}
				from := arr.F[member*size+((b*x.Shape[1]+iy)*x.Shape[2]+ix)*x.Shape[3]+group*w[1]:]
				for c := range w[1] {
					row[c*taps+t] = from[c]
				}
			}
		}
	default:
		return nil
	}
	return p
}

// rowsPerWeight and leastRows bound the positions from which moments are estimated.
const (
	rowsPerWeight = 4
	leastRows     = 2048
)

// columns returns rows of the arrays about their mean, transposed: k columns of one element a row.
func (p *patches) columns(arrays []*ir.Array, member, group int) [][]float64 {
	each := min(p.positions, max(1, max(leastRows, rowsPerWeight*p.k)/len(arrays)))
	rows := each * len(arrays)
	out := make([][]float64, p.k)
	for k := range out {
		out[k] = make([]float64, rows)
	}
	row := make([]float64, p.k)
	for i, a := range arrays {
		for j := range each {
			// Even steps; the offset moves with the input so that not always the same pixels are seen.
			at := (j*p.positions/each + i*7) % p.positions
			p.gather(a, member, group, at, row)
			for k, x := range row {
				out[k][i*each+j] = x
			}
		}
	}
	for _, c := range out {
		mean := 0.0
		for _, x := range c {
			mean += x
		}
		mean /= float64(rows)
		for i := range c {
			c[i] -= mean
		}
	}
	return out
}

// measure estimates the moments from what the exact and the quantised graph yield.
func (p *patches) measure(exact, hat []*ir.Array, member, group int) *moments {
	x := p.columns(hat, member, group)
	m := &moments{h: newSquare(p.k), miss: newSquare(p.k)}
	d := p.columns(exact, member, group)
	n := float64(len(x[0]))
	for k := range d {
		axpy(-1, x[k], d[k])
	}
	each(p.k, func(i int) {
		for j := range p.k {
			if j <= i {
				m.h.set(i, j, dot(x[i], x[j])/n)
			}
			m.miss.set(i, j, dot(d[i], x[j])/n)
		}
	})
	for i := range p.k {
		for j := range i {
			m.h.set(j, i, m.h.at(i, j))
		}
	}
	return m
}
