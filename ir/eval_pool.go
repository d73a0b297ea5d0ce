package ir

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/parallel"
)

// evalPool walks the windows of MaxPool, AveragePool and LpPool.
func evalPool(n *Node, in []*Array) ([]*Array, error) {
	x, out := in[0], NewArray(n.Outputs[0].Type)
	kernel := n.Attrs.Ints("kernel")
	ws, err := n.mustWindows(kernel)
	if err != nil {
		return nil, err
	}
	xi, yi := n.imageOf(x.Shape), n.imageOf(out.Shape)
	_, ch := n.spatial()
	channels, taps := x.Shape[ch], grid(kernel)
	positions := T(Bool, yi.size...).Numel()
	results := []*Array{out}
	var indices *Array
	if n.Attrs.Bool("indices") {
		indices = NewArray(n.Outputs[1].Type)
		results = append(results, indices)
	}
	p := pool{node: n, x: x, out: out, indices: indices}
	parallel.Ranges(positions, 1, func(lo, hi int) {
		c := newCursor(yi.size, lo, yi.spatial)
		offsets := make([]int, len(taps))
		for pos := lo; pos < hi; pos++ {
			tapOffsets(offsets, taps, ws, c.index, xi.spatial)
			divisor := poolDivisor(n, offsets, taps, ws, c.index)
			for bc := range x.Shape[0] * channels {
				b, ch := bc/channels, bc%channels
				p.window(offsets, b*xi.batch+ch*xi.channel, b*yi.batch+ch*yi.channel+c.at[0], divisor)
			}
			c.next()
		}
	})
	if indices != nil && n.Attrs.Bool("column_major") {
		for i, v := range indices.I {
			indices.I[i] = columnMajor(int(v), xi.size)
		}
	}
	return results, nil
}

// poolDivisor is the number of taps that an average counts: those inside the input, with include_pad also those in the
// padding, but never those that ceil adds beyond it.
func poolDivisor(n *Node, offsets []int, taps [][]int, ws []window, at []int) float64 {
	count := 0
	for t, o := range offsets {
		inside := true
		for i, w := range ws {
			inside = inside && at[i]*w.stride+taps[t][i]*w.dilation < w.begin+w.in+w.end
		}
		if o >= 0 || inside && n.Attrs.Bool("include_pad") {
			count++
		}
	}
	return float64(count)
}

type pool struct {
	node            *Node
	x, out, indices *Array
}

// window computes the output at position to from the taps at base+offset.
func (p *pool) window(offsets []int, base, to int, divisor float64) {
	if p.node.Op.Name == "MaxPool" {
		p.maximum(offsets, base, to)
		return
	}
	s, e := 0.0, float64(p.node.Attrs.Int("p", 2))
	lp := p.node.Op.Name == "LpPool"
	for _, o := range offsets {
		switch {
		case o < 0:
		case lp:
			s += pow(math.Abs(p.x.F[base+o]), e)
		default:
			s += p.x.F[base+o]
		}
	}
	if lp {
		p.out.F[to] = pow(s, 1/e)
	} else {
		p.out.F[to] = s / divisor
	}
}

func (p *pool) maximum(offsets []int, base, to int) {
	best := -1
	for _, o := range offsets {
		if o >= 0 && (best < 0 || p.x.less(best, base+o)) {
			best = base + o
		}
	}
	switch {
	case best < 0 && p.out.F != nil:
		p.out.F[to] = math.Inf(-1)
	case best < 0:
		p.out.I[to] = leastInt(p.out.DType)
	default:
		p.out.copyFrom(to, p.x, best, 1)
	}
	if p.indices != nil {
		p.indices.I[to] = int64(best)
	}
}

// columnMajor renumbers an offset into an image so that its first spatial dimension varies fastest.
func columnMajor(at int, size []int) int64 {
	plane := T(Bool, size...).Numel()
	rest, out, step := at%plane, 0, 1
	s := strides(size)
	for i, d := range size {
		out += rest / s[i] % d * step
		step *= d
	}
	return int64(at - at%plane + out)
}
