// Package roundoff bounds the effect of rounding on a kernel: for every element of a region's outputs, the least and the
// greatest number that an evaluation in f32, summing in any order, may yield. Tests and tracing check kernels and other runtimes against
// these ranges instead of a tolerance: a quantised result may be a neighbouring code only if the number before rounding is
// so close to a tie that f32 cannot tell its side.
//
// The error of a sum of n products is taken as min(n, λ√n)·u·Σ|a·b| (Higham and Mary, A New Approach to Probabilistic
// Rounding Error Analysis, 2019, theorem 2.4: it fails with a probability of 2·exp(−λ²/2), 3e-8, for errors that are
// independent and have mean zero); independent errors of operands add in quadrature, with the same λ, unless their plain sum
// is less.
package roundoff

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

const (
	lambda = 6
	unit   = 1.0 / (1 << 24) // of f32
	// slack is the number of roundings by which implementations of one layer differ besides the sum itself:
	// scales, biases and zero points applied before or after it, and folded into constants.
	slack = 8
	tiny  = 0x1p-120 // what flushing denormals may cost
)

// Range is a value known only within bounds, element by element. Lo and Hi are the same array if it is known exactly.
type Range struct{ Lo, Hi *ir.Array }

// Exactly is a known value.
func Exactly(a *ir.Array) Range { return Range{a, a} }

func (r Range) exact() bool { return r.Lo == r.Hi }

// Model says how the nodes of a graph round values narrower than f32. Bodies of regions round where they cast.
type Model struct {
	// Loose lets every f16 and bf16 value err by half a unit in the last place instead of rounding it, to cover programs
	// that keep some of them wider.
	Loose bool
	// TensorCore is what one addition of a tensor core may cost, relative to the sum of the magnitudes (docs/gpu.md): it
	// cuts bits off instead of rounding to the nearest number, so errors do not average out. 0: sums are rounded as f32.
	TensorCore float64

	inside bool // a region's body, which computes in f32 and rounds where it casts
}

// Node returns the ranges of a node's outputs; absent inputs are zero Ranges.
func (m Model) Node(n *ir.Node, in []Range) ([]Range, error) {
	out, err := m.node(n, in)
	if err != nil {
		return nil, fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, err)
	}
	for i := range out {
		out[i] = m.stored(n, out[i])
	}
	return out, nil
}

