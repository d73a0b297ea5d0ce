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
