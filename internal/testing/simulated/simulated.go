// Package simulated is the CPU device as a GPU whose runs take what the cost model says they take on a machine: for tests of what
// measures, which must find that machine again, and for dry runs.
//
// What a launch takes follows from what was counted of it: instructions, the bytes of each range that it read, wrote
// and prefetched, how many of its copies bear a cache policy, how many words its atomics share. L2 keeps its contents
// from launch to launch and from run to run.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Device is such a device. Its kernels compute nothing but what their counts hang on.
type Device struct {
	hal.Device
	On    *cost.Machine
	Name  string
	Noise Noise
	Fail  func() error // asked before every timed run; nil: none fails

	counts []*emu.Counts
	known  map[string]*emu.Counts // by keyOf
	cache  *l2
	random *rand.Rand
}

// Noise is how far timed runs are off.
type Noise struct {
	Seed     uint64
	Jitter   float64 // standard deviation of a time, relative to it
	Outliers float64 // share of times that are outlier times as long
}

const outlier = 3

// Open opens a device that takes as long as a machine.
func Open(on *cost.Machine) (*Device, error) {
	s := &Device{On: on, Name: "simulated", cache: newL2(on), known: map[string]*emu.Counts{}}
	d, err := emu.Open(emu.Options{CountOnly: true, Profile: func(c *emu.Counts) { s.counts = append(s.counts, c) }})
	s.Device = d
	return s, err
}

// Info says that it is a GPU of the machine's target.
func (s *Device) Info() hal.Info {
	info := s.Device.Info()
	info.Name, info.Backend, info.Target = s.Name, "cuda", s.On.Name
	return info
}

// Capture records the launches with the graph.
func (s *Device) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := s.Device.Capture(ctx, ops)
	if err != nil {
		return nil, err
	}
	return &graph{Graph: g, d: s, ops: slices.Clone(ops)}, nil
}

type graph struct {
	hal.Graph
	d      *Device
	ops    []hal.Op
	counts []*emu.Counts // by op, nil for copies; nil before the first timed run
}

// RunTimed returns the predicted time of that many runs in a row, after the graph that runs before. It counts
// launches that were not counted yet.
func (g *graph) RunTimed(ctx context.Context, timing hal.Timing) (time.Duration, error) {
	if g.d.Fail != nil {
		if err := g.d.Fail(); err != nil {
			return 0, err
		}
	}
	graphs := []*graph{}
	if timing.Before != nil {
		before, ok := timing.Before.(*graph)
		if !ok || before.d != g.d {
			return 0, errors.New("the graph to run before is of another device")
		}
		graphs = append(graphs, before)
	}
	graphs = append(graphs, slices.Repeat([]*graph{g}, max(timing.Runs, 1))...)
	s := &sequence{d: g.d}
	begin := 0.0
	for _, each := range graphs {
		if err := each.count(ctx); err != nil {
			return 0, err
		}
		if timing.Before != nil && len(s.times) == 0 {
			s.add(each)
			begin = cost.Sequence(s.times, s.dependent)
			continue
		}
		s.add(each)
	}
	g.d.forgetPrefetches()
	took := cost.Sequence(s.times, s.dependent) - begin
	return time.Duration(1e3 * took * g.d.noise()), ctx.Err()
}

// noise is the factor of a timed run.
func (d *Device) noise() float64 {
	if d.Noise == (Noise{}) {
		return 1
	}
	if d.random == nil {
		d.random = rand.New(rand.NewPCG(d.Noise.Seed, 1))
	}
	factor := max(0.1, 1+float64(d.Noise.Jitter*d.random.NormFloat64()))
	if d.random.Float64() < d.Noise.Outliers {
		factor *= outlier
	}
	return factor
}

func (d *Device) forgetPrefetches() {
	for _, l := range d.cache.order {
		l.fetched.launch = 0
	}
	d.cache.trim(d.On)
}

// count runs those launches of the graph that were not counted before, each once, and the copies between them.
func (g *graph) count(ctx context.Context) error {
	if g.counts != nil {
		return nil
	}
	var ops []hal.Op
	var keys []string
	for i := range g.ops {
		op, key := g.ops[i], keyOf(&g.ops[i])
		if g.d.known[key] != nil || op.Kernel != "" && slices.Contains(keys, key) {
			continue
		}
		if op.After, op.Dependent = nil, false; len(ops) > 0 {
			op.After = []int{len(ops) - 1}
		}
		ops, keys = append(ops, op), append(keys, key)
	}
	if slices.ContainsFunc(ops, func(op hal.Op) bool { return op.Kernel != "" }) {
		unknown, err := g.d.Device.Capture(ctx, ops)
		if err != nil {
			return err
		}
		g.d.counts = nil
		if err := errors.Join(unknown.Run(ctx), unknown.Close()); err != nil {
			return err
		}
		for _, c := range g.d.counts {
			g.d.known[keys[c.Op]] = c
		}
	}
	g.counts = make([]*emu.Counts, len(g.ops))
	for i := range g.ops {
		g.counts[i] = g.d.known[keyOf(&g.ops[i])]
	}
	return nil
}

// keyOf is what a launch's counts depend on: its kernel and parameters, and the memory that they point to.
func keyOf(op *hal.Op) string {
	key := fmt.Sprintf("%p %s %v %v %d %x", op.Module, op.Kernel, op.Grid, op.Block, op.Shared, op.Params)
	for _, r := range slices.Concat(op.Reads, op.Writes, op.Prefetch) {
		key += fmt.Sprintf(" %p %d %d", r.Memory, r.Offset, r.Bytes)
	}
	return key
}

