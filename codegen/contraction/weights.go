package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// blockSize is the number of elements along K that share a scale.
const blockSize = ir.BlockSize

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

// blocksOf are the scales of a constant operand of a region.
func blocksOf(region *ir.Node, i int) *blocks {
	o, shape := region.Region.Operands[i], region.Region.Body.Inputs[i].Type.Shape
	return &blocks{data: region.BlockScales(i).Const, axis: shape[o.BlockAxis], inner: ir.Type{Shape: shape[o.BlockAxis+1:]}.Numel()}
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

// blocksAcross reports whether every 16 columns share a scale, for every k.
func (p *problem) blocksAcross() bool {
	b := p.b.src.blocks
	for _, k := range []int{0, p.k - 1} {
		row := p.b.offset + layout.Offset(p.b.row, k)
		for n := 0; n < p.n; n++ {
			if b.at(row+layout.Offset(p.b.col, n)) != b.at(row+layout.Offset(p.b.col, n/blockSize*blockSize)) {
				return false
			}
		}
	}
	return true
}

// weights reads constant weights as they are multiplied.
type weights struct {
	raw    []byte
	values []float64 // nil where the elements are copied as they are
	rest   []float64 // second terms; nil where there is one
	scales []byte    // codes of the blocks, where they are packed with the elements
	blocks *blocks
}

func newWeights(p *problem) *weights {
	src := p.b.src
	w := &weights{blocks: src.blocks}
	if p.num.b == p.b.dtype && src.terms < 2 {
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
	if src.terms == 2 {
		w.inTerms(p.num.termsB)
	}
	return w
}

// inTerms rounds the weights to the sum of two e4m3: the nearest, and the nearest to the remainder. It stores the
// terms separately where they are multiplied so. For f16 weights, either term is exact in f16, and so is their sum.
func (w *weights) inTerms(terms int) {
	if terms == 2 {
		w.rest = make([]float64, len(w.values))
	}
	for i, x := range w.values {
		hi := ir.RoundTo(ir.Float8E4M3FN, x)
		lo := ir.RoundTo(ir.Float8E4M3FN, x-hi)
		if terms == 2 {
			w.values[i], w.rest[i] = hi, lo
		} else {
			w.values[i] = hi + lo
		}
	}
}

// nibble is element i of 4-bit weights.
func (w *weights) nibble(i int) byte { return w.raw[i/2] >> (4 * (i % 2)) & 15 }
