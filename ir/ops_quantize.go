package ir

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// Blocks of NVFP4, as block-scaled mma multiplies them (PTX ISA, scale_vec::4X).
const (
	BlockSize  = 16           // elements that share a scale
	BlockScale = Float8E4M3FN // the scale's type
)

// Quantisation. Blocks and channels go by an axis of the first operand.
var _ = register(
	Op{Name: "QuantizeLinear", Kind: KindElementwise, In: "x, scale float, zero?",
		Attrs:   []Attr{{Name: "axis", Default: 1, Axes: true}, {Name: "block", Default: 0}, {Name: "saturate", Default: true}, {Name: "to", Default: Invalid, Required: true}},
		Summary: "ONNX QuantizeLinear 23: round half even, saturate; scale scalar, per axis or blocked",
		Grad:    gradQuantize, Batch: batchQuantize, Infer: inferQuantize, Eval: evalQuantize, ByAxis: true},
	Op{Name: "DequantizeLinear", Kind: KindElementwise, In: "x, scale float, zero? x",
		Attrs:   []Attr{{Name: "axis", Default: 1, Axes: true}, {Name: "block", Default: 0}, {Name: "to", Default: Invalid, Required: true}},
		Summary: "(x-zero)·scale (ONNX DequantizeLinear 23)",
		Grad:    gradDequantize, Batch: batchQuantize, Infer: inferDequantize, Eval: evalDequantize, ByAxis: true},
	Op{Name: "FakeQuantize", Kind: KindElementwise, Steps: true,
		Attrs: []Attr{{Name: "to", Default: Invalid, Required: true}, {Name: "scale", Default: 1.0, Required: true}, {Name: "zero", Default: 0.0},
			{Name: "saturate", Default: true}, {Name: "codes", Default: false}},
		Summary: "DequantizeLinear of QuantizeLinear, one scale and zero point for all elements: scale·q(x/scale) with q rounding to numbers of type to; with codes, q(x/scale)",
		Grad:    gradFakeQuantize, Infer: inferFakeQuantize, Expand: expandFakeQuantize},
	Op{Name: "BlockQuantize", Cost: 5, Kind: KindOther, Out: []string{"y", "scales"},
		Attrs:   []Attr{{Name: "scale", Default: 1.0, Required: true}},
		Summary: "NVFP4: x f32 [… C] ≈ y·scales·scale, y e2m1 [… C], scales e4m3 [… C/16], those of each 16 along the last axis from their greatest magnitude",
		Infer:   inferBlockQuantize, Eval: evalBlockQuantize},
)

func inferFakeQuantize(n *Node) ([]Type, error) {
	x, to := n.Inputs[0].Type, n.Attrs.DType("to")
	switch {
	case x.DType != Float32:
		return nil, fmt.Errorf("x is %v, want f32", x)
	case to != Float8E4M3FN && !(to.IsInt() && to.Bits() <= 8), to == Float8E4M3FN && n.Attrs.Float("zero", 0) != 0:
		return nil, fmt.Errorf("numbers of type %v with zero=%v", to, n.Attrs.Float("zero", 0))
	case !(n.Attrs.Float("scale", 1) > 0):
		return nil, fmt.Errorf("scale=%v, want a positive number", n.Attrs.Float("scale", 1))
	}
	return []Type{x}, nil
}

// expandFakeQuantize: of integers the zero point only shifts the range to which the quotient is clamped.
func expandFakeQuantize(x *Expansion, n *Node) []*Value {
	to, scale, zero := n.Attrs.DType("to"), n.Attrs.Float("scale", 1), n.Attrs.Float("zero", 0)
	y := x.Add("Div", nil, n.Inputs[0], x.Like(n.Inputs[0], scale))
	if to == Float8E4M3FN {
		y = x.Add("Cast", Attrs{"to": Float32}, x.Add("Cast", Attrs{"to": to, "saturate": n.Flag("saturate")}, y))
	} else {
		lo, hi := minifloat.Range(to.Bits(), to.IsSigned())
		y = x.Add("Max", nil, x.Add("Round", nil, y), x.Like(y, float64(lo)-zero))
		y = x.Add("Min", nil, y, x.Like(y, float64(hi)-zero))
	}
	if !n.Attrs.Bool("codes") {
		y = x.Add("Mul", nil, y, x.Like(y, scale))
	}
	return []*Value{y}
}

func inferBlockQuantize(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	if x.DType != Float32 || x.Rank() == 0 {
		return nil, fmt.Errorf("x is %v, want f32 of rank 1 or more", x)
	}
	last := x.Rank() - 1
	if x.Shape[last]%BlockSize != 0 {
		return nil, fmt.Errorf("x is %v: the last dimension is no multiple of %d", x, BlockSize)
	}
	if s := n.Attrs.Float("scale", 1); !(s > 0) || math.IsInf(s, 0) {
		return nil, fmt.Errorf("scale=%v, want a positive number", s)
	}
	scales := slices.Clone(x.Shape)
	scales[last] /= BlockSize
	return []Type{{Float4E2M1, slices.Clone(x.Shape)}, {BlockScale, scales}}, nil
}

func evalBlockQuantize(n *Node, in []*Array) ([]*Array, error) {
	types, err := inferBlockQuantize(n)
	if err != nil {
		return nil, err
	}
	y, s := NewArray(types[0]), NewArray(types[1])
	QuantizeBlocks(in[0].F, n.Attrs.Float("scale", 1), y.F, s.F)
	return []*Array{y, s}, nil
}

