package emu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/target"
)

// graph is a captured launch list; ops run one after another, in its order.
type graph struct {
	dev    *Device
	ops    []node
	shadow []uint64 // of the op that runs
	left   *leftRun // whose context has ended; nil: none
}

// leftRun is a run that goes on though nobody waits for it.
type leftRun struct {
	done chan struct{} // closed at its end
	err  error         // of its end
	bug  any           // a panic, with its stack; nil: none
	stop context.CancelFunc
}

// node is an op, resolved: a launch or a copy.
type node struct {
	launch   *launch
	src, dst *memory
	op       hal.Op
}

// Capture resolves the ops: kernels, parameters, ranges. With checks on it also finds hazards without an edge.
func (d *Device) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := &graph{dev: d}
	for i, op := range ops {
		n := node{op: op}
		var err error
		switch {
		case d.elsewhere(op):
			err = errors.New("it reads or writes memory of another device")
		case op.Kernel == "":
			err = n.resolveCopy()
		default:
			n.launch, err = d.newLaunch(op)
		}
		for _, a := range op.After {
			if err == nil && (a < 0 || a >= i) {
				err = fmt.Errorf("its After names op %d, which is not an earlier one", a)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("emu: op %d (%s): %w", i, opName(op), err)
		}
		g.ops = append(g.ops, n)
	}
	if d.opts.Check {
		if v := missingEdge(ops); v != nil {
			return nil, v
		}
	}
	if d.opts.Profile != nil && d.opts.CountOnly && !d.opts.Check {
		g.countOnly()
	}
	return g, nil
}

// countOnly lets launches execute no more than counts hang on, unless those of one hang on what others compute.
func (g *graph) countOnly() {
	for _, n := range g.ops {
		if n.launch != nil && n.launch.prog.countedBy().data {
			return
		}
	}
	for _, n := range g.ops {
		if n.launch != nil {
			n.launch.executes = n.launch.prog.countedBy().executes
		}
	}
}

// elsewhere reports whether an op names memory of another device.
func (d *Device) elsewhere(op hal.Op) bool {
	for _, list := range [][]hal.Range{op.Reads, op.Writes, op.Prefetch, {{Memory: op.Src}, {Memory: op.Dst}}} {
		for _, r := range list {
			if m, ok := r.Memory.(*memory); ok && m.dev != d {
				return true
			}
		}
	}
	return false
}

func opName(op hal.Op) string {
	if op.Kernel == "" {
		return "copy"
	}
	return op.Kernel
}

func (n *node) resolveCopy() error {
	var ok1, ok2 bool
	n.src, ok1 = n.op.Src.(*memory)
	n.dst, ok2 = n.op.Dst.(*memory)
	op := n.op
	switch {
	case !ok1 || !ok2:
		return fmt.Errorf("source or destination is no memory of this device")
	case op.Bytes < 0 || op.SrcOffset < 0 || op.SrcOffset > n.src.Size()-op.Bytes ||
		op.DstOffset < 0 || op.DstOffset > n.dst.Size()-op.Bytes:
		return fmt.Errorf("%d bytes from %d of %d to %d of %d", op.Bytes, op.SrcOffset, n.src.Size(), op.DstOffset, n.dst.Size())
	}
	return nil
}

func (n *node) copy() {
	op := n.op
	copy(n.dst.data[op.DstOffset:op.DstOffset+op.Bytes], n.src.data[op.SrcOffset:])
	switch {
	case n.src.undefined != nil:
		if n.dst.undefined == nil {
			n.dst.undefined = make([]byte, len(n.dst.data))
		}
		copy(n.dst.undefined[op.DstOffset:op.DstOffset+op.Bytes], n.src.undefined[op.SrcOffset:])
	default:
		n.dst.define(op.DstOffset, op.Bytes)
	}
}

// newLaunch checks a launch as the driver would and resolves what it may touch.
func (d *Device) newLaunch(op hal.Op) (*launch, error) {
	m, ok := op.Module.(*module)
	if !ok {
		return nil, fmt.Errorf("the module is not of this device")
	}
	p := m.programs[op.Kernel]
	if p == nil {
		return nil, fmt.Errorf("module %s has no kernel %s", m.name, op.Kernel)
	}
	threads, blocks := 1, 1
	mostBlocks, mostThreads := [3]int{1<<31 - 1, 65535, 65535}, [3]int{1024, 1024, 64} // CUDA programming guide, table of compute capabilities
	for i := range 3 {
		if op.Grid[i] < 1 || op.Grid[i] > mostBlocks[i] || op.Block[i] < 1 || op.Block[i] > mostThreads[i] {
			return nil, fmt.Errorf("grid %v of blocks %v: a grid has 1 to %v blocks, a block 1 to %v threads", op.Grid, op.Block, mostBlocks, mostThreads)
		}
		threads *= op.Block[i]
		blocks *= op.Grid[i]
	}
	most := 1024
	if p.kernel.Threads > 0 {
		most = p.kernel.Threads
	}
	if threads > most {
		return nil, fmt.Errorf("%d threads a block, %d at most", threads, most)
	}
	if lim := sharedLimit(m.target); op.Shared < 0 || op.Shared > lim {
		return nil, fmt.Errorf("%d bytes of shared memory, %s has %d", op.Shared, m.target, lim)
	}
	l := &launch{prog: p, grid: op.Grid, block: op.Block, blocks: blocks, threads: threads, shared: op.Shared,
		dependent: op.Dependent, dev: d}
	if len(op.Params) != len(p.kernel.Params) || len(op.Sizes) != len(op.Params) {
		return nil, fmt.Errorf("%d parameters with %d sizes, the kernel takes %d", len(op.Params), len(op.Sizes), len(p.kernel.Params))
	}
	l.params = make([]byte, p.paramBytes+8)
	for i, prm := range p.kernel.Params {
		if op.Sizes[i] != prm.Size() {
			return nil, fmt.Errorf("parameter %d (%s) has %d bytes, the kernel takes %d", i, prm.Name, op.Sizes[i], prm.Size())
		}
		if prm.Size() == 8 {
			binary.LittleEndian.PutUint64(l.params[p.paramOff[i]:], op.Params[i])
		} else {
			binary.LittleEndian.PutUint32(l.params[p.paramOff[i]:], uint32(op.Params[i]))
		}
	}
	l.memories = d.within(op)
	l.code = d.engine.compile(p)
	p.trackOnce.Do(func() { p.track = track(p) })
	if d.opts.Check {
		l.track = p.track
		return l, l.declare(op)
	}
	for _, m := range l.memories {
		l.reads = append(l.reads, m.span())
	}
	l.writes = l.reads
	return l, nil
}

