package passes

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "quantise-base",
	Summary: "round the frozen weights of MatMul and Conv to narrow numbers, and scale the products: both directions of a layer multiply the same numbers",
	After: map[string]string{
		"promote-f32": "weights are f32",
		"insert-dora": "norms are those of the rounded weights, and adapters are separate from the products",
	},
	Tolerance: 0.15, // e2m1
	Run:       quantiseBase,
})

// QuantiseBaseOptions say what frozen weights are stored as.
type QuantiseBaseOptions struct{ Base Base }

// Base says how frozen weights are stored.
type Base struct {
	precision.Operand                        // its zero value: they are left alone
	Rounded           map[string]RoundedRows // by the name in the file, weights that are rounded already; others are, to the nearest numbers
}

// rows rounds weights [out, in, taps] of a name.
func (b *Base) rows(name string, rows []float64, out, in, taps int) RoundedRows {
	if r, ok := b.Rounded[name]; ok {
		return r
	}
	return RoundRows(b.Operand, rows, out, in, taps)
}

// quantiseBase rounds every constant that MatMul and Conv multiply by to Context.Base, but those of depthwise
// convolutions. W ≈ s ⊙ Q has a scale s an output channel, and W·x becomes s ⊙ (Q·x): then the way back is Qᵀ·(s ⊙
// dy), whose numbers need no scales along what is summed. Whatever else reads W, such as its norm, gets s ⊙ Q in f32.
func quantiseBase(ctx *Context, g *ir.Graph) error {
	if ctx.Base.Format == nil {
		return nil
	}
	done := map[*ir.Value]*roundedBase{}
	if _, err := rewrite(g, func(s *sweep, n *ir.Node) {
		w, of, ok := baseWeight(n)
		if !ok {
			return
		}
		r := done[w]
		if r == nil {
			r = newRoundedBase(w, of, &ctx.Base)
			done[w] = r
		}
		if r.of.ByOutput == of.ByOutput && r.of.Group == of.Group { // no other node reads it the other way round
			r.multiply(s, n)
		}
	}); err != nil {
		return err
	}
	for _, n := range g.Nodes {
		for i, v := range n.Inputs {
			if r := done[v]; r != nil {
				n.Inputs[i] = r.plain(g, v)
			}
		}
	}
	return nil
}

// baseWeight is the weight of n that quantise-base rounds.
func baseWeight(n *ir.Node) (*ir.Value, ir.Weights, bool) {
	of, ok := n.Weights()
	if !ok || of.InAxis < 0 || of.RowAxis > 0 || !slices.Contains(n.Op.Matrix, 1) || n.Depthwise() || n.Inputs[0].IsConst() {
		return nil, of, false
	}
	w := n.Inputs[1]
	return w, of, w.IsConst() && w.Type.DType == ir.Float32 && w.Type.Numel() > 0
}

// baseValues are the elements of the constant weight of node n as quantise-base has them.
func baseValues(n *ir.Node, to *Base) []float64 {
	w, of, ok := baseWeight(n)
	if !ok || to.Format == nil {
		return n.Inputs[1].Const.Floats()
	}
	r := newRoundedBase(w, of, to)
	return r.arranged(ir.Float64, r.Values()).Floats()
}

// roundedBase is a rounded weight.
type roundedBase struct {
	RoundedRows
	of      ir.Weights
	shape   []int
	numbers *ir.Value // as DequantizeLinear makes them; nil: not made yet
	wide    *ir.Value // their products with the scales of channels; nil: not made yet
}

func newRoundedBase(w *ir.Value, of ir.Weights, to *Base) *roundedBase {
	r := &roundedBase{of: of, shape: w.Type.Shape}
	x := w.Const.Floats()
	rows := make([]float64, len(x))
	in := of.Inputs() / of.Group
	r.places(in, func(row, at int) { rows[row] = x[at] })
	r.RoundedRows = to.rows(FileName(w), rows, of.Outputs(), in, of.Taps)
	return r
}

