package contraction

import (
	"crypto/sha256"
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
)

// Key implements kernel.Kernel: the target; the signature, which distinguishes bodies, types and alignments; and what
// depends on constants' values and on other readers of weights, which the signature does not contain.
func (k *tiled) Key() string {
	e := k.plan.epilogue
	key := fmt.Sprint(k.ctx.Target.Name, k.Signature(), k.p.num, e.size, e.reads, e.group, e.wide, k.plan.packed)
	if w := k.plan.tiles; w != nil {
		key += fmt.Sprint(" ", w.rows, w.cols, w.width, w.bytes, w.byK)
	}
	if k.p.producer != nil {
		key += fmt.Sprintf(" %x", contents(k.region))
	}
	return key
}

// contents is a digest of what a region's signature leaves out: values of constants and scales of storage. They
// matter because producers are emitted to count their work.
func contents(region *ir.Node) []byte {
	h := sha256.New()
	add := func(values []*ir.Value) {
		for _, v := range values {
			if v != nil && v.IsConst() {
				fmt.Fprintln(h, v.Type, v.Const.Splat, len(v.Const.Data))
				h.Write(v.Const.Data)
			}
		}
	}
	for _, part := range region.Parts() {
		add(part.Inputs)
		for _, n := range part.Region.Body.Nodes {
			add(n.Inputs)
		}
		fmt.Fprintf(h, "%+v %+v\n", part.Region.Operands, part.Region.Results)
	}
	return h.Sum(nil)
}
