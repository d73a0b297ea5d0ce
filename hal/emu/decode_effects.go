package emu

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// address resolves a memory operand into a row and an offset.
func (d *decoder) address(o ptx.Operand, space string) (row int32, off int64, err error) {
	ad, ok := o.(ptx.Addr)
	if !ok {
		return 0, 0, fmt.Errorf("want an address")
	}
	typ := "u64"
	if space == "shared" {
		typ = "u32"
	}
	row, err = d.row(ad.Base, typ)
	return row, int64(ad.Off), err
}

// effect resolves the operands of an instruction that touches more than registers of its own lane.
func (d *decoder) effect(in *inst, ops []ptx.Operand) (err error) {
	def := in.def
	switch def.Does {
	case ptx.Load, ptx.Store:
		return d.access(in, ops)
	case ptx.Atomic:
		in.size, in.fTwo = 4, def.Eval.(ptx.Combine)
		if in.d, err = d.row(ops[0], def.Args[0].Type); err != nil {
			return err
		}
		if in.b, err = d.row(ops[2], def.Args[2].Type); err != nil {
			return err
		}
		in.a, in.imm, err = d.address(ops[1], def.Args[1].Space)
	case ptx.Reduce:
		in.fTwo = def.Eval.(ptx.Combine)
		for i, slot := range []*int32{&in.d, &in.a, &in.b} {
			if *slot, err = d.row(ops[i], def.Args[i].Type); err != nil {
				return err
			}
		}
	case ptx.Prefetch:
		in.size, in.b = 1, -1
		if len(ops) > 1 { // of a bulk prefetch: how many bytes
			in.size = 16
			if in.b, err = d.row(ops[1], "u32"); err != nil {
				return err
			}
		}
		in.a, in.imm, err = d.address(ops[0], "global")
	case ptx.CopyAsync:
		n, ok := ops[2].(ptx.Imm)
		if sizes := def.Eval.(ptx.CopySizes); !ok || !slices.Contains(sizes, int(n)) {
			return fmt.Errorf("its size is one of %v bytes, not %v", []int(sizes), ops[2])
		}
		in.size = uint8(n)
		if in.d, in.imm, err = d.address(ops[0], "shared"); err != nil {
			return err
		}
		in.vec = []int32{int32(in.imm)}
		if in.a, in.imm, err = d.address(ops[1], "global"); err != nil {
			return err
		}
		in.b, err = d.row(ops[3], "u32")
	case ptx.WaitCopies:
		in.imm = -1
		if len(ops) > 0 {
			in.imm = int64(ops[0].(ptx.Imm))
		}
	case ptx.Multiply:
		in.fMMA = def.Eval.(func(r []row32, v []int32))
		for i, a := range def.Args {
			v, err := d.rows(ops[i], a.Type)
			if err != nil {
				return err
			}
			in.vec = append(in.vec, v...)
		}
	case ptx.LoadMatrix:
		in.size = 16
		if in.vec, err = d.rows(ops[0], "b32"); err != nil {
			return err
		}
		in.a, in.imm, err = d.address(ops[1], "shared")
	case ptx.StoreMatrix:
		in.size = 16
		if in.vec, err = d.rows(ops[1], "b32"); err != nil {
			return err
		}
		in.a, in.imm, err = d.address(ops[0], "shared")
	case ptx.MoveMatrix:
		in.d = d.reg(ops[0].(ptx.Reg))
		in.a, err = d.row(ops[1], "b32")
	case ptx.Shuffle:
		pr := ops[0].(ptx.Pair)
		in.vec = []int32{int32(pr.P.ID), 0}
		in.d = d.reg(pr.D)
		for i, slot := range []*int32{&in.a, &in.b, &in.c, &in.vec[1]} {
			if *slot, err = d.row(ops[i+1], "b32"); err != nil {
				return err
			}
		}
	case ptx.Barrier:
		in.imm = int64(ops[0].(ptx.Imm))
		if in.imm < 0 || in.imm > 15 {
			return fmt.Errorf("barriers are numbered 0 to 15")
		}
	case ptx.WarpBarrier:
		in.a, err = d.row(ops[0], "b32")
	case ptx.GridWait:
		d.p.waits = true
	}
	return err
}

// access resolves the operands of a load or store.
func (d *decoder) access(in *inst, ops []ptx.Operand) (err error) {
	at, data := 1, 0
	if in.def.Does == ptx.Store {
		at, data = 0, 1
	}
	typ, space := in.def.Args[data].Type, in.def.Args[at].Space
	in.size, in.wide, in.signed = uint8(ptx.Bytes(typ)), isWide(typ), typ[0] == 's'
	in.kind = map[string]kind{"param": kindParam, "global": kindGlobal, "shared": kindShared}[space]
	if in.vec, err = d.rows(ops[data], typ); err != nil {
		return err
	}
	if in.kind == kindParam {
		ad := ops[at].(ptx.Addr)
		s, ok := ad.Base.(ptx.Sym)
		off, known := d.params[string(s)]
		if !ok || !known {
			return fmt.Errorf("unknown parameter")
		}
		in.imm = int64(off + ad.Off)
		if in.imm < 0 || int(in.imm)+int(in.size) > d.p.paramBytes {
			return fmt.Errorf("reads past the parameters")
		}
		return nil
	}
	if in.def.Does == ptx.Store {
		grain := &d.p.grainGlobal
		if in.kind == kindShared {
			grain = &d.p.grainShared
		}
		*grain = min(*grain, int(in.size))
	}
	in.a, in.imm, err = d.address(ops[at], space)
	return err
}