// QuantizeBlocks rounds x to NVFP4: x[i] ≈ y[i]·scales[i/16]·scale. A block's scale is its greatest magnitude,
// divided by 6·scale and rounded to e4m3; a block whose scale rounds to 0 becomes zeros, one that holds NaN has the
// scale NaN. The factor 1/(6·scale) is an f32, so that a kernel can multiply by the same number.
func QuantizeBlocks(x []float64, scale float64, y, scales []float64) {
	factor := float64(float32(1 / (minifloat.E2M1.Max() * scale)))
	for b := range scales {
		block := x[b*BlockSize : (b+1)*BlockSize]
		top := 0.0
		for _, v := range block {
			if a := math.Abs(v); a > top || math.IsNaN(a) { // math.Max prefers infinity to NaN
				top = a
			}
		}
		s := BlockScale.Format().Round(top*factor, true)
		scales[b] = s
		for i, v := range block {
			y[b*BlockSize+i] = 0
			if s != 0 && !math.IsNaN(s) {
				y[b*BlockSize+i] = minifloat.E2M1.Round(v/(s*scale), true)
			}
		}
	}
}

func inferQuantize(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if to.Bits() == 0 || to.Bits() > 16 || to == Bool || to == Float16 || to == BFloat16 {
		return nil, fmt.Errorf("to=%v is no quantised type", to)
	}
	x := n.Inputs[0].Type
	if !x.DType.IsFloat() && x.DType != Int32 {
		return nil, fmt.Errorf("x is %v, want a floating-point type or i32", x)
	}
	if z := n.In(2); z != nil && z.Type.DType != to {
		return nil, fmt.Errorf("zero is %v, want %v", z.Type, to)
	}
	if err := n.checkScale(); err != nil {
		return nil, err
	}
	return one(to, x.Shape...)
}

func inferDequantize(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if !to.IsFloat() {
		return nil, fmt.Errorf("to=%v, want a floating-point type", to)
	}
	x := n.Inputs[0].Type
	if x.DType == Bool || x.DType.Bits() > 16 && x.DType != Int32 {
		return nil, fmt.Errorf("x is %v, which is no quantised type", x)
	}
	if err := n.checkScale(); err != nil {
		return nil, err
	}
	return one(to, x.Shape...)
}

// checkScale checks the shapes of a quantisation's scale and zero point: one element, one for each index of the axis,
// or one for each block.
func (n *Node) checkScale() error {
	x, s := n.Inputs[0].Type, n.Inputs[1].Type
	if z := n.In(2); z != nil {
		if err := n.shaped(2, s.Shape...); err != nil {
			return err
		}
	}
	block := n.Attrs.Int("block", 0)
	if block < 0 {
		return fmt.Errorf("block=%d is negative", block)
	}
	if block == 0 && (s.Rank() == 0 || s.Rank() == 1 && s.Shape[0] == 1) {
		return nil
	}
	axis, err := n.axisOf("axis", 1, x.Rank())
	if err != nil {
		return err
	}
	if block == 0 {
		return n.shaped(1, x.Shape[axis])
	}
	want := x.Clone().Shape
	want[axis] = (want[axis] + block - 1) / block
	return n.shaped(1, want...)
}

// scaleIndex returns, for each position of x, the position in scale and zero.
func scaleIndex(n *Node, x, scale *Array) func(pos int) int {
	axis, block := n.Attrs.Int("axis", 1), n.Attrs.Int("block", 0)
	if block == 0 && scale.Len() == 1 {
		return func(int) int { return 0 }
	}
	inner, size := strides(x.Shape)[axis], x.Shape[axis]
	if block == 0 {
		return func(pos int) int { return pos / inner % size }
	}
	blocks := scale.Shape[axis]
	return func(pos int) int {
		outer, k := pos/inner/size, pos/inner%size
		return (outer*blocks+k/block)*inner + pos%inner
	}
}

// zeroPoints are the elements of input 2, zeros where it is absent.
func zeroPoints(in []*Array) []float64 {
	if len(in) > 2 && in[2] != nil {
		return in[2].Floats()
	}
	return make([]float64, in[1].Len())
}

func evalQuantize(n *Node, in []*Array) ([]*Array, error) {
	x, scale, zero, out := in[0].Floats(), in[1], zeroPoints(in), NewArray(n.Outputs[0].Type)
	at, saturate, d := scaleIndex(n, in[0], scale), n.Flag("saturate"), out.DType
	for i, v := range x {
		k := at(i)
		// The division happens in the type of the scale.
		q := RoundTo(in[1].DType, v/scale.F[k])
		switch {
		case out.F != nil && d == Float8E8M0:
			out.F[i] = minifloat.DecodeE8M0(minifloat.EncodeE8M0(q+zero[k], minifloat.Nearest, saturate))
		case out.F != nil:
			out.F[i] = d.Format().Round(q+zero[k], saturate)
		default:
			out.I[i] = minifloat.Truncate(math.RoundToEven(q)+zero[k], d.Bits(), d.IsSigned())
		}
	}
	return []*Array{out}, nil
}

func evalDequantize(n *Node, in []*Array) ([]*Array, error) {
	x, scale, zero, out := in[0].Floats(), in[1], zeroPoints(in), NewArray(n.Outputs[0].Type)
	at := scaleIndex(n, in[0], scale)
	for i, v := range x {
		k := at(i)
		out.F[i] = (v - zero[k]) * scale.F[k]
	}
	return []*Array{out}, nil
}
