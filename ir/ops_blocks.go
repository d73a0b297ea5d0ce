package ir

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// NVFP4Block is the number of elements that share a scale in NVFP4 (PTX ISA, mma with block scaling, scale_vec::4X).
const NVFP4Block = 16

var _ = register(
	Op{Name: "BlockQuantize", Kind: KindOther, Out: []string{"y", "scales"},
		Attrs:   []Attr{{Name: "scale", Default: 1.0, Required: true}},
		Summary: "NVFP4: x f32 [… C] ≈ y·scales·scale, y e2m1 [… C], scales e4m3 [… C/16], those of each 16 along the last axis from their greatest magnitude",
		Infer:   inferBlockQuantize, Eval: evalBlockQuantize},
)

func inferBlockQuantize(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	if x.DType != Float32 || x.Rank() == 0 {
		return nil, fmt.Errorf("x is %v, want f32 of rank 1 or more", x)
	}
	last := x.Rank() - 1
	if x.Shape[last]%NVFP4Block != 0 {
		return nil, fmt.Errorf("x is %v: the last dimension is no multiple of %d", x, NVFP4Block)
	}
	if s := n.Attrs.Float("scale", 1); !(s > 0) || math.IsInf(s, 0) {
		return nil, fmt.Errorf("scale=%v, want a positive number", s)
	}
	scales := slices.Clone(x.Shape)
	scales[last] /= NVFP4Block
	return []Type{{Float4E2M1, slices.Clone(x.Shape)}, {Float8E4M3FN, scales}}, nil
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

// QuantizeBlocks rounds x to NVFP4: x[i] ≈ y[i]·scales[i/16]·scale. A block's scale is its greatest magnitude, divided by
// 6·scale and rounded to e4m3; a block whose scale rounds to 0 becomes zeros, one that holds NaN has the scale NaN. The
// factor 1/(6·scale) is an f32, so that a kernel can multiply by the same number.
func QuantizeBlocks(x []float64, scale float64, y, scales []float64) {
	factor := float64(float32(1 / (minifloat.E2M1.Max() * scale)))
	for b := range scales {
		block := x[b*NVFP4Block : (b+1)*NVFP4Block]
		top := 0.0
		for _, v := range block {
			if a := math.Abs(v); a > top || math.IsNaN(a) { // math.Max prefers infinity to NaN
				top = a
			}
		}
		s := minifloat.E4M3FN.Round(top*factor, true)
		scales[b] = s
		for i, v := range block {
			y[b*NVFP4Block+i] = 0
			if s != 0 && !math.IsNaN(s) {
				y[b*NVFP4Block+i] = minifloat.E2M1.Round(v/(s*scale), true)
			}
		}
	}
}
