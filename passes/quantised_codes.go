package passes

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Weights that a file has quantised are constants that say how they were stored (ir.Codes). Passes move and scale
// them like any others, their scales with them.

// codeError is the relative error of a weight that is a number times scales, each product rounded to f32.
const codeError = 4e-7

// fromFile is the layer that stores a site's weights as the file did: e4m3, e2m1 with a scale for each 16 along the
// input channels, or integers and other floats of 8 bits, which 16 bits hold exactly. It reports false where the file
// has not quantised them, or in a form that no kernel multiplies.
func fromFile(s *Site, half ir.DType) (Layer, bool) {
	w := s.Weights().Const
	if w.Codes == nil {
		return Layer{}, false
	}
	c := newCodeReader(w)
	l := Layer{Scales: make([]float64, s.Members*s.N)}
	codes := make([]float64, w.Numel())
	for m := range s.Members {
		for n := range s.N {
			scale := 0.0
			for k := range s.K {
				at := s.At(m, n, k)
				if c.values[at] == 0 {
					continue
				}
				if scale == 0 {
					scale = c.scale[at]
				}
				var ok bool
				if codes[at], ok = c.number(at); !ok || c.scale[at] != scale {
					return Layer{}, false
				}
			}
			if scale == 0 {
				scale = 1
			}
			l.Scales[m*s.N+n] = scale
		}
	}
	d := w.Codes.DType
	switch {
	case d == ir.Float4E2M1 && c.blocks != nil:
		var ok bool
		if l.Blocks, ok = c.blocksOf(s, l.Scales); !ok {
			if l.Blocks, l.Across = c.blocksAcross(s); !l.Across {
				return Layer{}, false
			}
		}
	case c.blocks != nil:
		return Layer{}, false
	case d == ir.Float6E3M2 && !s.Segmented():
	case d != ir.Float8E4M3FN:
		d = half
	}
	l.Weights = ir.FromFloats(ir.Type{DType: d, Shape: slices.Clone(w.Shape)}, codes)
	return l, true
}

// tableOf is a constant that a file has quantised to floats with one scale for all, as a loop reads it: in 8 bits, or
// in those of half where blocks have scales too. nil: it has other scales or numbers.
func tableOf(t *ir.Tensor, half ir.DType) (*ir.Tensor, ir.Storage) {
	if t.Codes == nil || !t.Codes.DType.IsFloat() || t.Codes.DType.Bits() > 8 || !uniform(t.Codes.Scale.Floats()) {
		return nil, ir.Storage{}
	}
	c := newCodeReader(t)
	s := ir.Storage{DType: t.Codes.DType, Scale: c.scale[0]}
	numbers := make([]float64, len(c.values))
	for i := range numbers {
		var ok bool
		if numbers[i], ok = c.number(i); !ok {
			return nil, ir.Storage{}
		}
		if c.blocks != nil {
			s.DType = half
			numbers[i] *= c.blocks[i]
		}
	}
	return ir.FromFloats(ir.Type{DType: s.DType, Shape: slices.Clone(t.Shape)}, numbers), s
}

// FromFile says which type a file has quantised a site's weights to, if it has, and which type stores them in
// programs with 16-bit values of type half: ok is false where no kernel multiplies what the file has, so that the
// program does not keep it.
func (s *Site) FromFile(half ir.DType) (file *ir.Codes, stored ir.DType, ok bool) {
	if file = s.Weights().Const.Codes; file == nil {
		return nil, half, false
	}
	l, ok := fromFile(s, half)
	if !ok {
		return file, half, false
	}
	return file, l.Weights.DType, true
}

// codeReader reads constants as the numbers that a file stored.
type codeReader struct {
	values, scale []float64
	blocks        []float64 // nil: 1
	round         func(x float64) float64
}

func newCodeReader(w *ir.Tensor) *codeReader {
	c := &codeReader{values: w.Floats(), scale: w.Codes.Scale.Floats(), round: math.RoundToEven}
	if w.Codes.Blocks != nil {
		c.blocks = w.Codes.Blocks.Floats()
	}
	if f := w.Codes.DType.Format(); f != nil {
		c.round = func(x float64) float64 { return f.Round(x, true) }
	}
	return c
}

// number returns what the file stored for element i: its value divided by its scales.
func (c *codeReader) number(i int) (float64, bool) {
	scale := c.scale[i]
	if c.blocks != nil {
		scale *= c.blocks[i]
	}
	x := c.round(c.values[i] / scale)
	return x, math.Abs(float64(x*scale)-c.values[i]) <= codeError*math.Abs(c.values[i])
}

// blocksOf are the scales of a site's blocks. Those of a file may be other powers of two: what they have in common
// goes to the scale of the channel.
func (c *codeReader) blocksOf(s *Site, scales []float64) (*ir.Tensor, bool) {
	if s.Segmented() || s.Blocks() < 2 {
		return nil, false
	}
	out := make([]float64, s.Members*s.N*s.Blocks())
	for m := range s.Members {
		for n := range s.N {
			row := make([]float64, s.Blocks())
			for k := range s.K {
				switch x := c.blocks[s.At(m, n, k)]; {
				case c.values[s.At(m, n, k)] == 0:
				case row[s.Block(k)] == 0:
					row[s.Block(k)] = x
				case row[s.Block(k)] != x:
					return nil, false
				}
			}
			common := 1.0
			if !areScales(row, common) {
				_, exp := math.Frexp(slices.Max(row))
				common = math.Ldexp(1, exp-9) // the largest block has e4m3's largest exponent
				if !areScales(row, common) {
					return nil, false
				}
			}
			scales[m*s.N+n] *= common
			for b, x := range row {
				out[s.BlockAt(m, n, b)] = x / common
			}
		}
	}
	return ir.FromFloats(ir.Type{DType: ir.BlockScale, Shape: s.BlockShape()}, out), true
}

