package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// An epilogue that stores NVFP4: a thread finishes the 16 columns of a block.

// wholeBlocks returns an error if the output's blocks of 16 are not columns of the product.
func (p *problem) wholeBlocks() error {
	if p.quantise != nil && !runs(&p.outs[0].operand, ir.BlockSize) {
		return fmt.Errorf("%s (BlockQuantize): 16 neighbours of the output are not 16 columns of the product", p.quantise.Name)
	}
	return nil
}

// blockStorer is storer where a group of results is a block of NVFP4.
func (g *gen) blockStorer() storer {
	o := &g.p.outs[0].operand
	codes, scales, origin := g.pointer(g.plan.outs[0]), g.pointer(g.plan.outScales), imm(o.offset)
	for i, modes := range o.z {
		origin = g.add(origin, g.offset(modes, g.z[i]))
	}
	scale := g.p.quantise.Attrs.Float("scale", 1)
	return func(m, n num, v []ptx.Reg) {
		at := g.add(origin, g.add(g.offset(o.row, m), g.offset(o.col, n)))
		words, s := expr.QuantizeBlock(g.Kernel, v, scale)
		g.I("st.global.v2.b32", ptx.At(g.address(codes, g.div(at, 2), 1), 0), ptx.V(words[:]...))
		g.I("st.global.u8", ptx.At(g.address(scales, g.div(at, ir.BlockSize), 1), 0), s)
	}
}

// runs reports whether every group of columns is consecutive in memory and begins at a multiple of group.
func runs(o *operand, group int) bool {
	if o.offset%group != 0 || layout.Run(o.col)%group != 0 {
		return false
	}
	col := layout.Coalesce(o.col)
	all := [][]layout.Mode{o.row, col[:len(col)-1]}
	for _, modes := range append(all, o.z...) {
		for _, m := range modes {
			if m.Stride%group != 0 {
				return false
			}
		}
	}
	return true
}
