package ptxrand

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// rows returns the rows of the table with one of these actions. Those that only other compilers' PTX has would make the others
// rarer; most have no native form, and each is compared with the interpreter on its own.
func rows(does ...ptx.Action) (out []*ptx.Def) {
	for _, op := range ptx.Opcodes() {
		if d := ptx.Lookup(op); slices.Contains(does, d.Does) && !d.Foreign {
			out = append(out, d)
		}
	}
	return out
}

// plain are the instructions on registers of one thread, warpWide those of a whole warp.
var (
	plain    = rows(ptx.Compute)
	warpWide = rows(ptx.Multiply, ptx.Shuffle, ptx.MoveMatrix, ptx.LoadMatrix)
	loads    = accesses(ptx.Load)
	stores   = accesses(ptx.Store)
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
	for _, d := range rows(does) {
		a := access{Def: d, at: 1}
		if d.Writes() {
			a = access{Def: d, data: 1}
		}
		out[d.Args[a.at].Space] = append(out[d.Args[a.at].Space], a)
	}
	return out
}
