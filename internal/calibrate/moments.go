package calibrate

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// moments are what rounding a layer needs to know about its inputs, for one member and group: second moments about the mean
// of the quantised graph's input (hat), and how the exact graph's input differs from it.
type moments struct {
	n    float64 // rows that were seen
	h    *matrix // E[x̂·x̂ᵀ]
	miss *matrix // E[x̂·(x−x̂)ᵀ]; nil: x is x̂

	mean, meanMiss []float64 // of x̂ and x−x̂

	pool *BufferPool // of the matrices
}

// leave gives the matrices back.
func (m *moments) leave() {
	if m != nil {
		m.pool.giveMatrices(m.h, m.miss)
	}
}

// patches reads rows of what an anchor multiplies: the elements that contribute to one output position.
type patches struct {
	site         *passes.Site
	k, groups    int
	positions    int
	memberStride int       // numbers from what a member reads to what the next one does; 0 where all read the same
	segments     []segment // the groups of SegmentedMatVec; nil: groups are of the same size
	inPlace      bool      // the rows of a member are contiguous
	gather       func(x []float32, member, group, position int, row []float32)
	pool         *BufferPool // of matrices; nil: they have new memory
}

// patchesOf returns nil if the anchor's rows cannot be read one by one.
func patchesOf(s *passes.Site) *patches {
	p := &patches{site: s, k: s.K, groups: 1}
	a := s.Anchor
	x, y := a.Inputs[0].Type, a.Outputs[0].Type
	if r := s.Node.Region; r.Members > 0 && (!s.Direct || r.Operands[s.X].Batched) {
		p.memberStride = x.Numel()
	}
	size := p.memberStride
	switch {
	case a.Op.Name == "MatMul" && !a.Attrs.Bool("transA") && x.Rank() > 1:
		p.positions, p.inPlace = x.Numel()/s.K, true
		p.gather = func(from []float32, member, _, position int, row []float32) {
			copy(row, from[member*size+position*s.K:])
		}
	case a.Op.Name == "Conv" && a.Attrs.String("layout", "NCHW") == "NHWC" && x.Rank() == 4:
		p.groups = a.Attrs.Int("group", 1)
		p.positions = y.Shape[0] * y.Shape[1] * y.Shape[2]
		w := a.Inputs[1].Type.Shape
		stride, pads, dilation := a.Attrs.Ints("strides"), a.Attrs.Ints("pads"), a.Attrs.Ints("dilations")
		taps, three := w[2]*w[3], w[2] == 3 && w[3] == 3                       // within the image, these are read three at a time
		p.inPlace = p.groups == 1 && taps == 1 && p.positions*s.K == x.Numel() // so that no pixel is left out
		p.gather = func(from []float32, member, group, position int, row []float32) {
			ox, oy, b := position%y.Shape[2], position/y.Shape[2]%y.Shape[1], position/y.Shape[2]/y.Shape[1]
			top, left := oy*stride[0]-pads[0], ox*stride[1]-pads[1]
			if three && top >= 0 && left >= 0 && top+2*dilation[0] < x.Shape[1] && left+2*dilation[1] < x.Shape[2] {
				pixel, line := dilation[1]*x.Shape[3], dilation[0]*x.Shape[2]*x.Shape[3]
				at := from[member*size+((b*x.Shape[1]+top)*x.Shape[2]+left)*x.Shape[3]+group*w[1]:]
				for ky := range 3 {
					first := at[ky*line:][:w[1]]
					second, third := at[ky*line+pixel:][:len(first)], at[ky*line+2*pixel:][:len(first)]
					to := row[3*ky:]
					for c, x := range first {
						d := (*[3]float32)(to[9*c:])
						d[0], d[1], d[2] = x, second[c], third[c]
					}
				}
				return
			}
			for t := range taps {
				iy, ix := top+t/w[3]*dilation[0], left+t%w[3]*dilation[1]
				if iy < 0 || ix < 0 || iy >= x.Shape[1] || ix >= x.Shape[2] {
					for c := range w[1] {
						row[c*taps+t] = 0
					}
					continue
				}
				to := row[t:]
				for c, x := range from[member*size+((b*x.Shape[1]+iy)*x.Shape[2]+ix)*x.Shape[3]+group*w[1]:][:w[1]] {
					to[c*taps] = x
				}
			}
		}
	case s.Segmented() && s.Members == 1:
		if p.segments = segmentsOf(s); p.segments == nil {
			return nil
		}
		p.groups, p.positions = len(p.segments), 1
		p.gather = func(from []float32, _, group, _ int, row []float32) {
			g := p.segments[group]
			clear(row[copy(row, from[g.from:][:g.length]):])
		}
	default:
		return nil
	}
	return p
}

// segment are neighbouring output channels that read the same part of a vector.
type segment struct{ first, count, from, length int }

// segmentsOf are the segments of a site whose channels read a part each; nil if the parts are not constant.
func segmentsOf(s *passes.Site) (out []segment) {
	var parts [2]*ir.Array // where each channel's part begins, and its length
	for i, v := range s.Anchor.Inputs[3:5] {
		if at := slices.Index(s.Node.Region.Body.Inputs, v); at >= 0 {
			v = s.Node.Inputs[at]
		}
		if !v.IsConst() {
			return nil
		}
		parts[i] = v.Const.Array()
	}
	for i := range s.N {
		from, length := int(parts[0].I[i]), int(parts[1].I[i])
		if last := len(out) - 1; last >= 0 && out[last].from == from && out[last].length == length {
			out[last].count++
		} else {
			out = append(out, segment{i, 1, from, length})
		}
	}
	return out
}

