package jit

import "github.com/spark-compile/spark-compile/internal/ptx"

// likelyAddresses are examples of the shared addresses of vector loads, by instruction: those of a first warp, with 0
// for what is not known, of instructions executed once each, in their order. Code is arranged by them and right
// without them.
func likelyAddresses(insts []Inst, rows Rows) map[int]*ptx.Row32 {
	values := map[int32]*ptx.Row32{}
	row := func(n int32) *ptx.Row32 {
		v := values[n]
		if v == nil {
			v = new(ptx.Row32)
			values[n] = v
		}
		return v
	}
	for n, value := range rows.Constants {
		for l := range 32 {
			row(n)[l] = value
		}
	}
	for _, n := range rows.Lanes {
		for l := range 32 {
			row(n)[l] = uint32(l)
		}
	}
	addresses := map[int]*ptx.Row32{}
	for pc := range insts {
		in := &insts[pc]
		if loadsVectors(in) {
			v := *row(in.A)
			addresses[pc] = &v
		}
		if f, ok := in.Def.Eval.(func(d, a, b, c *ptx.Row32)); ok && in.Def.Does == ptx.Compute {
			f(row(in.D), row(in.A), row(in.B), row(in.C))
		}
	}
	return addresses
}