// places calls f with the position of each element of [out, in, taps], and that in the constant, for `in` input channels, or
// blocks of them.
func (r *roundedBase) places(in int, f func(row, at int)) {
	out, taps := r.of.Outputs(), r.of.Taps
	for o := range out {
		for k := range in * taps {
			at := o*in*taps + k
			if !r.of.ByOutput { // taps are 1, groups too
				at = k*out + o
			}
			f(o*in*taps+k, at)
		}
	}
}

// arranged is a constant of numbers [out, in, taps] as the weight lies.
func (r *roundedBase) arranged(d ir.DType, xs []float64) *ir.Tensor {
	shape := slices.Clone(r.shape)
	in := len(xs) / r.of.Outputs() / r.of.Taps
	shape[r.of.InputAxis()] = in
	out := make([]float64, len(xs))
	r.places(in, func(row, at int) { out[at] = xs[row] })
	return ir.FromFloats(ir.T(d, shape...), out)
}

// multiply puts s ⊙ (Q·x) in place of n.
func (r *roundedBase) multiply(s *sweep, n *ir.Node) {
	name := n.Inputs[1].Name
	if r.numbers == nil {
		to := ir.Attrs{"to": ir.Float32, "axis": r.of.InputAxis()}
		scale := s.g.Constant(name, ir.ScalarFloat(ir.Float32, r.Unit))
		if r.Blocks != nil {
			scale = s.add("DequantizeLinear", name, to, s.g.Constant(name, r.arranged(ir.BlockScale, r.Blocks)), scale)
			to = to.Clone()
			to["block"] = ir.BlockSize
		}
		r.numbers = s.add("DequantizeLinear", name, to, s.g.Constant(name, r.arranged(r.DType, r.Numbers)), scale)
	}
	y := s.add(n.Op.Name, n.Name, n.Attrs, n.Inputs[0], r.numbers)
	shape := n.ChannelShape(len(r.Scales))
	y = s.add("Mul", n.Name, nil, y, s.constant(n.Name, ir.Float32, shape, r.Scales))
	if bias := n.Bias(); bias != nil {
		y = s.add("Add", n.Name, nil, y, s.add("Reshape", n.Name, ir.Attrs{"shape": shape}, bias))
	}
	s.replace(n.Outputs[0], y)
}

// plain is the rounded weight in f32.
func (r *roundedBase) plain(g *ir.Graph, v *ir.Value) *ir.Value {
	if r.wide == nil {
		r.wide = g.Constant(v.Name, r.arranged(ir.Float32, r.Values()))
	}
	return r.wide
}

// RoundedRows are weights [out, in, taps] as narrow numbers: each is a number times Unit times the scale of its
// output channel, and that of its block of 16 input channels.
type RoundedRows struct {
	DType   ir.DType
	Numbers []float64 // [out, in, taps]
	Blocks  []float64 // [out, in/16 rounded up, taps], numbers of ir.BlockScale; nil: there are none
	Scales  []float64 // [out], f32
	Unit    float64   // a power of two: numbers times it, and scales of blocks, are at most 1

	in, taps int
}

// Most of the product of a number and the scale of its block. A block whose greatest is to become 4 and not 6 has a
// scale half as large again, which e4m3 has to hold.
const mostOfBlocks = 6 * 256

// RowsOf are the weights of a site, which has no members, as a calibration has rounded them: those of the first `in` input channels. Others
// are padding.
func RowsOf(s *Site, l Layer, in int) RoundedRows {
	taps := s.Geometry.Taps
	r := RoundedRows{DType: l.Weights.DType, Numbers: s.Rows(l.Weights.Floats(), in), Scales: slices.Clone(l.Scales), in: in, taps: taps}
	most := r.DType.Format().Max()
	if l.Blocks != nil {
		most *= ir.BlockScale.Format().Max()
		r.Blocks = make([]float64, s.N*r.blocks())
		blocks := l.Blocks.Floats()
		for i := range r.Blocks {
			r.Blocks[i] = blocks[s.BlockAt(0, i/r.blocks(), i%r.blocks())]
		}
	}
	_, exponent := math.Frexp(most)
	r.Unit = math.Ldexp(1, -exponent)
	for o := range r.Scales {
		r.Scales[o] /= r.Unit
	}
	return r
}

