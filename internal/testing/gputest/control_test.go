package gputest

import (
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// echo is a case that reads and writes one word per item.
func echo(d *ptx.Def, name string) *Case {
	c := &Case{Name: name, Op: d.Op, Blocks: blocks, Threads: threads, Output: 4 * items}
	c.Inputs = [][]byte{valuesFor(name).bytes(4 * items)}
	return c
}

// shuffles makes a case for whole warps and one for segments of 8 lanes, with a lane or distance of its own for each
// lane. The operand c is the clamp and, from bit 8, the mask of segments (PTX ISA, shfl.sync).
func shuffles(d *ptx.Def) []*Case {
	var all []*Case
	for _, s := range []struct {
		name     string
		segments int
	}{{"", 0}, {"+segments", 24 << 8}} {
		c := echo(d, d.Op+s.name)
		v := valuesFor(c.Name + " lanes")
		lanes := make([]uint64, items)
		for i := range lanes {
			lanes[i] = v.Uint64N(32)
		}
		c.Inputs = append(c.Inputs, pack(4, lanes))
		clamp := 31
		if d.Mods[1] == "up" {
			clamp = 0
		}
		c.Output = 8 * items
		c.emit = func(b *body) {
			x, lane := b.load(0, ptx.B32, 1)[0], b.load(1, ptx.B32, 1)[0]
			out := ptx.Pair{D: b.Reg(ptx.B32), P: b.Reg(ptx.Pred)}
			b.I(d.Op, out, x, lane, ptx.Imm(clamp|s.segments), ptx.Imm(-1))
			b.store(out.D, out.P)
		}
		all = append(all, c)
	}
	return all
}

// reduction combines the words of each warp.
func reduction(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.emit = func(b *body) {
		out := b.Reg(ptx.B32)
		b.I(d.Op, out, b.load(0, ptx.B32, 1)[0], ptx.Imm(-1))
		b.store(out)
	}
	return c
}

// moveMatrix transposes what the lanes of each warp have.
func moveMatrix(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.emit = func(b *body) {
		out := b.Reg(ptx.B32)
		b.I(d.Op, out, b.load(0, ptx.B32, 1)[0])
		b.store(out)
	}
	return c
}

// barrier exchanges words through shared memory: between warps for a block's barrier, within one for a warp's.
func barrier(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.Shared = 4 * threads
	c.emit = func(b *body) {
		b.I("st.shared.b32", ptx.At(b.shared(b.thread, 4), 0), b.load(0, ptx.B32, 1)[0])
		other, x := b.Reg(ptx.B32), b.Reg(ptx.B32)
		if d.Does == ptx.WarpBarrier {
			b.I(d.Op, ptx.Imm(-1))
			b.I("xor.b32", other, b.thread, ptx.Imm(13))
		} else {
			b.I(d.Op, ptx.Imm(0))
			b.I("xor.b32", other, b.thread, ptx.Imm(77))
		}
		b.I("ld.shared.b32", x, ptx.At(b.shared(other, 4), 0))
		b.store(x)
	}
	return c
}

// branch: odd items take the branch, or end, before 1 is added. bra.uni is taken by all.
func branch(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.emit = func(b *body) {
		x := b.load(0, ptx.B32, 1)[0]
		bit, odd := b.Reg(ptx.B32), b.Reg(ptx.Pred)
		b.store(x)
		b.I("and.b32", bit, b.item, ptx.Imm(1))
		b.I("setp.ne.u32", odd, bit, ptx.Imm(0))
		end := b.NewLabel("end")
		switch d.Op {
		case "bra":
			b.If(odd, "bra", end)
		case "bra.uni":
			b.I("bra.uni", end)
		default:
			b.If(odd, d.Op)
		}
		b.I("add.u32", x, x, ptx.Imm(1))
		b.store(x)
		b.Place(end)
	}
	return c
}

// between executes an instruction without operands between a load and a store: it exists and changes nothing.
func between(d *ptx.Def) *Case {
	c := echo(d, d.Op)
	c.emit = func(b *body) {
		if d.Does == ptx.GridWait { // before the first access
			b.I(d.Op)
			b.store(b.load(0, ptx.B32, 1)[0])
			return
		}
		x := b.load(0, ptx.B32, 1)[0]
		b.I(d.Op)
		b.store(x)
	}
	return c
}