// Values returns the ranges of values that follow from known ones.
func (m Model) Values(want []*ir.Value, known map[*ir.Value]Range) ([]Range, error) {
	seen := maps.Clone(known)
	out := make([]Range, len(want))
	for i, v := range want {
		var err error
		if out[i], err = m.value(v, seen); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m Model) value(v *ir.Value, seen map[*ir.Value]Range) (Range, error) {
	if v == nil {
		return Range{}, nil
	}
	if r, ok := seen[v]; ok {
		return r, nil
	}
	if v.IsConst() {
		seen[v] = Exactly(v.Const.Array())
		return seen[v], nil
	}
	if v.Def == nil {
		return Range{}, fmt.Errorf("%%%s is an input without a value", v.Name)
	}
	in := make([]Range, len(v.Def.Inputs))
	for i, x := range v.Def.Inputs {
		var err error
		if in[i], err = m.value(x, seen); err != nil {
			return Range{}, err
		}
	}
	out, err := m.Node(v.Def, in)
	if err != nil {
		return Range{}, err
	}
	for i, o := range v.Def.Outputs {
		seen[o] = out[i]
	}
	return seen[v], nil
}

// stored is what a node leaves in memory, or for the rest of a body.
func (m Model) stored(n *ir.Node, r Range) Range {
	if m.inside && n.Op.Name != "Cast" {
		return r
	}
	if m.Loose && (r.Lo.DType == ir.Float16 || r.Lo.DType == ir.BFloat16) {
		return enlarged(r, func(_ int, x float64) float64 { return math.Abs(x) * halfUnit(r.Lo.DType) })
	}
	return rounded(r)
}

func halfUnit(d ir.DType) float64 {
	if d == ir.BFloat16 {
		return 0x1p-8
	}
	return 0x1p-11
}

func rounded(r Range) Range {
	if r.exact() {
		return Exactly(r.Lo.Rounded())
	}
	return Range{r.Lo.Rounded(), r.Hi.Rounded()}
}

// enlarged moves the ends of a range outwards by e of an element's position and the end itself; what is infinite stays.
func enlarged(r Range, e func(i int, x float64) float64) Range {
	if r.Lo.F == nil {
		return r
	}
	out := Range{ir.NewArray(r.Lo.Type), ir.NewArray(r.Lo.Type)}
	for i, x := range r.Lo.F {
		if out.Lo.F[i] = x; !math.IsInf(x, 0) {
			out.Lo.F[i] -= e(i, x)
		}
	}
	for i, x := range r.Hi.F {
		if out.Hi.F[i] = x; !math.IsInf(x, 0) {
			out.Hi.F[i] += e(i, x)
		}
	}
	return out
}

// around is the range of a centre and a radius.
func around(mid *ir.Array, radius []float64) Range {
	out := Range{ir.NewArray(mid.Type), ir.NewArray(mid.Type)}
	for i, x := range mid.F {
		out.Lo.F[i], out.Hi.F[i] = x-radius[i]-tiny, x+radius[i]+tiny
	}
	return out
}

// split is the inverse of around; the radius of an exact value is nil.
func split(r Range) (mid, radius *ir.Array) {
	if r.exact() || r.Lo.F == nil {
		return r.Lo, nil
	}
	mid, radius = ir.NewArray(r.Lo.Type), ir.NewArray(r.Lo.Type)
	for i, lo := range r.Lo.F {
		hi := r.Hi.F[i]
		mid.F[i], radius.F[i] = (lo+hi)/2, (hi-lo)/2
	}
	return mid, radius
}

// products is the relative error of a sum of n products of an anchor.
func (m Model) products(n int) float64 { return max(sumError(n), float64(n+3)*m.TensorCore) }

// sumError is the relative error of a sum of n products.
func sumError(n int) float64 {
	k := float64(n + slack)
	return math.Min(k, lambda*math.Sqrt(k)) * unit
}

// region applies the body to every member of a region.
func (m Model) region(n *ir.Node, in []Range) ([]Range, error) {
	if n.IsFamily(ir.FamilyFused) {
		return m.fused(n, in)
	}
	x, err := n.Explicit()
	if err != nil {
		return nil, err
	}
	known := map[*ir.Value]Range{}
	for i, v := range n.Inputs {
		known[v] = in[i]
	}
	in = make([]Range, len(x.Inputs))
	for i, v := range x.Inputs {
		r, ok := known[v]
		if !ok {
			r = Exactly(v.Const.Array())
		}
		in[i] = r
	}
	if x.Region.Members == 0 {
		return m.body(x.Region.Body, in)
	}
	out := make([]Range, len(n.Outputs))
	for i, v := range n.Outputs {
		out[i] = Range{ir.NewArray(v.Type), ir.NewArray(v.Type)}
	}
	for k := range x.Region.Members {
		part := slices.Clone(in)
		for i, r := range in {
			if x.Region.Operands[i].Batched {
				part[i] = member(r, k)
			}
		}
		results, err := m.body(x.Region.Body, part)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", k, err)
		}
		for i, r := range results {
			out[i].Lo.SetMember(k, r.Lo)
			out[i].Hi.SetMember(k, r.Hi)
		}
	}
	return out, nil
}

// fused evaluates the parts one after the other, each as a region of its own.
func (m Model) fused(n *ir.Node, in []Range) ([]Range, error) {
	known := map[*ir.Value]Range{}
	for i, v := range n.Inputs {
		known[v] = in[i]
	}
	for _, part := range n.Parts() {
		var own []Range
		for _, v := range part.Inputs {
			own = append(own, known[v])
		}
		out, err := m.Node(part, own)
		if err != nil {
			return nil, err
		}
		for i, v := range part.Outputs {
			known[v] = out[i]
		}
	}
	out := make([]Range, len(n.Outputs))
	for i, v := range n.Outputs {
		out[i] = known[v]
	}
	return out, nil
}

// member is part k along the first dimension.
func member(r Range, k int) Range {
	if r.exact() {
		return Exactly(r.Lo.Member(k))
	}
	return Range{r.Lo.Member(k), r.Hi.Member(k)}
}

// body evaluates a graph inside a region.
func (m Model) body(g *ir.Graph, in []Range) ([]Range, error) {
	known := map[*ir.Value]Range{}
	for i, v := range g.Inputs {
		known[v] = in[i]
	}
	return Model{TensorCore: m.TensorCore, inside: true}.Values(g.Outputs, known)
}