// RowsIn is the storage of weights of so many input channels where that of all is o: blocks of 16 need as many.
func RowsIn(o precision.Operand, in int) precision.Operand {
	if o.Blocks && in < ir.BlockSize {
		return precision.Operand{Format: minifloat.E4M3FN}
	}
	return o
}

// RoundRows rounds each of the rows of weights [out, in, taps] to the nearest numbers, with the scale that makes the
// greatest of a row the greatest number. Of blocks the greatest becomes 6 or 4, whichever leaves the smaller squared
// error: between these two there is no other number (Cook and others 2025, Four Over Six). Blocks of fewer than 16
// are stored as e4m3 without.
func RoundRows(to precision.Operand, rows []float64, out, in, taps int) RoundedRows {
	to = RowsIn(to, in)
	r := RoundedRows{DType: ir.DTypeOf(to.Format), Numbers: make([]float64, len(rows)), Scales: make([]float64, out), in: in, taps: taps}
	most := to.Max()
	if to.Blocks {
		most = mostOfBlocks
		r.Blocks = make([]float64, out*r.blocks())
	}
	_, exponent := math.Frexp(most)
	r.Unit = math.Ldexp(1, -exponent)
	for o := range out {
		row := rows[o*in*taps : (o+1)*in*taps]
		top := 0.0
		for _, x := range row {
			top = max(top, math.Abs(x))
		}
		r.Scales[o] = float64(float32(top / (most * r.Unit)))
		scale := r.Scales[o] * r.Unit
		if scale == 0 {
			r.Scales[o] = 1
			continue
		}
		if to.Blocks {
			r.roundBlocks(o, row, scale)
			continue
		}
		for k, x := range row {
			r.Numbers[o*len(row)+k] = to.Saturated(x / scale)
		}
	}
	return r
}

// blocks is the number of blocks of a row.
func (r *RoundedRows) blocks() int { return (r.in + ir.BlockSize - 1) / ir.BlockSize * r.taps }

// block is the block of a row that element k lies in.
func (r *RoundedRows) block(k int) int { return k/r.taps/ir.BlockSize*r.taps + k%r.taps }

func (r *RoundedRows) roundBlocks(o int, row []float64, scale float64) {
	tops := make([]float64, r.blocks())
	for k, x := range row {
		tops[r.block(k)] = max(tops[r.block(k)], math.Abs(x))
	}
	to := ir.Float4E2M1.Format()
	errors := make([]float64, len(tops))
	for i := range errors {
		errors[i] = math.Inf(1)
	}
	for _, greatest := range []float64{6, 4} {
		scales, missed := make([]float64, len(tops)), make([]float64, len(tops))
		numbers := make([]float64, len(row))
		for b, top := range tops {
			scales[b] = ir.BlockScale.Format().Saturated(top / (greatest * scale))
		}
		for k, x := range row {
			b := r.block(k)
			unit := scales[b] * scale
			if unit > 0 {
				numbers[k] = to.Saturated(x / unit)
			}
			d := x - float64(numbers[k]*unit)
			missed[b] += float64(d * d)
		}
		for k := range row {
			if b := r.block(k); missed[b] < errors[b] {
				r.Numbers[o*len(row)+k] = numbers[k]
			}
		}
		for b, e := range missed {
			if e < errors[b] {
				errors[b], r.Blocks[o*len(tops)+b] = e, scales[b]
			}
		}
	}
}

// Values are the weights that the numbers stand for.
func (r *RoundedRows) Values() []float64 {
	out := make([]float64, len(r.Numbers))
	row := len(out) / len(r.Scales)
	for i, x := range r.Numbers {
		o, k := i/row, i%row
		x *= r.Scales[o] * r.Unit
		if r.Blocks != nil {
			x *= r.Blocks[o*r.blocks()+r.block(k)]
		}
		out[i] = x
	}
	return out
}
