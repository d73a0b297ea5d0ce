package roundoff

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// layerNorm is the rule of (x-mean)/deviation·scale+bias. With v = x-mean, deviation σ = |(v/√n, √ε)| and an operand that
// moves x by up to r, v moves by e ≤ r + mean(r), and σ by s ≤ √mean(r²), as the length of a vector does, and to √ε at the least. So
// v'/σ' - v/σ = (v'-v)/σ' + (v/σ)·(σ-σ')/σ' is at most (e + |v/σ|·s)/max(√ε, σ-s), however great r is.
func layerNorm(n *ir.Node, in []Range) ([]Range, error) {
	x, r := split(in[0])
	at := []*ir.Array{x}
	for _, p := range in[1:] {
		if p.Lo != nil && !p.exact() {
			return nil, fmt.Errorf("parameters are not known exactly")
		}
		at = append(at, p.Lo)
	}
	mid, err := ir.EvaluateNode(n, at)
	if err != nil {
		return nil, err
	}
	size := ir.T(ir.Bool, x.Shape[n.Attrs.Int("axis", 0):]...).Numel()
	gain := func(i, k int) float64 {
		if len(at) <= k || at[k] == nil {
			return float64(2 - k) // a scale of 1, a bias of 0
		}
		return math.Abs(at[k].F[i%at[k].Len()])
	}
	radius := make([]float64, x.Len())
	sums := sumError(size)
	for base := 0; base < x.Len(); base += size {
		mean, abs, variance, carried, spread := 0.0, 0.0, 0.0, 0.0, 0.0
		for i := base; i < base+size; i++ {
			mean += x.F[i] / float64(size)
			abs += math.Abs(x.F[i]) / float64(size)
			if r != nil {
				carried += r.F[i] / float64(size)
				spread += r.F[i] * r.F[i] / float64(size)
			}
		}
		for i := base; i < base+size; i++ {
			variance += (x.F[i] - mean) * (x.F[i] - mean) / float64(size)
		}
		eps := n.Attrs.Float("epsilon", 1e-5)
		deviation := math.Sqrt(variance + eps)
		center := carried + sums*abs // error of the mean
		s := math.Sqrt(spread) + center
		least := math.Max(math.Sqrt(eps), deviation-s)
		for i := base; i < base+size; i++ {
			z := math.Abs(x.F[i]-mean) / deviation
			e := center + unit*math.Abs(x.F[i])
			if r != nil {
				e += r.F[i]
			}
			moved := (e + z*s) / least
			radius[i] = gain(i, 1)*(moved+(z+moved)*(sums+special)) + unit*gain(i, 2)
		}
	}
	return []Range{around(mid[0], radius)}, nil
}

// sum is the rule of sums in any order, and of means, which divide them.
func sum(n *ir.Node, in []Range) ([]Range, error) {
	out, err := corners(n, in)
	if err != nil || out[0].Lo.F == nil {
		return out, err
	}
	size, err := ir.EvaluateNode(n, []*ir.Array{greatest(in[0])})
	if err != nil {
		return nil, err
	}
	terms := in[0].Lo.Len() / max(1, size[0].Len())
	switch n.Op.Name {
	case "CumSum":
		terms = in[0].Lo.Shape[n.Attrs.Int("axis", 0)]
	case "AveragePool":
		terms = ir.Type{Shape: n.Attrs.Ints("kernel")}.Numel()
	}
	e := sumError(terms) + unit
	return []Range{enlarged(out[0], func(i int, _ float64) float64 { return e*size[0].F[i] + tiny })}, nil
}

// greatest is the greatest magnitude of each element.
func greatest(r Range) *ir.Array {
	top := ir.NewArray(r.Lo.Type)
	for i := range top.F {
		top.F[i] = math.Max(math.Abs(r.Lo.F[i]), math.Abs(r.Hi.F[i]))
	}
	return top
}

// abs is the rule of |x|.
func abs(r Range) []Range {
	out := Range{ir.NewArray(r.Lo.Type), greatest(r)}
	for i := range out.Lo.F {
		if lo, hi := r.Lo.F[i], r.Hi.F[i]; lo > 0 || hi < 0 {
			out.Lo.F[i] = math.Min(math.Abs(lo), math.Abs(hi))
		}
	}
	return []Range{out}
}