// blocksAcross are the scales of blocks along the output channels, as the way back through a layer reads what the way
// forth has blocks of along the input channels.
func (c *codeReader) blocksAcross(s *Site) (*ir.Tensor, bool) {
	g := &s.Geometry
	if s.Segmented() || g.Group > 1 || s.N <= ir.BlockSize {
		return nil, false
	}
	shape := slices.Clone(s.Weights().Type.Shape)
	axis := g.OutputAxis()
	if s.Node.Region.Members > 0 {
		axis++
	}
	inner, size := ir.Type{Shape: shape[axis+1:]}.Numel(), shape[axis]
	blocks := (size + ir.BlockSize - 1) / ir.BlockSize
	shape[axis] = blocks
	out := make([]float64, ir.Type{Shape: shape}.Numel())
	for i, x := range c.blocks {
		at := (i/inner/size*blocks+i/inner%size/ir.BlockSize)*inner + i%inner
		switch {
		case c.values[i] == 0:
		case out[at] == 0:
			out[at] = x
		case out[at] != x:
			return nil, false
		}
	}
	return ir.FromFloats(ir.Type{DType: ir.BlockScale, Shape: shape}, out), areScales(out, 1)
}

// areScales reports whether all numbers are scales of blocks times a unit.
func areScales(xs []float64, unit float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return ir.BlockScale.Format().Round(x/unit, true) != x/unit })
}

// moved applies what moves elements to a constant, and to the scales that a file stored it with.
func moved(t *ir.Tensor, move func(*ir.Tensor) *ir.Tensor) *ir.Tensor {
	out := move(t)
	if t.Codes == nil || out == t {
		return out
	}
	c := *t.Codes
	if c.Scale = move(c.Scale); c.Blocks != nil {
		c.Blocks = move(c.Blocks)
	}
	out.Codes = &c
	return out
}

// codesOf says how the constant that a node's constants make was stored, if a file quantised it: nil where it was
// not, or where the node leaves nothing of that.
func codesOf(n *ir.Node) (*ir.Codes, error) {
	again := func(inputs ...*ir.Tensor) (*ir.Tensor, error) {
		m := *n
		m.Inputs = make([]*ir.Value, len(inputs))
		for i, t := range inputs {
			m.Inputs[i] = &ir.Value{Type: t.Type, Const: t}
		}
		out, err := evaluate(&m)
		if err != nil {
			return nil, err
		}
		return out[0].Tensor(), nil
	}
	x := n.Inputs[0].Const
	var err error
	switch {
	case n.Op.Name == "DequantizeLinear":
		one, scale := ir.Splat(ir.Type{DType: x.DType, Shape: x.Shape}, 1), n.Inputs[1].Const
		if x.DType.IsInt() {
			one = ir.SplatInt(one.Type, 1)
		}
		c := &ir.Codes{DType: x.DType}
		switch of := scale.Codes; {
		case n.Attrs.Int("block", 0) == 0:
			c.Scale, err = again(one, scale)
		case of == nil:
			c.Scale = ir.Splat(ir.Type{DType: ir.Float32, Shape: x.Shape}, 1)
			c.Blocks, err = again(one, scale)
		default: // scales of blocks that have a scale themselves
			if c.Scale, err = again(one, of.Scale); err == nil {
				c.Blocks, err = again(one, numbers(scale))
			}
		}
		return c, err
	case x.Codes != nil && n.Op.Kind == ir.KindMovement && len(n.Inputs) == 1:
		c := *x.Codes
		if c.Scale, err = again(c.Scale); err == nil && c.Blocks != nil {
			c.Blocks, err = again(c.Blocks)
		}
		return &c, err
	}
	return nil, nil
}

// numbers are the elements of a constant as the file stored them, without their scales.
func numbers(t *ir.Tensor) *ir.Tensor {
	c := newCodeReader(t)
	xs := make([]float64, len(c.values))
	for i := range xs {
		if c.values[i] != 0 {
			xs[i], _ = c.number(i)
		}
	}
	return ir.FromFloats(t.Type, xs)
}

// scaledCodes says how a constant was stored whose element i has been multiplied by factor(i).
func scaledCodes(c *ir.Codes, factor func(i int) float64) *ir.Codes {
	if c == nil {
		return nil
	}
	return &ir.Codes{DType: c.DType, Scale: scaledTensor(c.Scale, factor), Blocks: c.Blocks}
}

// scaledTensor multiplies element i by factor(i).
func scaledTensor(t *ir.Tensor, factor func(i int) float64) *ir.Tensor {
	xs := t.Floats()
	for i := range xs {
		xs[i] = float64(xs[i] * factor(i))
	}
	return ir.FromFloats(ir.Type{DType: t.DType, Shape: slices.Clone(t.Shape)}, xs)
}