// within is the memory that a launch may name, whether it says so or not: all of the device's, but of the host's what
// it declares.
func (d *Device) within(op hal.Op) (all []*memory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.memories {
		if !m.mapped || slices.ContainsFunc(op.Reads, func(r hal.Range) bool { return r.Memory == m }) {
			all = append(all, m)
		}
	}
	return all
}

// Update resolves an op anew.
func (g *graph) Update(i int, op hal.Op) error {
	if i < 0 || i >= len(g.ops) {
		return fmt.Errorf("emu: update of op %d of %d", i, len(g.ops))
	}
	if err := g.settled(); err != nil {
		return err
	}
	n := &g.ops[i]
	was := n.op
	switch {
	case n.launch == nil || !was.Varies:
		return fmt.Errorf("emu: op %d (%s) does not vary", i, opName(was))
	case !was.Moves(&op):
		return fmt.Errorf("emu: op %d (%s): an update changes parameters and ranges alone", i, opName(was))
	case g.dev.elsewhere(op):
		return fmt.Errorf("emu: op %d (%s): it reads or writes memory of another device", i, opName(op))
	}
	l, err := g.dev.newLaunch(op)
	if err != nil {
		return fmt.Errorf("emu: op %d (%s): %w", i, opName(op), err)
	}
	if g.dev.opts.Check {
		all := make([]hal.Op, len(g.ops))
		for k := range g.ops {
			all[k] = g.ops[k].op
		}
		all[i] = op
		if v := missingEdge(all); v != nil {
			return v
		}
	}
	l.executes = n.launch.executes
	n.op, n.launch = op, l
	return nil
}

// sharedLimit is the shared memory of a block, with the driver's opt-in; without it on architectures older than the
// table's.
func sharedLimit(arch string) int {
	if t, err := target.For(arch); err == nil {
		return t.SharedBlock
	}
	return 48 << 10
}

// Run executes the ops. As on a GPU a run goes on after its context has ended: what it has begun it ends, so that
// tickets, histories and what else lies in memory are those of whole runs.
func (g *graph) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := g.Wait(ctx); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return g.run(ctx)
	}
	on, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &leftRun{done: make(chan struct{}), stop: stop}
	go func() {
		defer stop()
		defer close(r.done)
		defer func() {
			if p := recover(); p != nil {
				r.bug = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		r.err = g.run(on)
	}()
	g.left = r
	return g.Wait(ctx)
}

// run executes the ops until they or the context end.
func (g *graph) run(ctx context.Context) error {
	if g.dev.opts.Check {
		g.forgetScratch()
	}
	for i := range g.ops {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := &g.ops[i]
		if n.launch == nil {
			n.copy()
			g.dev.onDevice.Add(int64(n.op.Bytes))
			continue
		}
		report := g.dev.opts.Profile
		if report != nil {
			n.launch.profile = newProfile(n.launch)
		}
		if err := n.launch.run(ctx, &g.shadow); err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
		if report != nil {
			report(n.launch.profile.counts(i, n))
		}
	}
	return nil
}

// Wait waits for the end of a run whose context has ended.
func (g *graph) Wait(ctx context.Context) error {
	r := g.left
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("emu: %w: the run goes on (%w): its memory stays in use until it ends", ctx.Err(), hal.ErrBusy)
		}
	}
	if g.left = nil; r.bug != nil {
		panic(r.bug) // in the caller's goroutine, where it can be recovered
	}
	return r.err
}

// Stop implements hal.Stopper.
func (g *graph) Stop() {
	if r := g.left; r != nil {
		r.stop()
		<-r.done
		g.left = nil
	}
}

// settled is hal.ErrBusy while a run goes on whose context has ended.
func (g *graph) settled() error {
	if r := g.left; r != nil {
		select {
		case <-r.done:
			g.left = nil // nobody waits any more for what the run met
		default:
			return fmt.Errorf("emu: %w: a run whose context has ended goes on", hal.ErrBusy)
		}
	}
	return nil
}

func (g *graph) Close() error { return g.settled() }