// interpolation is the rule of a Resize that weighs neighbours: of at most 4 in each of two dimensions, by weights whose
// magnitudes add up to less than 2 in each, and that are rounded, as are the products and their sums.
func interpolation(n *ir.Node, in []Range) ([]Range, error) {
	mid, radius := split(in[0])
	out, err := ir.EvaluateNode(n, []*ir.Array{mid})
	if err != nil {
		return nil, err
	}
	top, carried := 0.0, 0.0
	for i, x := range mid.F {
		top = math.Max(top, math.Abs(x))
		if radius != nil {
			carried = math.Max(carried, radius.F[i])
		}
	}
	return []Range{enlarged(Exactly(out[0]), func(int, float64) float64 { return 4*(sumError(16)*top+carried) + tiny })}, nil
}

// batchNorm is the rule of x·a + (bias - mean·a), in any order.
func batchNorm(n *ir.Node, in []Range) ([]Range, error) {
	out, err := corners(n, in)
	if err != nil {
		return nil, err
	}
	for _, p := range in[1:] {
		if !p.exact() {
			return nil, fmt.Errorf("parameters are not known exactly")
		}
	}
	x, scale, bias, mean, variance := in[0], in[1].Lo, in[2].Lo, in[3].Lo, in[4].Lo
	axis, eps := n.Attrs.Int("axis", 1), n.Attrs.Float("epsilon", 1e-5)
	inner := ir.Type{Shape: x.Lo.Shape[axis+1:]}.Numel()
	return []Range{enlarged(out[0], func(i int, _ float64) float64 {
		c := i / inner % x.Lo.Shape[axis]
		a := math.Abs(scale.F[c]) / math.Sqrt(variance.F[c]+eps)
		top := math.Max(math.Abs(x.Lo.F[i]), math.Abs(x.Hi.F[i]))
		return slack*unit*((top+math.Abs(mean.F[c]))*a+math.Abs(bias.F[c])) + tiny
	})}, nil
}

// blockQuantize is the rule of ir.QuantizeBlocks: a block's scale can fall to either side of a tie, and its elements with it. Codes are
// the greater the smaller the scale is, but 0 where that is 0: so where a scale may be 0, the least above counts too.
func blockQuantize(n *ir.Node, in []Range) ([]Range, error) {
	scale := n.Attrs.Float("scale", 1)
	factor := float64(float32(1 / (minifloat.E2M1.Max() * scale)))
	y, s := n.Outputs[0].Type, n.Outputs[1].Type
	values := Range{ir.NewArray(y), ir.NewArray(y)}
	scales := Range{ir.NewArray(s), ir.NewArray(s)}
	const size = ir.BlockSize
	for b := range scales.Lo.F {
		lo, hi := in[0].Lo.F[b*size:(b+1)*size], in[0].Hi.F[b*size:(b+1)*size]
		least, greatest := 0.0, 0.0
		for i := range lo {
			if lo[i] > 0 || hi[i] < 0 {
				least = math.Max(least, math.Min(math.Abs(lo[i]), math.Abs(hi[i])))
			}
			greatest = math.Max(greatest, math.Max(math.Abs(lo[i]), math.Abs(hi[i])))
		}
		ends := []float64{
			ir.BlockScale.Format().Round(least*factor*(1-2*unit), true),
			ir.BlockScale.Format().Round(greatest*factor*(1+2*unit), true),
		}
		scales.Lo.F[b], scales.Hi.F[b] = ends[0], ends[1]
		if ends[0] == 0 && ends[1] > 0 {
			ends = append(ends, ir.BlockScale.Format().Decode(1))
		}
		for i := range lo {
			a, z := math.Inf(1), math.Inf(-1)
			for _, x := range []float64{lo[i], hi[i]} {
				for _, e := range ends {
					for _, f := range []float64{1 - 4*unit, 1 + 4*unit} {
						c := 0.0
						if e != 0 {
							c = minifloat.E2M1.Round(x/(e*scale)*f, true)
						}
						a, z = math.Min(a, c), math.Max(z, c)
					}
				}
			}
			values.Lo.F[b*size+i], values.Hi.F[b*size+i] = a, z
		}
	}
	return []Range{values, scales}, nil
}
