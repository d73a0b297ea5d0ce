package jit

import "github.com/spark-compile/spark-compile/internal/ptx"

// loadMatrix is ldmatrix: lanes 8i…8i+7 give the row addresses of matrix i.
func (e *emitter) loadMatrix(in *Inst) {
	trans := bool(in.Def.Eval.(ptx.Transposed))
	if !e.wide {
		e.loadMatrixAVX2(in, trans)
		return
	}
	s := e.sharedAll(in.A, in.Imm, 16)
	for i, row := range in.Vec {
		for g := range 8 {
			e.mov32(rax, s.plus(4*(8*i+g)))
			m := indexed(rShared, rax, 0, 0)
			switch {
			case trans:
				e.vw(vmovups, w128, g, 0, m, nil)
			case g%4 == 0:
				e.vw(vmovups, w128, g/4, 0, m, nil)
			default:
				e.vw(vinsertX, w512, g/4, g/4, m, []byte{byte(g % 4)})
			}
		}
		if trans {
			e.transpose16()
			for g := range 8 {
				if g%4 != 0 {
					e.vw(vinsertX, w512, g&4, g&4, g, []byte{byte(g % 4)})
				}
			}
			e.v(vstoreups, 0, 0, e.r(row, 0))
			e.v(vstoreups, 4, 0, e.r(row, 1))
			continue
		}
		e.v(vstoreups, 0, 0, e.r(row, 0))
		e.v(vstoreups, 1, 0, e.r(row, 1))
	}
}

// moveMatrix is movmatrix: a row of registers holds the matrix row by row.
func moveMatrix(e *emitter, in *Inst) {
	part := func(row int32, g int) mem { return at(rR, int(row)*128-e.biasR+16*g) }
	for g := range 8 {
		e.vw(vmovups, w128, g, 0, part(in.A, g), nil)
	}
	e.transpose16()
	for g := range 8 {
		e.vw(vstoreups, w128, g, 0, part(in.D, g), nil)
	}
}

// transpose16 transposes the 8×8 halfwords in registers 0–7; 8–15 are clobbered, 15 not.
func (e *emitter) transpose16() {
	x := func(o vop, d, a, b int) { e.vw(o, w128, d, a, b, nil) }
	// Pairs of rows: words of columns 0–3, 4–7.
	x(vpunpcklwd, 8, 0, 1)
	x(vpunpckhwd, 9, 0, 1)
	x(vpunpcklwd, 10, 2, 3)
	x(vpunpckhwd, 11, 2, 3)
	x(vpunpcklwd, 0, 4, 5)
	x(vpunpckhwd, 1, 4, 5)
	x(vpunpcklwd, 2, 6, 7)
	x(vpunpckhwd, 3, 6, 7)
	// Four rows: columns 0–1, 2–3, …
	x(vpunpckldq, 4, 8, 10)
	x(vpunpckhdq, 5, 8, 10)
	x(vpunpckldq, 6, 9, 11)
	x(vpunpckhdq, 7, 9, 11)
	x(vpunpckldq, 8, 0, 2)
	x(vpunpckhdq, 9, 0, 2)
	x(vpunpckldq, 10, 1, 3)
	x(vpunpckhdq, 11, 1, 3)
	x(vunpcklpd, 0, 4, 8)
	x(vunpckhpd, 1, 4, 8)
	x(vunpcklpd, 2, 5, 9)
	x(vunpckhpd, 3, 5, 9)
	x(vunpcklpd, 12, 6, 10)
	x(vunpckhpd, 13, 6, 10)
	x(vunpcklpd, 14, 7, 11)
	x(vunpckhpd, 7, 7, 11)
	x(vmovups, 4, 0, 12)
	x(vmovups, 5, 0, 13)
	x(vmovups, 6, 0, 14)
}

func (e *emitter) loadMatrixAVX2(in *Inst, trans bool) {
	e.sharedSome(in.A, in.Imm, 16, -1)
	// The row of addresses may be a result: everything goes through scratch memory.
	s := e.scratch()
	for i := range in.Vec {
		for g := range 8 {
			e.mov32(rax, at(rR, int(in.A)*128-e.biasR+4*(8*i+g)))
			e.alu32i(aluAdd, rax, int32(uint32(in.Imm)-sharedBase))
			e.vw(vmovups, w128, g, 0, indexed(rShared, rax, 0, 0), nil)
		}
		if trans {
			e.transpose16()
		}
		for g := range 8 {
			e.vw(vstoreups, w128, g, 0, s.plus(128*i+16*g), nil)
		}
	}
	for i, row := range in.Vec {
		for c := range 4 {
			e.v(vmovups, 0, 0, s.plus(128*i+32*c))
			e.v(vstoreups, 0, 0, e.r(row, c))
		}
	}
}

// storeMatrix is stmatrix: lanes 8i…8i+7 give the row addresses of matrix i, whose rows lie in the register of four
// lanes each.
func storeMatrix(e *emitter, in *Inst) {
	givers := -1
	if n := 8 * len(in.Vec); n < 32 {
		givers = rEM // free, since a whole warp executes it
		e.movi32(rEM, 1<<n-1)
	}
	e.sharedSome(in.A, in.Imm, 16, givers)
	for i, row := range in.Vec {
		for g := range 8 {
			e.mov32(rax, e.lane(in.A, 8*i+g))
			e.alu32i(aluAdd, rax, int32(uint32(in.Imm)-sharedBase))
			e.vw(vmovups, w128, 0, 0, e.lane(row, 4*g), nil)
			e.vw(vstoreups, w128, 0, 0, indexed(rShared, rax, 0, 0), nil)
		}
	}
}
