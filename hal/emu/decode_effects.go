package emu

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// address resolves a memory operand into a row and an offset.
func (d *decoder) address(in *inst, o ptx.Operand, space string) (row int32, off int64, err error) {
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

func sizeOf(typ string) uint8 {
	switch typ {
	case "b8", "u8", "s8":
		return 1
	case "b16", "u16", "s16", "f16", "bf16":
		return 2
	case "b64", "u64", "s64", "f64":
		return 8
	}
	return 4
}

func (d *decoder) memory(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	for _, m := range def.Mods {
		switch m {
		case "acquire":
			in.order = acquire
		case "release":
			in.order = release
		case "acq_rel":
			in.order = acqRel
		}
	}
	data := func(i int) error {
		typ := def.Args[i].Type
		in.size, in.wide, in.signed = sizeOf(typ), isWide(typ), typ[0] == 's'
		in.vec, err = d.rows(ops[i], typ)
		return err
	}
	addr := func(i int) error {
		in.a, in.imm, err = d.address(in, ops[i], def.Args[i].Space)
		return err
	}
	switch {
	case def.Name == "ld" && def.Args[1].Space == "param":
		in.kind = kindLoadParam
		ad := ops[1].(ptx.Addr)
		s, ok := ad.Base.(ptx.Sym)
		off, known := d.params[string(s)]
		if !ok || !known {
			return fmt.Errorf("unknown parameter")
		}
		if err := data(0); err != nil {
			return err
		}
		in.imm = int64(off + ad.Off)
		if in.imm < 0 || int(in.imm)+int(in.size) > d.p.paramBytes {
			return fmt.Errorf("reads past the parameters")
		}
		return nil
	case def.Name == "ld" && def.Args[1].Space == "global":
		in.kind = kindLoadGlobal
	case def.Name == "ld" && def.Args[1].Space == "shared":
		in.kind = kindLoadShared
	case def.Name == "st" && def.Args[0].Space == "global":
		in.kind = kindStoreGlobal
	case def.Name == "st" && def.Args[0].Space == "shared":
		in.kind = kindStoreShared
	case def.Name == "atom" && strings.HasSuffix(def.Op, ".add.u32"):
		in.kind = kindAtomic
		if in.order == plain {
			in.order = relaxed
		}
		if in.d, err = d.row(ops[0], "u32"); err != nil {
			return err
		}
		if in.b, err = d.row(ops[2], "u32"); err != nil {
			return err
		}
		in.size = 4
		return addr(1)
	case def.Name == "prefetch":
		in.kind, in.size = kindPrefetch, 1
		return addr(0)
	case def.Name == "cp" && len(def.Args) == 4:
		in.kind = kindCopyAsync
		n, ok := ops[2].(ptx.Imm)
		if !ok || n != 16 && (def.Mods[1] == "cg" || n != 4 && n != 8) {
			return fmt.Errorf("copies 16 bytes, or with .ca also 4 or 8")
		}
		in.size = uint8(n)
		if in.d, in.imm, err = d.address(in, ops[0], "shared"); err != nil {
			return err
		}
		in.vec = []int32{int32(in.imm)}
		if in.a, in.imm, err = d.address(in, ops[1], "global"); err != nil {
			return err
		}
		in.b, err = d.row(ops[3], "u32")
		return err
	case def.Op == "cp.async.commit_group":
		in.kind = kindCommit
		return nil
	case def.Op == "cp.async.wait_group":
		in.kind, in.imm = kindWaitGroup, int64(ops[0].(ptx.Imm))
		return nil
	case def.Op == "cp.async.wait_all":
		in.kind, in.imm = kindWaitGroup, -1
		return nil
	default:
		return fmt.Errorf("the emulator does not know this instruction")
	}
	ai, di := 1, 0
	if def.Name == "st" {
		ai, di = 0, 1
	}
	if err := data(di); err != nil {
		return err
	}
	if def.Name == "st" {
		grain := &d.p.grainGlobal
		if in.kind == kindStoreShared {
			grain = &d.p.grainShared
		}
		*grain = min(*grain, int(in.size))
	}
	return addr(ai)
}

func (d *decoder) warpWide(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	switch def.Name {
	case "mma":
		in.kind = kindMMA
		if in.fMMA = mmaOf(def.Op); in.fMMA == nil {
			return fmt.Errorf("the emulator does not know this instruction")
		}
		for i, a := range def.Args {
			v, err := d.rows(ops[i], a.Type)
			if err != nil {
				return err
			}
			in.vec = append(in.vec, v...)
		}
		if len(in.vec) == 20 {
			in.kind = kindMMAScaled
		}
		return nil
	case "ldmatrix":
		in.kind, in.size = kindLoadMatrix, 16
		for _, m := range def.Mods {
			in.trans = in.trans || m == "trans"
		}
		if in.vec, err = d.rows(ops[0], "b32"); err != nil {
			return err
		}
		in.a, in.imm, err = d.address(in, ops[1], "shared")
		return err
	case "shfl":
		in.kind = kindShuffle
		pr := ops[0].(ptx.Pair)
		in.vec = []int32{int32(pr.P.ID), 0}
		in.d = d.reg(pr.D)
		in.imm = int64(shuffleModes[def.Mods[1]])
		for i, slot := range []*int32{&in.a, &in.b, &in.c, &in.vec[1]} {
			if *slot, err = d.row(ops[i+1], "b32"); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the emulator does not know this instruction")
}

func (d *decoder) control(in *inst, def *ptx.Def, ops []ptx.Operand) (err error) {
	switch def.Op {
	case "bra", "bra.uni":
		in.kind, in.uniform = kindBranch, def.Op == "bra.uni"
		t, ok := d.labels[string(ops[0].(ptx.Ref))]
		if !ok {
			return fmt.Errorf("unknown label")
		}
		in.imm = int64(t)
	case "ret", "exit":
		in.kind = kindExit
	case "bar.sync":
		in.kind, in.imm = kindBarrier, int64(ops[0].(ptx.Imm))
		if in.imm < 0 || in.imm > 15 {
			return fmt.Errorf("barriers are numbered 0 to 15")
		}
	case "bar.warp.sync":
		in.kind = kindWarpBarrier
		in.a, err = d.row(ops[0], "b32")
	case "membar.gl", "fence.acq_rel.gpu":
		in.kind = kindFence
	case "griddepcontrol.wait":
		in.kind = kindGridWait
		d.p.waits = true
	case "griddepcontrol.launch_dependents":
		in.kind = kindNop
	default:
		return fmt.Errorf("the emulator does not know this instruction")
	}
	return err
}
