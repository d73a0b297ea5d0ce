package machine

import (
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

const bulkPrefetch = "cp.async.bulk.prefetch.L2.global"

func bulkPrefetches(t *target.Target) bool {
	return ptx.Lookup(bulkPrefetch).Available(t.Name, ptx.Version{Major: 99}) == nil
}

// bulkMost is the size below which a bulk prefetch stays: ptxas cuts it to 16 bits of units of 16 bytes.
const bulkMost = 1 << 20

// prefetchKernels ask for a slice a block in one bulk prefetch, as kernels of models do: one launch that does nothing else, and one that streams
// other memory meanwhile. There the loads are on the way first.
func prefetchKernels(m *ptx.Module) {
	ask := func(b *builder, memory, slice ptx.Reg) {
		at, first := b.Reg(ptx.B64), b.Reg(ptx.Pred)
		offset := b.Reg(ptx.B32)
		b.I("setp.eq.u32", first, b.tid, ptx.Imm(0))
		b.I("mul.lo.s32", offset, b.block, slice)
		b.I("mad.wide.u32", at, offset, ptx.Imm(1), memory)
		b.If(first, bulkPrefetch, ptx.At(at, 0), slice)
	}
	b := newKernel(m, "prefetch", 32)
	ask(b, b.address("ahead"), b.number("slice"))
	b.I("ret")

	b = newKernel(m, "load_and_prefetch", streamThreads)
	from, memory, slice := b.address("from"), b.address("ahead"), b.number("slice")
	at, offset, sum := b.Reg(ptx.B64), b.Reg(ptx.B32), b.Reg(ptx.B32)
	b.I("mad.lo.u32", offset, b.block, ptx.Imm(streamUnit/16), b.tid)
	b.I("mad.wide.u32", at, offset, ptx.Imm(16), from)
	words := make([][]ptx.Reg, streamVectors)
	for i := range words {
		words[i] = b.RegVec(ptx.B32, 4)
		b.I("ld.global.v4.b32", ptx.V(words[i]...), ptx.At(at, 16*streamThreads*i))
	}
	ask(b, memory, slice)
	b.I("mov.b32", sum, ptx.Imm(0))
	for i := range words {
		for _, w := range words[i] {
			b.I("xor.b32", sum, sum, w)
		}
	}
	b.done(sum)
}

// prefetches finds how fast bulk prefetches bring bytes to L2, and how many of them arrive while loads keep DRAM busy. Nothing tells when a prefetch
// ends. So a launch that waits follows the prefetch, and how long a third one takes to read the bytes shows how many came meanwhile.
func prefetches(r *rig) error {
	names := []string{"prefetch_rate", "prefetch_kept"}
	if !bulkPrefetches(r.on.Target) {
		for _, name := range names {
			r.file.Left[name] = r.on.Name + " has no bulk prefetches"
		}
		return nil
	}
	return r.apart(func() error {
		p := &prefetching{rig: r}
		err := p.prepare()
		if err != nil {
			return err
		}
		if !(p.cold.Middle > 1.5*p.warm.Middle) {
			for _, name := range names {
				r.file.Left[name] = fmt.Sprintf("memory seems as fast as L2: %.3g and %.3g µs", p.cold.Middle, p.warm.Middle)
			}
			return nil
		}
		if err := p.rate(); err != nil {
			return err
		}
		return p.kept()
	})
}

// prefetching is what both figures are measured with.
type prefetching struct {
	*rig
	memory     hal.Memory // that is prefetched, a quarter of L2
	other      hal.Memory // that is loaded meanwhile, as much
	part       int        // bytes of a block of either
	flush      []hal.Op
	cold, warm cost.Figure // of reading memory from DRAM and from L2
}

func (p *prefetching) prepare() (err error) {
	p.part = streamUnit
	for _, m := range []*hal.Memory{&p.memory, &p.other} {
		if *m, err = p.alloc(p.part*p.sizes.fill, hal.DeviceMemory); err != nil {
			return err
		}
	}
	if p.flush, err = p.rig.flush(); err != nil {
		return err
	}
	if p.cold, err = p.after(p.flush, p.read(p.memory)); err == nil {
		p.warm, err = p.after(p.behind(p.read(p.memory)), p.read(p.memory))
	}
	return err
}

// behind is launches behind those that flush L2.
func (p *prefetching) behind(ops ...hal.Op) []hal.Op {
	return chain(append(append([]hal.Op{}, p.flush...), ops...)...)
}

// wait is a launch that computes about as long as DRAM needs for some times the memory.
func (p *prefetching) wait(times float64) hal.Op {
	us := times * float64(p.memory.Size()) / (p.on.MemoryGBps * 1e3)
	rounds := int(us * p.clocks() / (unrolled * fmaClocks))
	return p.op("fma1", 1, 32, max(1, min(rounds, 64*p.sizes.rounds)))
}

// waits are the times that the reader of a prefetch is late by, in those that DRAM needs for it. All that comes has come by the last one.
var waits = []float64{0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 6}

// rate follows the reader's time over what went by since the prefetch began. It falls until all bytes had come: either by as much, if the reader waits
// for them, or more slowly, if the reader loads what is missing faster than prefetches would. Either way the line through what it takes meets zero
// when the last byte has come.
func (p *prefetching) rate() error {
	const name = "prefetch_rate"
	ask := p.op("prefetch", p.sizes.fill, 32, 1, ahead{p.memory}, p.part)
	gone, late := make([]cost.Figure, len(waits)), make([]cost.Figure, len(waits))
	for i, times := range waits {
		var err error
		if gone[i], err = p.after(p.flush, ask, p.wait(times)); err != nil {
			return err
		}
		if late[i], err = p.after(p.behind(ask, p.wait(times)), p.read(p.memory)); err != nil {
			return err
		}
	}
	come, all := late[len(late)-1].Middle, p.cold.Middle-p.warm.Middle
	if p.cold.Middle-come < all/4 {
		p.file.Left[name] = fmt.Sprintf("prefetched bytes do not come: reading them takes %.3g µs, and %.3g without a prefetch", come, p.cold.Middle)
		return nil
	}
	at := func(of func(cost.Figure) float64) float64 {
		n := 0
		for n < len(waits) && of(late[n]) > come+(p.cold.Middle-come)/5 {
			n++
		}
		us := of(gone[0])
		if n > 0 {
			us = zeroOf(gone[:n], late[:n], of)
		}
		return us - (p.on.Launch(true) + p.on.StartUS) // until the first byte is asked for
	}
	// Ends of the range are no quantiles of one distribution; they only say how far the samples lie apart.
	f := cost.Figure{Low: at(func(f cost.Figure) float64 { return f.Low }), Middle: at(func(f cost.Figure) float64 { return f.Middle }),
		High: at(func(f cost.Figure) float64 { return f.High })}
	f.Low, f.High = min(f.Low, f.Middle), max(f.High, f.Middle)
	p.found(name, per(float64(p.memory.Size())/(p.on.MemoryGBps*1e3), f))
	return nil
}

// zeroOf is where the line through points meets zero, by least squares; through a single point goes the line that falls by as much as the wait grows.
func zeroOf(x, y []cost.Figure, of func(cost.Figure) float64) float64 {
	var sx, sy, sxx, sxy, n float64
	for i := range x {
		a, b := of(x[i]), of(y[i])
		sx, sy, sxx, sxy, n = sx+a, sy+b, sxx+a*a, sxy+a*b, n+1
	}
	slope := -1.
	if d := n*sxx - sx*sx; len(x) > 1 && d > 0 {
		slope = min(-0.1, (n*sxy-sx*sy)/d)
	}
	return sx/n - sy/n/slope
}

// kept prefetches memory while the launch loads as much of other memory, waits until all must have come, and finds by the reader's time which part did.
func (p *prefetching) kept() error {
	both := p.op("load_and_prefetch", p.sizes.fill, streamThreads, 1, constants{p.other}, ahead{p.memory}, p.part)
	var took [3]cost.Figure
	for i, before := range [][]hal.Op{
		p.behind(p.read(p.other), p.wait(6)),
		p.behind(both, p.wait(6)),
		p.behind(p.read(p.memory), p.read(p.other), p.wait(6)),
	} {
		var err error
		if took[i], err = p.after(before, p.read(p.memory)); err != nil {
			return err
		}
	}
	p.foundBetween("prefetch_kept", took[0], took[1], took[2])
	return nil
}

// read reads memory once, with all multiprocessors.
func (r *rig) read(m hal.Memory) hal.Op {
	return r.op("read", r.sizes.fill, streamThreads, 1, constants{m}, m.Size()/r.sizes.fill)
}

// flush is launches that read twice what L2 holds, of memory of their own.
func (r *rig) flush() ([]hal.Op, error) {
	unit := r.sizes.fill * streamUnit
	m, err := r.alloc((2*r.sizes.l2+unit-1)/unit*unit, hal.DeviceMemory)
	if err != nil {
		return nil, err
	}
	return []hal.Op{r.read(m)}, nil
}

// foundBetween keeps the share of bytes that L2 served of those that were read, by what that takes if DRAM serves all and if L2 does.
func (r *rig) foundBetween(name string, cold, took, warm cost.Figure) {
	if !(cold.Middle > 1.5*warm.Middle) {
		r.file.Left[name] = fmt.Sprintf("memory seems as fast as L2: %.3g and %.3g µs", cold.Middle, warm.Middle)
		return
	}
	share := func(us float64) float64 { return 1 - r.missed(us, cold.Middle, warm.Middle) }
	r.foundShare(name, cost.Figure{Low: share(took.High), Middle: share(took.Middle), High: share(took.Low)})
}

// missed is the part of what a launch read that DRAM served, by its time. The model hides most of L2's time behind DRAM's, or DRAM's behind L2's
// where that serves nearly all.
func (r *rig) missed(us, cold, warm float64) float64 {
	launch := r.on.Launch(true) + r.on.StartUS
	l2 := warm - launch
	hidden := float64(r.on.Exposed * l2)
	dram := cold - launch - hidden
	if us -= launch; us < l2+hidden {
		return (us - l2) / float64(r.on.Exposed*dram)
	}
	return (us - hidden) / dram
}
