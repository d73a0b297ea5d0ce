package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// blockSize is the number of elements along K that share a scale in NVFP4.
const blockSize = 16

// blocks are the scales of e2m1 weights: element i of the weights is multiplied by element at(i) of data.
type blocks struct {
	data  *ir.Tensor // e4m3
	axis  int        // extent of the dimension that is cut into blocks
	inner int        // elements of one index of that dimension
}

func (b *blocks) at(i int) int {
	per := (b.axis + blockSize - 1) / blockSize
	return (i/(b.axis*b.inner)*per+i/b.inner%b.axis/blockSize)*b.inner + i%b.inner
}

// blocksOf reads a DequantizeLinear of constant weights with a scale for every 16 along an axis.
func blocksOf(region, n *ir.Node, w *source) (*blocks, error) {
	scales, err := trace(region, n.Inputs[1])
	if err != nil {
		return nil, err
	}
	shape := n.Inputs[0].Type.Shape
	axis := n.Attrs.Int("axis", 1)
	switch {
	case w.data == nil || scales.data == nil || n.In(2) != nil:
		return nil, fmt.Errorf("%s (DequantizeLinear) of what is not constant", n.Name)
	case w.dtype != ir.Float4E2M1 || scales.dtype != ir.Float8E4M3FN || n.Attrs.Int("block", 0) != blockSize:
		return nil, fmt.Errorf("%s (DequantizeLinear) of %s by %s in blocks of %d", n.Name, w.dtype, scales.dtype, n.Attrs.Int("block", 0))
	case w.member != 0 != (scales.member != 0):
		return nil, fmt.Errorf("%s (DequantizeLinear): members share weights or scales", n.Name)
	}
	b := &blocks{data: scales.data, axis: shape[axis], inner: 1}
	for _, d := range shape[axis+1:] {
		b.inner *= d
	}
	return b, nil
}

// blocksOfVariable reads a DequantizeLinear of a variable with a scale for every 16 along its last dimension.
func blocksOfVariable(region, n *ir.Node, x *source) (*source, error) {
	scales, err := trace(region, n.Inputs[1])
	if err != nil {
		return nil, err
	}
	shape := n.Inputs[0].Type.Shape
	dense := func(s *source, d ir.DType) bool {
		return s.dtype == d && s.view.Offset == 0 && len(s.view.Dims) == len(shape) && s.data == nil
	}
	switch {
	case !dense(x, ir.Float4E2M1) || !dense(scales, ir.Float8E4M3FN) || n.In(2) != nil || n.Attrs.Int("block", 0) != blockSize || n.Attrs.Int("axis", 1) != len(shape)-1:
		return nil, fmt.Errorf("%s (DequantizeLinear) of variables other than e2m1 with an e4m3 scale for 16 of the last dimension", n.Name)
	case shape[len(shape)-1]%blockSize != 0:
		return nil, fmt.Errorf("%s (DequantizeLinear) of %d elements: block-scaled products want whole blocks of %d", n.Name, shape[len(shape)-1], blockSize)
	case x.member != 0 != (scales.member != 0):
		return nil, fmt.Errorf("%s (DequantizeLinear): members share elements or scales", n.Name)
	}
	return scales, nil
}

// dividedBy is the operand in memory units of f neighbouring elements.
func (o *operand) dividedBy(f int) (operand, error) {
	d := *o
	ok := o.offset%f == 0
	d.offset /= f
	divide := func(modes []layout.Mode) []layout.Mode {
		out := make([]layout.Mode, len(modes))
		for i, m := range modes {
			switch {
			case m.Stride == 1 && m.Size%f == 0:
				m.Size /= f
			case m.Stride%f == 0:
				m.Stride /= f
			default:
				ok = false
			}
			out[i] = m
		}
		return out
	}
	d.row, d.col = divide(o.row), divide(o.col)
	d.z = make([][]layout.Mode, len(o.z))
	for i := range o.z {
		d.z[i] = divide(o.z[i])
	}
	if !ok {
		return d, fmt.Errorf("operand %s is not made of whole blocks", o.value.Name)
	}
	return d, nil
}

// regularBlocks reports whether every 16 of K share a scale, for every column.
func (p *problem) regularBlocks() bool {
	b := p.b.src.blocks
	for k := 0; k < p.k; k++ {
		first := k / blockSize * blockSize
		if b.at(p.b.offset+layout.Offset(p.b.row, k)) != b.at(p.b.offset+layout.Offset(p.b.row, first)) {
			return false
		}
	}
	return true
}

// weights reads constant weights as they are multiplied.
type weights struct {
	raw    []byte
	dtype  ir.DType
	values []float64 // nil where the elements are copied as they are
	scales []byte    // codes of the blocks, where they are packed beside the elements
	blocks *blocks
}

func newWeights(p *problem) *weights {
	src := p.b.src
	w := &weights{dtype: p.b.dtype, blocks: src.blocks}
	if p.num.b == p.b.dtype {
		w.raw = src.data.Dense()
		if w.blocks != nil {
			w.scales = w.blocks.data.Dense()
		}
		return w
	}
	w.values = src.data.Floats()
	if w.blocks != nil {
		scales := w.blocks.data.Floats()
		for i := range w.values {
			w.values[i] *= scales[w.blocks.at(i)]
		}
	}
	return w
}

// nibble is element i of 4-bit weights.
func (w *weights) nibble(i int) byte { return w.raw[i/2] >> (4 * (i % 2)) & 15 }
