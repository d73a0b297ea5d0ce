package emu

import (
	"strings"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// counted says which instructions of a program must be executed for the counts of all to be right: those whose
// results reach an address, a guard or a branch, and those by which warps and blocks wait. The others, most of what
// computes and moves data, need only be counted.
type counted struct {
	executes []bool // by pc; nil: all
	data     bool   // addresses or branches hang on what other launches may have written
}

func (p *program) countedBy() *counted {
	p.countedOnce.Do(func() { p.counted = countedOf(p) })
	return &p.counted
}

// countedOf follows registers backwards from where they decide what is counted. A kernel whose blocks agree by
// atomics, or whose warps do by shared memory, is executed as a whole; what comes to shared memory by asynchronous
// copies is taken to decide nothing, as in all kernels that are generated.
func countedOf(p *program) (c counted) {
	c.executes = make([]bool, len(p.code))
	wanted, whole := map[ptx.Reg]bool{}, false
	for changed := true; changed; {
		changed = false
		shares := false
		want := func(o ptx.Operand) {
			if r, ok := o.(ptx.Reg); ok && !wanted[r] {
				wanted[r], changed = true, true
			}
		}
		for pc := range p.code {
			in := p.code[pc].stmt.Instr
			if in == nil { // the end of the kernel
				c.executes[pc] = true
				continue
			}
			reads, writes := registersOf(in)
			runs := false
			for _, w := range writes {
				runs = runs || wanted[w.reg]
			}
			space := "" // of what is loaded or stored
			for _, o := range in.Def.Args {
				if o.Kind == ptx.ArgAddr {
					space = o.Space
				}
			}
			switch in.Def.Does {
			case ptx.Compute, ptx.Multiply, ptx.MoveMatrix, ptx.Shuffle, ptx.Reduce:
			case ptx.Prefetch:
				if len(in.Operands) > 1 { // the number of bytes is counted
					want(in.Operands[1])
				}
			case ptx.CopyAsync: // the number of bytes is counted
				want(in.Operands[3])
			case ptx.Load, ptx.LoadMatrix:
				shares = shares || runs && space == "shared"
				c.data = c.data || runs && space == "global" && !strings.HasPrefix(in.Def.Op, "ld.global.nc.")
			case ptx.Store, ptx.StoreMatrix:
				runs = whole && space == "shared"
			default:
				runs, shares = true, shares || in.Def.Does == ptx.Atomic
			}
			c.executes[pc] = runs
			if runs {
				for _, r := range reads {
					want(r.reg)
				}
				continue
			}
			if in.Guarded {
				want(in.Guard)
			}
			for _, o := range in.Operands {
				if a, ok := o.(ptx.Addr); ok {
					want(a.Base)
				}
			}
		}
		changed, whole = changed || shares != whole, shares
	}
	if whole {
		c.executes = nil
	}
	return c
}