// sequence is launches one after the other, as the device executes them.
type sequence struct {
	d         *Device
	times     []cost.Time
	dependent []bool
}

// add executes a graph's launches.
func (s *sequence) add(g *graph) {
	for i, op := range g.ops {
		s.dependent = append(s.dependent, op.Dependent)
		if c := g.counts[i]; c != nil {
			s.launch(&op, c)
			continue
		}
		s.times = append(s.times, s.d.On.Copy(op.Bytes))
	}
}

// launch executes a kernel. What the device drops and what L2 holds is decided here and not by the model, which is
// given the bytes that move.
func (s *sequence) launch(op *hal.Op, c *emu.Counts) {
	w := profile.WorkOf(s.d.On, c)
	w.Plain = !op.Dependent
	w.DRAMBytes, w.Back = 0, 0
	var moved traffic
	yields := float64(s.d.On.EvictFirst * hinted(c))
	for i, r := range op.Reads {
		if r.Bytes > 0 {
			moved.read += s.read(r, min(1, float64(32*c.Reads[i])/float64(r.Bytes)), yields, w)
		}
	}
	written, prefetched := map[hal.Memory]float64{}, map[hal.Memory]float64{}
	for _, m := range c.Memories {
		written[m.Memory], prefetched[m.Memory] = float64(32*m.WriteSectors), float64(32*m.PrefetchSectors)
	}
	s.ranges(op.Writes, written, func(l *line, bytes float64) {
		moved.written += float64(bytes * s.d.cache.touch(l, bytes, s.d.On))
	})
	kept, asked := 1.0, 0.0
	for _, bytes := range prefetched {
		asked += bytes
	}
	if moved.read > asked/4 { // loads keep DRAM busy
		kept = s.d.On.PrefetchKept
	}
	idle := 0.0 // bytes that DRAM could bring before the launch's blocks ask
	if moved.read == 0 {
		idle = float64((s.d.On.Launch(w.Plain) + s.d.On.StartUS) * float64(s.d.On.PrefetchRate*s.d.On.MemoryGBps) * 1e3)
	}
	s.ranges(op.Prefetch, prefetched, func(l *line, bytes float64) {
		missed := s.d.cache.touch(l, bytes, s.d.On)
		moved.fetched += float64(kept * float64(missed*bytes))
		l.gone = float64(missed * (1 - kept))
		l.fetched.launch, l.fetched.bytes = len(s.times)+1, idle+moved.fetched
	})
	w.DRAMBytes, w.Back = moved.read+moved.written, moved.written
	if moved.fetched > 0 {
		w.Fetches = idle + moved.fetched
	}
	machine := *s.d.On
	machine.PrefetchKept = 1 // Fetches and Awaits are bytes that arrive
	machine.AtomicUS *= contention(c)
	if asked := w.L2Read; asked > 0 { // loads that wait for each other wait for DRAM in part
		share := min(1, moved.read/asked)
		longer := machine.MemoryLatencyUS - machine.CacheLatencyUS
		machine.MemoryLatencyUS = machine.CacheLatencyUS + float64(share*longer)
	}
	s.times = append(s.times, machine.Estimate(w))
}

// read reads a part of a range, which yields its place in L2 by a share, and returns the bytes that DRAM serves.
func (s *sequence) read(r hal.Range, part, yields float64, w *cost.Work) (bytes float64) {
	s.d.cache.each(r, func(l *line, all float64) {
		if part == 0 {
			return
		}
		missed := s.d.cache.touch(l, float64(part*all), s.d.On)
		bytes += float64(missed * float64(part*all))
		l.bytes, l.gone = float64(l.bytes*(1-yields)), yields
		if f := l.fetched; f.launch > 0 {
			later := f.launch-1 > w.After || f.launch-1 == w.After && f.bytes > w.Awaits
			if w.Awaits == 0 || later {
				w.After, w.Awaits = f.launch-1, f.bytes
			}
		}
		l.fetched.launch = 0
	})
	return bytes
}

// ranges calls f for the lines of ranges, with the bytes that were used of each: those of a memory are spread evenly
// over its ranges.
func (s *sequence) ranges(list []hal.Range, used map[hal.Memory]float64, f func(l *line, bytes float64)) {
	all := map[hal.Memory]float64{}
	for _, r := range list {
		all[r.Memory] += float64(r.Bytes)
	}
	for _, r := range list {
		if part := min(1, used[r.Memory]/max(all[r.Memory], 1)); part > 0 {
			s.d.cache.each(r, func(l *line, bytes float64) { f(l, float64(part*bytes)) })
		}
	}
}

// hinted is the share of what a launch reads by copies with a cache policy; createpolicy makes none but evict-first.
func hinted(c *emu.Counts) float64 {
	var all, with float64
	for i := range c.Sites {
		d := c.Sites[i].Instr.Def
		if d.Does != ptx.Load && d.Does != ptx.CopyAsync {
			continue
		}
		all += float64(c.Sites[i].Sectors)
		if strings.HasSuffix(d.Op, "L2::cache_hint") {
			with += float64(c.Sites[i].Sectors)
		}
	}
	return with / max(all, 1)
}

// uncontended is what an atomic takes on a word that no other block uses, as a share of one that they share.
const uncontended = 0.4

// contention is what an atomic of a launch takes, as a share of the machine's figure: less where each block has a
// word of its own, among those that are read and written.
func contention(c *emu.Counts) float64 {
	words := int64(0)
	for _, m := range c.Memories {
		words += min(m.ReadBytes, m.WriteBytes) / 4
	}
	if words >= int64(c.Grid[0]*c.Grid[1]*c.Grid[2]) {
		return uncontended
	}
	return 1
}
