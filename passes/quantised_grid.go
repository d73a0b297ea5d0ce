package passes

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// Passes fold, transpose and rescale the weights of a quantised file like any others. What the file stored is found again in
// the numbers: they lie on a grid, to the precision of f32.

// gridError is the relative error of a weight that is a code times scales, each product rounded to f32.
const gridError = 4e-7

// onGrid finds weights that a file has quantised: every output channel's are a scale times numbers of the format, to the
// precision of f32. They are returned as numbers of type to: integers in 16 bits, which hold them exactly.
func onGrid(s *Site, d, to ir.DType) (Layer, bool) {
	w := s.Weights().Const.Floats()
	codes := make([]float64, len(w))
	l := Layer{Scales: make([]float64, s.Members*s.N)}
	row := make([]float64, s.K)
	for m := range s.Members {
		for n := range s.N {
			top := 0.0
			for k := range row {
				row[k] = w[s.At(m, n, k)]
				top = max(top, math.Abs(row[k]))
			}
			scale, ok := gridScale(row, top, d)
			if !ok {
				return Layer{}, false
			}
			l.Scales[m*s.N+n] = scale
			for k, x := range row {
				codes[s.At(m, n, k)] = nearestCode(x/scale, d)
			}
		}
	}
	l.Weights = ir.FromFloats(ir.Type{DType: to, Shape: slices.Clone(s.Weights().Type.Shape)}, codes)
	return l, true
}

func nearestCode(x float64, d ir.DType) float64 {
	if d.IsInt() {
		return math.RoundToEven(x)
	}
	return minifloat.E4M3FN.Round(x, true)
}

// gridScale returns the greatest scale for which every weight is a number of the format.
func gridScale(row []float64, top float64, d ir.DType) (float64, bool) {
	if top == 0 {
		return 1, true
	}
	for code := 1; code < 128; code++ {
		greatest := float64(code)
		if !d.IsInt() {
			if code == 127 {
				break
			}
			greatest = minifloat.E4M3FN.Decode(uint32(code))
		}
		scale := float64(float32(top / greatest))
		fits := true
		for _, x := range row {
			c := nearestCode(x/scale, d)
			if math.Abs(c*scale-x) > gridError*math.Abs(x)+1e-7*scale {
				fits = false
				break
			}
		}
		if fits {
			return scale, true
		}
	}
	return 0, false
}

// onBlocks finds weights that a file has in e2m1 with a scale for each 16, or a multiple of 16, along K: every output
// channel's are a scale times e4m3 scales of blocks times numbers of e2m1. Of rows of one block onGrid does as well, and a
// row of a few weights lies on many grids.
func onBlocks(s *Site) (Layer, bool) {
	if s.Anchor.Op.Name == "SegmentedMatVec" || s.K < 2*BlockSize || s.Blocks() < 2 {
		return Layer{}, false
	}
	w := s.Weights().Const.Floats()
	codes, scales := make([]float64, len(w)), make([]float64, s.Members*s.N*s.Blocks())
	l := Layer{Scales: make([]float64, s.Members*s.N)}
	members := make([][]int, s.Blocks())
	for k := range s.K {
		members[s.Block(k)] = append(members[s.Block(k)], k)
	}
	for m := range s.Members {
		for n := range s.N {
			units := make([][]float64, len(members))
			for b, ks := range members {
				block := make([]float64, len(ks))
				for i, k := range ks {
					block[i] = w[s.At(m, n, k)]
				}
				var ok bool
				if units[b], ok = unitsE2M1(block); !ok {
					return Layer{}, false
				}
			}
			scale, factors, ok := commonScale(units)
			if !ok {
				return Layer{}, false
			}
			l.Scales[m*s.N+n] = scale
			for b, ks := range members {
				scales[s.BlockAt(m, n, b)] = factors[b]
				for _, k := range ks {
					if at := s.At(m, n, k); w[at] != 0 {
						codes[at] = minifloat.E2M1.Round(w[at]/(scale*factors[b]), true)
					}
				}
			}
		}
	}
	l.Weights = ir.FromFloats(ir.Type{DType: ir.Float4E2M1, Shape: slices.Clone(s.Weights().Type.Shape)}, codes)
	l.Blocks = ir.FromFloats(ir.Type{DType: ir.Float8E4M3FN, Shape: s.BlockShape()}, scales)
	return l, true
}

// unitsE2M1 returns the scales by which all numbers of a block are numbers of e2m1; none of a block of zeros, which has all.
func unitsE2M1(block []float64) ([]float64, bool) {
	top := 0.0
	for _, x := range block {
		top = max(top, math.Abs(x))
	}
	if top == 0 {
		return nil, true
	}
	var units []float64
	for code := uint32(1); code < 8; code++ {
		unit := top / minifloat.E2M1.Decode(code)
		if !slices.ContainsFunc(block, func(x float64) bool {
			return math.Abs(minifloat.E2M1.Round(x/unit, true)*unit-x) > gridError*math.Abs(x)
		}) {
			units = append(units, unit)
		}
	}
	return units, len(units) > 0
}

// commonScale returns a number of which one unit of every block is a multiple by an e4m3 number, and these multiples.
func commonScale(units [][]float64) (float64, []float64, bool) {
	first := slices.IndexFunc(units, func(u []float64) bool { return u != nil })
	factors := make([]float64, len(units))
	if first < 0 {
		return 1, factors, true
	}
	largest := 0.0 // of the units that the blocks need at least
	for _, u := range units {
		if u != nil {
			largest = max(largest, slices.Min(u))
		}
	}
	for _, unit := range units[first] {
		for mantissa := 8; mantissa < 16; mantissa++ {
			scale := unit / float64(mantissa)
			// The largest block takes the top binade of e4m3, so that the others find their place below.
			_, exp := math.Frexp(largest / scale)
			scale = ir.RoundTo(ir.Float32, math.Ldexp(scale, exp-9))
			if largest/scale > 448*(1+gridError) {
				scale *= 2
			}
			if multiples(units, scale, factors) {
				return scale, factors, true
			}
		}
	}
	return 0, nil, false
}

// multiples fills in factors, e4m3 numbers by which scale gives a unit of each block.
func multiples(units [][]float64, scale float64, factors []float64) bool {
	for b, u := range units {
		factors[b] = 0
		for _, unit := range u {
			f := minifloat.E4M3FN.Round(unit/scale, true)
			if math.Abs(f*scale-unit) <= gridError*unit {
				factors[b] = f
				break
			}
		}
		if factors[b] == 0 && u != nil {
			return false
		}
	}
	return true
}