// channels are the output channels of a member and group.
func (p *patches) channels(member, group int) rows {
	if p.segments != nil {
		return rows{member: member, first: p.segments[group].first, step: 1, count: p.segments[group].count}
	}
	count := p.site.N / p.groups
	return rows{member: member, first: group * count, step: 1, count: count}
}

// Bounds of the positions from which moments are estimated: the more, the better, as long as products of columns take little
// time. Four times as many lower the error of NVFP4 layers by 2 to 4 % (2026-11-22).
const (
	rowsPerWeight = 4
	leastRows     = 2048
	mostRows      = 8192
	rowsWork      = 1 << 30 // multiply-adds
)

// rows is the number of positions of one array from which moments are estimated.
func (p *patches) rows(arrays int) int {
	cheap := min(mostRows, max(leastRows, rowsWork/(p.k*p.k)))
	return min(p.positions, max(1, max(cheap, rowsPerWeight*p.k)/arrays))
}

// columns returns rows of the arrays, transposed: k rows with one element a position, the positions of one array together. They
// are less the mean of what is not held out, since roundings of what is held out must not reach the others.
func (p *patches) columns(arrays []*ir.Tensor, held []bool, member, group int) *matrix {
	count := p.rows(len(arrays))
	out := p.pool.matrix(p.k, count*len(arrays))
	parallel.For(len(arrays), func(i int) {
		const some = 16 // positions whose elements are turned at a time
		from, block := floats(arrays[i]), make([]float32, some*p.k)
		for first := 0; first < count; first += some {
			size := min(some, count-first)
			for j := range size {
				// Even steps; the offset moves with the input, so that inputs are not all sampled at the same pixels.
				at := ((first+j)*p.positions/count + i*7) % p.positions
				p.gather(from, member, group, at, block[j*p.k:][:p.k])
			}
			for k := range p.k {
				to := out.row(k)[i*count+first:][:size]
				for j := range to {
					to[j] = block[j*p.k+k]
				}
			}
		}
	})
	parallel.For(p.k, func(k int) {
		row := out.row(k)
		total, seen := 0.0, 0
		for i := range arrays {
			if held == nil || !held[i] {
				total, seen = total+sum(row[i*count:][:count]), seen+count
			}
		}
		mean := total / float64(seen)
		for i, x := range row {
			row[i] = float32(float64(x) - mean)
		}
	})
	return out
}

// sum adds in float64.
func sum(xs []float32) float64 {
	total := 0.0
	for _, x := range xs {
		total += float64(x)
	}
	return total
}

// measure estimates the moments from what the exact and the quantised graph yield, over the inputs that a rounding is fitted
// to, and, to try it, over those held out; of these nil if there are none. Without exact, that is as hat.
func (p *patches) measure(ctx context.Context, exact, hat []*ir.Tensor, held []bool, member, group int, try bool) (fitted, tried *moments) {
	x, d := p.columns(hat, held, member, group), (*matrix)(nil)
	if exact != nil {
		d = p.columns(exact, held, member, group)
		for i, v := range x.a {
			d.a[i] -= v
		}
	}
	defer p.pool.giveMatrices(x, d)
	count := p.rows(len(hat))
	if held == nil {
		return p.sums(ctx, x, d, count, func(int) bool { return true }).centred(), nil
	}
	fitted = p.sums(ctx, x, d, count, func(i int) bool { return !held[i] })
	if !try {
		return fitted.centred(), nil
	}
	tried = p.sums(ctx, x, d, count, func(i int) bool { return held[i] })
	return fitted.centred(), tried.centred()
}

// sums are the moments of the arrays that take accepts, about 0.
func (p *patches) sums(ctx context.Context, x, d *matrix, count int, take func(input int) bool) *moments {
	m := &moments{h: p.pool.zeros(p.k, p.k), mean: make([]float64, p.k), meanMiss: make([]float64, p.k), pool: p.pool}
	if d != nil {
		m.miss = p.pool.zeros(p.k, p.k)
	}
	var parts [][2]int
	for i := range x.cols / count {
		if !take(i) {
			continue
		}
		m.n += float64(count)
		if last := len(parts) - 1; last >= 0 && parts[last][1] == i*count {
			parts[last][1] += count
		} else {
			parts = append(parts, [2]int{i * count, (i + 1) * count})
		}
	}
	batches(ctx, p.k, func(lo, hi int) {
		for _, part := range parts {
			addDots(m.h, 0, 1/m.n, x, lo, hi, x, 0, hi, part[0], part[1])
			for k := lo; k < hi; k++ {
				m.mean[k] += sum(x.row(k)[part[0]:part[1]]) / m.n
			}
			if d == nil {
				continue
			}
			addDots(m.miss, 0, 1/m.n, x, lo, hi, d, 0, p.k, part[0], part[1])
			for k := lo; k < hi; k++ {
				m.meanMiss[k] += sum(d.row(k)[part[0]:part[1]]) / m.n
			}
		}
	})
	m.h.mirror()
	return m
}

// centred moves the moments to the means, in place.
func (m *moments) centred() *moments {
	subtract := func(from *matrix, mean []float64) {
		for i, x := range m.mean {
			row := from.row(i)
			for j, y := range mean {
				row[j] -= float32(x * y)
			}
		}
	}
	if subtract(m.h, m.mean); m.miss != nil {
		subtract(m.miss, m.meanMiss)
	}
	return m
}
