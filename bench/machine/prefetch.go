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

// prefetchKernels ask for a slice a block in one bulk prefetch, as kernels of models do: one launch that does nothing
// else, and one that streams other memory meanwhile. There the loads are on the way first.
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

// prefetches finds how fast bulk prefetches bring bytes to L2, and how many of them arrive while loads keep DRAM
// busy. Nothing tells when a prefetch ends. So a launch that waits follows the prefetch, and how long a third one
// takes to read the bytes shows how many came meanwhile.
func prefetches(r *rig) error {
	names := []string{"prefetch_rate", "prefetch_kept"}
	if !bulkPrefetches(r.on.Target) {
		for _, name := range names {
			r.file.Left[name] = r.on.Name + " has no bulk prefetches"
		}
		return nil
	}
	return r.scoped(func() error {
		p := &prefetching{rig: r}
		if err := p.prepare(); err != nil {
			return err
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
	memory hal.Memory // that is prefetched: a slice for each block
	other  hal.Memory // that is loaded meanwhile, as much
	flush  []hal.Op
}

func (p *prefetching) prepare() (err error) {
	for _, m := range []*hal.Memory{&p.memory, &p.other} {
		if *m, err = p.alloc(streamUnit*p.sizes.fill, hal.DeviceMemory); err != nil {
			return err
		}
	}
	if err := ring(p.memory); err != nil {
		return err
	}
	p.flush, err = p.rig.flush()
	return err
}

// flushed puts launches after those that flush L2.
func (p *prefetching) flushed(ops ...hal.Op) []hal.Op {
	return inOrder(append(append([]hal.Op{}, p.flush...), ops...)...)
}

// wait is a launch that computes about as long as DRAM needs for some times the memory.
func (p *prefetching) wait(times float64) hal.Op {
	us := times * float64(p.memory.Size()) / (p.on.MemoryGBps * 1e3)
	rounds := int(us * p.clocks() / (unrolled * fmaClocks))
	return p.op("fma1", 1, 32, max(1, min(rounds, 64*p.sizes.rounds)))
}

// waits are the times that the reader of a prefetch is late by, in those that DRAM needs for it. All that comes has
// come by the last one.
var waits = []float64{0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 6}

// rate follows the reader's time over what went by since the prefetch began. It falls until all bytes had come:
// either by as much, if the reader waits for them, or more slowly, if the reader loads what is missing faster than
// prefetches would. Either way the line through what it takes meets zero when the last byte has come.
func (p *prefetching) rate() error {
	const name = "prefetch_rate"
	cold, err := p.after(p.flush, p.read(p.memory))
	if err != nil {
		return err
	}
	warm, err := p.after(p.flushed(p.read(p.memory)), p.read(p.memory))
	if err != nil {
		return err
	}
	if !(cold.Middle > leastContrast*warm.Middle) {
		p.file.Left[name] = fmt.Sprintf("memory seems as fast as L2: %.3g and %.3g µs", cold.Middle, warm.Middle)
		return nil
	}
	ask := p.op("prefetch", p.sizes.fill, 32, 1, prefetchOnly{p.memory}, streamUnit)
	gone, late := make([]cost.Figure, len(waits)), make([]cost.Figure, len(waits))
	for i, times := range waits {
		var err error
		if gone[i], err = p.after(p.flush, ask, p.wait(times)); err != nil {
			return err
		}
		if late[i], err = p.after(p.flushed(ask, p.wait(times)), p.read(p.memory)); err != nil {
			return err
		}
	}
	come := late[len(late)-1].Middle
	if cold.Middle-come < (cold.Middle-warm.Middle)/4 {
		p.file.Left[name] = fmt.Sprintf("prefetched bytes do not come: reading them takes %.3g µs, and %.3g without a prefetch",
			come, cold.Middle)
		return nil
	}
	at := func(of func(cost.Figure) float64) float64 {
		n := 0
		for n < len(waits) && of(late[n]) > come+(cold.Middle-come)/5 {
			n++
		}
		us := of(gone[0])
		if n > 0 {
			us = zeroOf(gone[:n], late[:n], of)
		}
		return us - (p.on.Launch(true) + p.on.StartUS) // until the first byte is asked for
	}
	// Ends of the range are no quantiles of one distribution; they only show the spread of the samples.
	f := cost.Figure{
		Low:    at(func(f cost.Figure) float64 { return f.Low }),
		Middle: at(func(f cost.Figure) float64 { return f.Middle }),
		High:   at(func(f cost.Figure) float64 { return f.High }),
	}
	f.Low, f.High = min(f.Low, f.Middle), max(f.High, f.Middle)
	rate := per(float64(p.memory.Size())/(p.on.MemoryGBps*1e3), f)
	if rate.Middle > mostRate {
		p.file.Left[name] = fmt.Sprintf("prefetches end before a launch behind them begins: %.3g bytes within %.3g µs",
			float64(p.memory.Size()), gone[0].Middle)
		return nil
	}
	p.found(name, rate)
	return nil
}

// mostRate is the highest rate that is not one of launches: DRAM brings no more than its own, but for the error of
// both.
const mostRate = 1.25

// zeroOf is where the line through points meets zero, by least squares; through a single point goes the line that
// falls by as much as the wait grows.
func zeroOf(x, y []cost.Figure, of func(cost.Figure) float64) float64 {
	var sx, sy, sxx, sxy, n float64
	for i := range x {
		a, b := of(x[i]), of(y[i])
		sx, sy, sxx, sxy, n = sx+a, sy+b, sxx+float64(a*a), sxy+float64(a*b), n+1
	}
	slope := -1.
	if d := float64(n*sxx) - float64(sx*sx); len(x) > 1 && d > 0 {
		slope = min(-0.1, (float64(n*sxy)-float64(sx*sy))/d)
	}
	return sx/n - sy/n/slope
}

// kept prefetches memory while the launch loads as much of other memory, waits until all must have come, and finds by
// the reader's time which part did.
func (p *prefetching) kept() error {
	both := p.op("load_and_prefetch", p.sizes.fill, streamThreads, 1, constants{p.other}, prefetchOnly{p.memory}, streamUnit)
	var took [3]cost.Figure
	for i, before := range [][]hal.Op{
		p.flushed(p.read(p.other), p.wait(6)),
		p.flushed(both, p.wait(6)),
		p.flushed(p.read(p.memory), p.read(p.other), p.wait(6)),
	} {
		var err error
		if took[i], err = p.after(before, p.sample(p.memory)); err != nil {
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

// sample is a launch that reads a part of the lines of memory that is a ring, spread over all of it, in chains whose
// loads wait for each other: its time grows with the share of them that L2 does not hold, whatever the rates of L2
// and DRAM are.
func (r *rig) sample(m hal.Memory) hal.Op {
	lines := m.Size() / lineBytes / r.sizes.fill
	return r.op("chains", r.sizes.fill, 1, max(1, min(r.sizes.steps, lines)/4), constants{m}, lines*lineBytes)
}

// leastContrast is how much longer memory must take than L2 for the two to be distinguishable.
const leastContrast = 1.25

// foundBetween keeps the share of lines that L2 served of a sample, by what that takes if DRAM serves all and if L2
// does.
func (r *rig) foundBetween(name string, cold, took, warm cost.Figure) {
	if !(cold.Middle > leastContrast*warm.Middle) {
		r.file.Left[name] = fmt.Sprintf("memory seems as fast as L2: %.3g and %.3g µs", cold.Middle, warm.Middle)
		return
	}
	share := func(us float64) float64 { return (cold.Middle - us) / (cold.Middle - warm.Middle) }
	r.foundShare(name, cost.Figure{Low: share(took.High), Middle: share(took.Middle), High: share(took.Low)})
}
