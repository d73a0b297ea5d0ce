package ptxrand

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// rows returns the rows of the table with one of these actions: those that this compiler writes, or those that only other compilers'
// PTX has. Of the latter fewer are drawn, since they would make the others rarer.
func rows(foreign bool, does ...ptx.Action) (out []*ptx.Def) {
	for _, op := range ptx.Opcodes() {
		if d := ptx.Lookup(op); slices.Contains(does, d.Does) && d.Foreign == foreign {
			out = append(out, d)
		}
	}
	return out
}

// plain are the instructions on registers of one thread, warpWide those of a whole warp.
var (
	plain           = rows(false, ptx.Compute)
	plainForeign    = rows(true, ptx.Compute)
	warpWide        = rows(false, ptx.Multiply, ptx.Shuffle, ptx.MoveMatrix, ptx.LoadMatrix)
	warpWideForeign = rows(true, ptx.Multiply, ptx.Shuffle, ptx.Reduce, ptx.StoreMatrix)
	loads           = accesses(ptx.Load)
	stores          = accesses(ptx.Store)
)

// access is a row that loads or stores, with the positions of its memory operand and its data.
type access struct {
	*ptx.Def
	at, data int // operands
}

// bytes is how many bytes it moves.
func (a access) bytes() int { return ptx.Bytes(a.Args[a.data].Type) * max(1, a.Args[a.data].Count) }

// accesses returns the rows that load, or store, by space.
func accesses(does ptx.Action) map[string][]access {
	out := map[string][]access{}
	for _, d := range append(rows(false, does), rows(true, does)...) {
		a := access{Def: d, at: 1}
		if d.Writes() {
			a = access{Def: d, data: 1}
		}
		out[d.Args[a.at].Space] = append(out[d.Args[a.at].Space], a)
	}
	return out
}
