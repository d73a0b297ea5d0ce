package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Options configure a measurement.
type Options struct {
	Samples int               // of each figure; 0: 15
	Note    func(text string) // what is measured now; nil: nobody wants to know
}

// Measure measures the constants of the cost model on a device. A figure's middle is the median of the samples;
// its ends are the first and last deciles without outliers. What cannot be measured is in Left, with the reason.
// If a measurement fails, the file still has the others and Measure also returns an error. On the CPU device
// everything runs, on little data, and the file says that it describes no GPU.
func Measure(ctx context.Context, d hal.Device, opt Options) (*cost.File, error) {
	t, err := target.For(d.Info().Target)
	if err != nil {
		return nil, err
	}
	if opt.Samples == 0 {
		opt.Samples = 15
	}
	amounts := full(t)
	if d.Info().Target == "" {
		amounts, opt.Samples = dry, min(opt.Samples, 3)
	}
	return measure(ctx, d, opt, amounts)
}

func measure(ctx context.Context, d hal.Device, opt Options, amounts sizes) (f *cost.File, err error) {
	t, err := target.For(d.Info().Target)
	if err != nil {
		return nil, err
	}
	r := &rig{ctx: ctx, device: d, opt: opt, on: cost.Of(t), sizes: amounts}
	r.file = &cost.File{Format: cost.FileFormat, Target: t.Name, Device: d.Info().Name, Backend: d.Info().Backend,
		Figures: map[string]cost.Figure{}, Left: map[string]string{}, Also: map[string]cost.Figure{}}
	defer func() { err = errors.Join(err, r.close()) }()
	if d.Info().Target == "" {
		r.file.DryRun = "it was made on the CPU device, where times are not a GPU's"
	}
	if r.code, err = d.Load(ctx, hal.Image{Name: "machine", Target: t.Name, PTX: kernels(t).String()}); err != nil {
		return nil, err
	}
	r.held = append(r.held, r.code.Close)
	if r.out, err = r.alloc(4*r.sizes.fill*max(streamThreads, 2*32*r.sizes.blocks), hal.DeviceMemory); err != nil {
		return nil, err
	}
	if err := r.warm(); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	for _, m := range measurements {
		if opt.Note != nil {
			opt.Note(m.name)
		}
		if failed := m.run(r); failed != nil {
			err = errors.Join(err, fmt.Errorf("measuring %s: %w", m.name, failed))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(r.file.Figures) == 0 && err != nil {
		return nil, err
	}
	why := "no measurement shows it alone: the published figure stays"
	if err != nil {
		why = "not all could be measured: the published figure stays"
	}
	for _, c := range r.on.All() {
		if _, ok := r.file.Figures[c.Name]; !ok && r.file.Left[c.Name] == "" {
			r.file.Left[c.Name] = why
		}
	}
	return r.file, err
}

// sizes are the amounts of work that are compared.
type sizes struct {
	fill    int // blocks that fill the device, if each fills a multiprocessor
	rounds  int // of loops that compute, unrolled
	steps   int // of loads that wait for each other
	nodes   int // of a graph
	blocks  int // of a multiprocessor, one after the other
	l2      int // bytes of L2
	cached  int // bytes that L2 holds, and no first-level cache
	memory  int // bytes that L2 does not hold
	passes  int // over bytes that L2 holds
	repeats int // of a loop of barriers or atomics
	work    int // rounds of a launch that computes for some microseconds

	warm time.Duration // of work before anything is measured: an idle device raises its clock only when there is some
}

// full are those of a GPU: the difference of two amounts takes some hundred microseconds.
func full(t *target.Target) sizes {
	return sizes{fill: t.SMs, rounds: 500, steps: 1000, nodes: 200, blocks: 200,
		l2: t.L2Bytes, cached: t.L2Bytes / 4, memory: 8 * t.L2Bytes, passes: 32, repeats: 500, work: 8, warm: time.Second}
}

// dry are those of a run that shows that everything runs.
var dry = sizes{fill: 2, rounds: 2, steps: 8, nodes: 4, blocks: 2,
	l2: 256 << 10, cached: 64 << 10, memory: 256 << 10, passes: 2, repeats: 3, work: 1}

// rig is a device that is measured.
type rig struct {
	ctx    context.Context
	device hal.Device
	opt    Options
	sizes  sizes
	on     *cost.Machine // what is known before; figures that are found replace it
	file   *cost.File
	code   hal.Module
	out    hal.Memory
	held   []func() error
}

func (r *rig) close() error {
	var err error
	for _, f := range slices.Backward(r.held) {
		err = errors.Join(err, f())
	}
	r.held = nil
	return err
}

func (r *rig) alloc(bytes int, kind hal.MemoryKind) (hal.Memory, error) {
	m, err := r.device.Alloc(bytes, kind)
	if err == nil {
		r.held = append(r.held, m.Free)
	}
	return m, err
}

// scoped runs something and frees what it allocated.
func (r *rig) scoped(f func() error) (err error) {
	before := r.held
	r.held = nil
	defer func() {
		err = errors.Join(err, r.close())
		r.held = before
	}()
	return f()
}

// warm keeps the whole device busy.
func (r *rig) warm() error {
	return r.scoped(func() error {
		g, err := r.graph(r.op("fma8", r.sizes.fill, 512, r.sizes.rounds))
		for begin := time.Now(); err == nil && time.Since(begin) < r.sizes.warm; {
			_, err = r.waited(g)
		}
		return err
	})
}

// constants marks memory that a launch only reads, prefetchOnly memory that it only prefetches: parameters of op.
type (
	constants    struct{ hal.Memory }
	prefetchOnly struct{ hal.Memory }
)

// op is a launch of a kernel: its rounds, and further parameters, addresses of memory or numbers.
func (r *rig) op(kernel string, blocks, threads, rounds int, more ...any) hal.Op {
	o := hal.Op{Module: r.code, Kernel: kernel, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1},
		Params: []uint64{r.out.Addr(), uint64(rounds)}, Sizes: []int{8, 4}, Writes: []hal.Range{{Memory: r.out, Bytes: r.out.Size()}}}
	for _, p := range more {
		switch p := p.(type) {
		case constants:
			o.Params, o.Sizes = append(o.Params, p.Addr()), append(o.Sizes, 8)
			o.Reads = append(o.Reads, hal.Range{Memory: p.Memory, Bytes: p.Size(), Constant: true})
		case prefetchOnly:
			o.Params, o.Sizes = append(o.Params, p.Addr()), append(o.Sizes, 8)
			o.Prefetch = append(o.Prefetch, hal.Range{Memory: p.Memory, Bytes: p.Size(), Constant: true})
		case hal.Memory:
			o.Params, o.Sizes = append(o.Params, p.Addr()), append(o.Sizes, 8)
			all := hal.Range{Memory: p, Bytes: p.Size()}
			o.Reads, o.Writes = append(o.Reads, all), append(o.Writes, all)
		case int:
			o.Params, o.Sizes = append(o.Params, uint64(p)), append(o.Sizes, 4)
		}
	}
	return o
}

// row is launches one after the other, each as the next one of a model's: dependent where the target has that.
func row(op hal.Op, n int, dependent bool) []hal.Op {
	out := make([]hal.Op, n)
	for i := range out {
		if out[i] = op; i > 0 {
			out[i].After, out[i].Dependent = []int{i - 1}, dependent
		}
	}
	return out
}

// inOrder makes each launch begin when the previous one has ended.
func inOrder(ops ...hal.Op) []hal.Op {
	for i := range ops {
		if ops[i].After = nil; i > 0 {
			ops[i].After = []int{i - 1}
		}
	}
	return ops
}

// graph captures launches.
func (r *rig) graph(ops ...hal.Op) (hal.Graph, error) {
	g, err := r.device.Capture(r.ctx, ops)
	if err == nil {
		r.held = append(r.held, g.Close)
	}
	return g, err
}

// took is how long a run takes on the device, in µs; as the host sees it where the device cannot tell.
func (r *rig) took(g hal.Graph) (float64, error) { return r.timed(g, hal.Timing{}) }

// timed is how long a run of several takes, in µs.
func (r *rig) timed(g hal.Graph, timing hal.Timing) (float64, error) {
	if timer, ok := g.(hal.Timer); ok {
		t, err := timer.RunTimed(r.ctx, timing)
		return float64(t.Nanoseconds()) / 1e3 / float64(max(timing.Runs, 1)), err
	}
	if timing.Before != nil {
		if err := timing.Before.Run(r.ctx); err != nil {
			return 0, err
		}
	}
	return r.waited(g)
}

// waited is how long the host waits for a run, in µs.
func (r *rig) waited(g hal.Graph) (float64, error) {
	begin := time.Now()
	err := g.Run(r.ctx)
	return float64(time.Since(begin).Nanoseconds()) / 1e3, err
}

// samples measures something several times, once more before that.
func (r *rig) samples(one func() (float64, error)) (cost.Figure, error) {
	return r.sampled(r.opt.Samples, one)
}

func (r *rig) sampled(n int, one func() (float64, error)) (cost.Figure, error) {
	if _, err := one(); err != nil {
		return cost.Figure{}, err
	}
	all := make([]float64, n)
	for i := range all {
		if err := r.ctx.Err(); err != nil {
			return cost.Figure{}, err
		}
		var err error
		if all[i], err = one(); err != nil {
			return cost.Figure{}, err
		}
	}
	return figure(all), nil
}

// outlier is how many times the median deviation from the median a sample deviates that something else disturbed.
const outlier = 10

// figure is the median of samples, and the tenths from both sides of those that are no outliers.
func figure(all []float64) cost.Figure {
	quantile := func(q float64) float64 {
		slices.Sort(all)
		return all[int(float64(q*float64(len(all)-1))+0.5)]
	}
	all = slices.Clone(all)
	middle := quantile(0.5)
	separate := make([]float64, len(all))
	for i, x := range all {
		separate[i] = math.Abs(x - middle)
	}
	slices.Sort(separate)
	if far := outlier * separate[len(separate)/2]; far > 0 {
		all = slices.DeleteFunc(all, func(x float64) bool { return math.Abs(x-middle) > far })
	}
	return cost.Figure{Low: quantile(0.1), Middle: middle, High: quantile(0.9)}
}

// slope is the time of one more of something, from graphs with few and with many of it that run in turns.
func (r *rig) slope(few, many int, ops func(n int) []hal.Op) (cost.Figure, error) {
	f, err := r.difference(r.opt.Samples, nil, ops(few), ops(many))
	return scaled(f, 1/float64(many-few)), err
}

// twice is the slope between an amount and twice as much.
func (r *rig) twice(n int, op func(n int) hal.Op) (cost.Figure, error) {
	return r.slope(n, 2*n, func(n int) []hal.Op { return []hal.Op{op(n)} })
}

// shortest is how long both runs of a difference take at least, in µs, unless something runs before them: shorter
// ones run several times in a row.
const shortest = 1000

// difference is how much longer some launches take than others, run in turns after launches that are not timed;
// nil: none.
func (r *rig) difference(samples int, before, less, more []hal.Op) (f cost.Figure, err error) {
	err = r.scoped(func() error {
		var graphs [3]hal.Graph
		for i, ops := range [][]hal.Op{before, less, more} {
			if len(ops) == 0 {
				continue
			}
			var err error
			if graphs[i], err = r.graph(ops...); err != nil {
				return err
			}
		}
		timing := hal.Timing{Before: graphs[0]}
		both := func() (a, b float64, err error) {
			if graphs[1] != nil {
				if a, err = r.timed(graphs[1], timing); err != nil {
					return 0, 0, err
				}
			}
			b, err = r.timed(graphs[2], timing)
			return a, b, err
		}
		f, err = r.sampled(samples, func() (float64, error) {
			a, b, err := both()
			if timing.Before == nil && timing.Runs == 0 {
				timing.Runs = max(1, min(8, int(shortest/max(a+b, 1))))
			}
			return b - a, err
		})
		return err
	})
	return f, err
}

// after is the time of launches after others that are not timed.
func (r *rig) after(before []hal.Op, ops ...hal.Op) (cost.Figure, error) {
	return r.difference(r.opt.Samples, before, nil, inOrder(ops...))
}

// found keeps a figure, or says why it is none.
func (r *rig) found(name string, f cost.Figure) {
	switch {
	case !(f.Middle > 0) || math.IsInf(f.Middle, 0):
		r.file.Left[name] = fmt.Sprintf("the difference of two amounts of work does not show: %.3g", f.Middle)
		return
	case math.IsInf(f.High, 0):
		r.file.Left[name] = fmt.Sprintf("the times vary by more than the work: %.3g, and some are below 0", f.Middle)
		return
	}
	f.Low = max(0, f.Low)
	r.keep(name, f)
}

// foundShare keeps what is between 0 and 1, whatever samples say.
func (r *rig) foundShare(name string, f cost.Figure) {
	r.keep(name, within(f, 0, 1))
}

// keep makes a figure the machine's, if the model knows it.
func (r *rig) keep(name string, f cost.Figure) {
	for _, c := range r.on.All() {
		if c.Name == name {
			r.file.Figures[name] = f
			if on, err := cost.Measure(r.on.Target, r.file.Figures); err == nil {
				r.on = cost.Of(on)
			}
			return
		}
	}
	r.file.Also[name] = f
}

// within is a figure between bounds.
func within(f cost.Figure, least, most float64) cost.Figure {
	return cost.Figure{Low: min(most, max(least, f.Low)), Middle: min(most, max(least, f.Middle)), High: min(most, max(least, f.High))}
}

// scaled is a figure times a factor; the rate of a time is per.
func scaled(f cost.Figure, by float64) cost.Figure {
	return cost.Figure{Low: float64(f.Low * by), Middle: float64(f.Middle * by), High: float64(f.High * by)}
}

// per is an amount per time: the longest time is the lowest rate.
func per(amount float64, f cost.Figure) cost.Figure {
	low := math.Inf(1)
	if f.Low > 0 {
		low = amount / f.Low
	}
	return cost.Figure{Low: amount / f.High, Middle: amount / f.Middle, High: low}
}

// less is a figure without what another one takes.
func less(f cost.Figure, by float64) cost.Figure {
	return cost.Figure{Low: f.Low - by, Middle: f.Middle - by, High: f.High - by}
}

// ring fills memory with offsets, each that of the line to read next; they go through all lines in an order that no prefetcher knows.
func ring(m hal.Memory) error {
	lines := m.Size() / lineBytes
	data := make([]byte, m.Size())
	step := lines*5/8 | 1 // the golden section would do; anything without a factor in common
	for gcd(step, lines) != 1 {
		step += 2
	}
	for i, at := 0, 0; i < lines; i++ {
		next := (at + step) % lines
		binary.LittleEndian.PutUint32(data[at*lineBytes:], uint32(next*lineBytes))
		at = next
	}
	return m.Write(data, 0)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
