package profile

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// Profile is what a run of a model did and what it is predicted to cost on a device.
type Profile struct {
	Model     string   `json:"model"`
	Precision string   `json:"precision"`
	Target    string   `json:"target"` // target of the code
	Device    string   `json:"device"` // device of the predicted times
	Total     Sum      `json:"total"`
	Bounds    []Bound  `json:"bounds"`  // time by limiting resource, longest first
	Kernels   []Sum    `json:"kernels"` // longest first
	Launches  []Launch `json:"launches"`
	AloneUS   float64  `json:"alone_us"` // sum of the launches' times, as if each began after the previous one ended

	Range     cost.Figure `json:"range_us"`      // of Total.US, by what is known of each constant
	ColdRange cost.Figure `json:"cold_range_us"` // of Total.ColdUS
	Waited    cost.Figure `json:"waited_us"`     // of Total.US and the launch of a graph and the wait for it, which a caller sees

	parts [][]float64 // followed.read
}

// Bound is the time of all launches with one limiting resource.
type Bound struct {
	By       string  `json:"by"`
	Launches int     `json:"launches"`
	US       float64 `json:"us"`
}

// Counts is what one or more launches did.
type Counts struct {
	Instructions map[string]int64 `json:"instructions"` // that warps issued, by class
	Warp         int64            `json:"warp_instructions"`
	Thread       int64            `json:"thread_instructions"` // executed by threads
	ActiveLanes  float64          `json:"active_lanes"`        // mean, of 32
	Divergent    int64            `json:"divergent_branches"`
	MMA          []MMA            `json:"mma,omitempty"`
	MACs         int64            `json:"macs"` // of mma
	FMAs         int64            `json:"fmas"` // of fma, a thread's each; f32x2 is two
	Barriers     int64            `json:"barriers"`
	Atomics      int64            `json:"atomics"`

	Sectors     int64   `json:"global_sectors"`        // of 32 bytes, asked for
	SectorBytes int64   `json:"global_sector_bytes"`   // that instructions used of them
	Coalescing  float64 `json:"coalescing"`            // used bytes of sectors asked for
	L2Read      int64   `json:"l2_read_sectors"`       // of Sectors, those that a first-level cache does not serve
	L2Written   int64   `json:"l2_written_sectors"`    // of Sectors, those of stores and atomics
	DRAM        int64   `json:"dram_bytes"`            // that DRAM serves, by the model of L2, what is prefetched included
	ColdDRAM    int64   `json:"cold_dram_bytes"`       // likewise, with cold weights
	Prefetched  int64   `json:"prefetched_bytes"`      // of weights that it prefetches for later launches
	UniqueRead  int64   `json:"unique_read_bytes"`     // of global memory, each byte once
	UniqueWrite int64   `json:"unique_write_bytes"`    //
	Constants   int64   `json:"unique_constant_bytes"` // of UniqueRead
	Wavefronts  int64   `json:"shared_wavefronts"`     // passes through shared memory
	Conflicts   int64   `json:"shared_bank_conflicts"` // of which conflicts caused
}

// MMA counts a shape and type of mma.sync.
type MMA struct {
	Op    string `json:"op"` // m16n8k16.f32.f16.f16.f32
	Warps int64  `json:"warps"`
	MACs  int64  `json:"macs"`
}

// Launch is one node of the graph.
type Launch struct {
	Index  int    `json:"index"`
	Kernel string `json:"kernel"`
	Family string `json:"family,omitempty"`
	Note   string `json:"note,omitempty"`
	Region string `json:"region,omitempty"` // of the file, where Name was told
	Grid   [3]int `json:"grid"`
	Block  [3]int `json:"block"`
	Shared int    `json:"shared_bytes"`
	Counts
	Occupancy cost.Occupancy `json:"occupancy,omitzero"`
	Time      cost.Time      `json:"predicted"`
	ColdUS    float64        `json:"cold_us"`     // predicted where constants come from DRAM, whatever L2 could hold
	EndUS     float64        `json:"end_us"`      // when it ends, from the beginning of the run
	ColdEndUS float64        `json:"cold_end_us"` // likewise, of a run with cold constants
	Work      *cost.Work     `json:"-"`           // that Time is predicted from, but for what DRAM serves; nil for a copy
	Cold      *cost.Work     `json:"-"`           // that ColdUS is predicted from

	cold      cost.Time
	touched   traffic
	early     float64 // bytes that it can fetch before the preceding launch ends
	copied    int     // bytes, of a copy
	dependent bool    // starts before the preceding launch ends
}

// Sum is several launches together: of one kernel, or all.
type Sum struct {
	Kernel   string `json:"kernel,omitempty"`
	Family   string `json:"family,omitempty"`
	Note     string `json:"note,omitempty"`
	Region   string `json:"region,omitempty"` // of its first launch
	Launches int    `json:"launches"`
	Counts
	US        float64        `json:"us"`
	ColdUS    float64        `json:"cold_us"`
	Share     float64        `json:"share"` // of the launches' times
	By        string         `json:"bound"`
	Occupancy cost.Occupancy `json:"occupancy,omitzero"` // of the first launch
	Blocks    int            `json:"blocks"`             // of the first launch
	Threads   int            `json:"threads"`            // of a block
}

// classes are the names of ptx.Kind.
var classes = map[ptx.Kind]string{ptx.KindInt: "integer", ptx.KindFloat: "float", ptx.KindSpecial: "special", ptx.KindConvert: "convert",
	ptx.KindMove: "move", ptx.KindLoad: "load", ptx.KindStore: "store", ptx.KindAsync: "async", ptx.KindMMA: "mma", ptx.KindMatrix: "matrix",
	ptx.KindWarp: "warp", ptx.KindSync: "sync", ptx.KindAtomic: "atomic", ptx.KindControl: "control"}

// New makes a profile of the counts of a run of an entry, in launch order, for a target's device.
func New(p *runtime.Program, v *runtime.Variant, name string, counts []*emu.Counts, t *target.Target) (*Profile, error) {
	out, all, err := newProfile(p, v, name, counts, t)
	if err == nil {
		out.ranges(cost.Of(t), *all)
	}
	return out, err
}

// Total is New's Total.US, in a fraction of the time.
func Total(p *runtime.Program, v *runtime.Variant, name string, counts []*emu.Counts, t *target.Target) (us float64, err error) {
	out, _, err := newProfile(p, v, name, counts, t)
	if err != nil {
		return 0, err
	}
	return out.Total.US, nil
}

// newProfile is New without ranges, and what L2 keeps of the run.
func newProfile(p *runtime.Program, v *runtime.Variant, name string, counts []*emu.Counts, t *target.Target) (*Profile, *caches, error) {
	entry := v.Entry(name)
	if entry == nil {
		return nil, nil, fmt.Errorf("%s: variant %s has no entry %s: compile the model again", p.Model, v.Target, name)
	}
	m := cost.Of(t)
	out := &Profile{Model: p.Model, Precision: p.Precision, Target: v.Target, Device: t.Device}
	for _, c := range counts {
		l := Launch{Index: c.Op, Kernel: c.Kernel, Grid: c.Grid, Block: c.Block, Shared: c.Shared}
		if c.Op < len(entry.Launches) {
			l.Note = entry.Launches[c.Op].Note
		}
		regs := 0
		if i := slices.IndexFunc(v.Kernels, func(k runtime.KernelInfo) bool { return k.Name == c.Kernel }); i >= 0 {
			l.Family, regs = v.Kernels[i].Family, v.Kernels[i].Regs
		}
		l.count(c)
		l.Occupancy = cost.OccupancyOf(t, l.Block[0]*l.Block[1]*l.Block[2], l.Shared, regs)
		l.Work, l.touched, l.early = l.work(t, c), trafficOf(c), math.Inf(1)
		l.dependent = l.Index < len(entry.Launches) && entry.Launches[l.Index].Dependent
		if preceding := len(out.Launches) - 1; preceding >= 0 && l.dependent && out.Launches[preceding].Index == l.Index-1 {
			l.early = l.earlyBytes(&out.Launches[preceding], t)
		}
		out.Launches = append(out.Launches, l)
	}
	out.copies(entry)
	out.parts = partsRead(entry, counts)
	all := &caches{followed{v: v, launches: entry.Launches, states: p.States, read: out.parts}, map[keeping]cached{}}
	on := all.on(m)
	for i := range out.Launches {
		l := &out.Launches[i]
		l.Time, l.cold = l.estimate(m, on.warm[l.Index]), l.estimate(m, on.cold[l.Index])
		l.ColdUS = l.cold.US
		if l.Work != nil {
			warm := l.served(on.warm[l.Index])
			l.Cold = l.served(on.cold[l.Index])
			l.DRAM, l.ColdDRAM = int64(warm.DRAMBytes+warm.Fetches), int64(l.Cold.DRAMBytes+l.Cold.Fetches)
		}
	}
	out.sum()
	return out, all, nil
}

// Run counts one run of an entry of a variant on zeros, on the CPU device, and predicts it for a target's device; nil: the variant's
// own. The counts hardly depend on the values, but for where the step of a loop reads pictures of cameras: that is as in Loop.Sample.
func Run(ctx context.Context, p *runtime.Program, v *runtime.Variant, entry string, t *target.Target) (*Profile, error) {
	if t == nil {
		var err error
		if t, err = target.Lookup(v.Target); err != nil {
			return nil, err
		}
	}
	counts, err := Count(ctx, p, v, entry)
	if err != nil {
		return nil, err
	}
	return New(p, v, entry, counts, t)
}

// Count counts the run that Run predicts, in launch order.
func Count(ctx context.Context, p *runtime.Program, v *runtime.Variant, entry string) ([]*emu.Counts, error) {
	var counts []*emu.Counts
	d, err := emu.Open(emu.Options{CountOnly: true, Profile: func(c *emu.Counts) { counts = append(counts, c) }})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: v.Target})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := sample(p.Loop, s); err != nil {
		return nil, err
	}
	if err := s.RunEntry(ctx, entry); err != nil {
		return nil, err
	}
	return counts, nil
}

// sample sets the inputs by which the step of a loop reads pictures; nil: it is no such step.
func sample(l *runtime.Loop, s *runtime.Session) error {
	if l == nil {
		return nil
	}
	transforms, camera := generation.Sample(l)
	var matrices, format []byte
	for _, x := range transforms {
		matrices = binary.LittleEndian.AppendUint32(matrices, math.Float32bits(x))
	}
	for _, x := range camera {
		format = binary.LittleEndian.AppendUint32(format, uint32(x))
	}
	if err := s.Set(runtime.TransformsInput, matrices); err != nil {
		return err
	}
	return s.Set(runtime.CameraInput, format)
}

// partsRead is followed.read of counts.
func partsRead(e *runtime.Entry, counts []*emu.Counts) [][]float64 {
	out := make([][]float64, len(e.Launches))
	for i := range out {
		for range e.Launches[i].Reads {
			out[i] = append(out[i], 1)
		}
	}
	for _, c := range counts {
		if c.Op >= len(out) {
			continue
		}
		for k, a := range e.Launches[c.Op].Reads {
			if k < len(c.Reads) && a.Bytes > 0 {
				out[c.Op][k] = min(1, float64(32*c.Reads[k])/float64(a.Bytes))
			}
		}
	}
	return out
}

// copies adds the entry's copies as launches.
func (p *Profile) copies(e *runtime.Entry) {
	for i, op := range e.Launches {
		if op.Copy == nil {
			continue
		}
		bytes := op.Copy.Bytes
		l := Launch{Index: i, Kernel: "(copy)", Note: op.Note, Grid: op.Grid, Block: op.Block, copied: bytes}
		l.UniqueRead, l.UniqueWrite = int64(bytes), int64(bytes)
		l.ratios()
		p.Launches = append(p.Launches, l)
	}
	slices.SortStableFunc(p.Launches, func(a, b Launch) int { return a.Index - b.Index })
}

// estimate is the launch's time on a machine, with a part of what it touches in DRAM.
func (l *Launch) estimate(m *cost.Machine, dram missing) cost.Time {
	if l.Work == nil {
		return m.Copy(l.copied)
	}
	return m.Estimate(l.served(dram))
}

// ranges predicts the run again with other constants. DRAM serves more where L2 keeps less.
func (p *Profile) ranges(m *cost.Machine, all caches) {
	total := func(m *cost.Machine, dram []missing) float64 {
		times, dependent := make([]cost.Time, len(p.Launches)), make([]bool, len(p.Launches))
		for i := range p.Launches {
			l := &p.Launches[i]
			times[i], dependent[i] = l.estimate(m, dram[l.Index]), l.dependent
		}
		return cost.Sequence(times, dependent)
	}
	p.Range = m.Range(func(m *cost.Machine) float64 { return total(m, all.on(m).warm) })
	p.ColdRange = m.Range(func(m *cost.Machine) float64 { return total(m, all.on(m).cold) })
	p.Waited = m.Range(func(m *cost.Machine) float64 { return m.GraphUS + total(m, all.on(m).warm) })
}

// count sorts what each instruction did into classes.
func (l *Launch) count(c *emu.Counts) {
	l.Instructions = map[string]int64{}
	for i := range c.Sites {
		s := &c.Sites[i]
		d := s.Instr.Def
		l.Instructions[classes[d.Kind]] += s.Warps
		l.Warp += s.Warps
		l.Thread += s.Lanes
		l.Divergent += s.Divergent
		l.Sectors += s.Sectors
		l.SectorBytes += s.SectorBytes
		switch d.Does {
		case ptx.Store, ptx.Atomic:
			l.L2Written += s.L2Sectors
		default:
			l.L2Read += s.L2Sectors
		}
		l.Wavefronts += s.Wavefronts
		l.Conflicts += s.Conflicts
		switch {
		case d.Does == ptx.Multiply:
			macs, _ := cost.Product(d)
			l.multiply(MMA{strings.Join(d.Mods[2:], "."), s.Warps, s.Warps * macs})
			l.MACs += s.Warps * macs
		case d.Name == "fma" && slices.Contains(d.Mods, "f32x2"):
			l.FMAs += 2 * s.Lanes
		case d.Name == "fma":
			l.FMAs += s.Lanes
		case d.Does == ptx.Barrier:
			l.Barriers += s.Warps
		case d.Does == ptx.Atomic:
			l.Atomics += s.Lanes
		}
	}
	for _, m := range c.Memories {
		l.Prefetched += 32 * m.PrefetchSectors
		l.UniqueRead += m.ReadBytes
		l.UniqueWrite += m.WriteBytes
		if m.Constant {
			l.Constants += m.ReadBytes
		}
	}
	l.ratios()
}

// multiply adds to the mma of that shape and type.
func (c *Counts) multiply(m MMA) {
	i := slices.IndexFunc(c.MMA, func(x MMA) bool { return x.Op == m.Op })
	if i < 0 {
		c.MMA = append(c.MMA, m)
		return
	}
	c.MMA[i].Warps += m.Warps
	c.MMA[i].MACs += m.MACs
}

func (c *Counts) ratios() {
	slices.SortFunc(c.MMA, func(a, b MMA) int { return strings.Compare(a.Op, b.Op) })
	c.Coalescing, c.ActiveLanes = 1, 0
	if c.Sectors > 0 {
		c.Coalescing = float64(c.SectorBytes) / float64(32*c.Sectors)
	}
	if c.Warp > 0 {
		c.ActiveLanes = float64(c.Thread) / float64(c.Warp)
	}
}

func (c *Counts) add(o *Counts) {
	if c.Instructions == nil {
		c.Instructions = map[string]int64{}
	}
	for k, n := range o.Instructions {
		c.Instructions[k] += n
	}
	for _, m := range o.MMA {
		c.multiply(m)
	}
	for _, p := range [][2]*int64{{&c.Warp, &o.Warp}, {&c.Thread, &o.Thread}, {&c.Divergent, &o.Divergent}, {&c.MACs, &o.MACs},
		{&c.FMAs, &o.FMAs}, {&c.Barriers, &o.Barriers}, {&c.Atomics, &o.Atomics}, {&c.Sectors, &o.Sectors},
		{&c.SectorBytes, &o.SectorBytes}, {&c.L2Read, &o.L2Read}, {&c.L2Written, &o.L2Written}, {&c.UniqueRead, &o.UniqueRead}, {&c.UniqueWrite, &o.UniqueWrite},
		{&c.DRAM, &o.DRAM}, {&c.ColdDRAM, &o.ColdDRAM}, {&c.Prefetched, &o.Prefetched}, {&c.Constants, &o.Constants}, {&c.Wavefronts, &o.Wavefronts}, {&c.Conflicts, &o.Conflicts}} {
		*p[0] += *p[1]
	}
	c.ratios()
}

// Name names the launches after the regions of the file that they compute.
func (p *Profile) Name(regions []string) {
	for i := range p.Launches {
		if l := &p.Launches[i]; l.Index < len(regions) {
			l.Region = regions[l.Index]
		}
	}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		at := slices.IndexFunc(p.Launches, func(l Launch) bool { return l.Kernel == k.Kernel })
		k.Region = p.Launches[at].Region
	}
}

// sum adds up the launches: by kernel, by bound, and in total.
func (p *Profile) sum() {
	kernels, bounds := map[string]*Sum{}, map[string]*Bound{}
	var warm, cold []cost.Time
	var dependent []bool
	for i := range p.Launches {
		l := &p.Launches[i]
		k := kernels[l.Kernel]
		if k == nil {
			k = &Sum{Kernel: l.Kernel, Family: l.Family, Note: l.Note, By: l.Time.By, Occupancy: l.Occupancy,
				Blocks: l.Grid[0] * l.Grid[1] * l.Grid[2], Threads: l.Block[0] * l.Block[1] * l.Block[2]}
			kernels[l.Kernel] = k
		}
		b := bounds[l.Time.By]
		if b == nil {
			b = &Bound{By: l.Time.By}
			bounds[l.Time.By] = b
		}
		for _, s := range []*Sum{k, &p.Total} {
			s.Launches++
			s.US += l.Time.US
			s.ColdUS += l.ColdUS
			s.Counts.add(&l.Counts)
		}
		b.Launches++
		b.US += l.Time.US
		warm, cold, dependent = append(warm, l.Time), append(cold, l.cold), append(dependent, l.dependent)
	}
	p.AloneUS = p.Total.US
	hot, late := cost.Ends(warm, dependent), cost.Ends(cold, dependent)
	for i := range p.Launches {
		p.Launches[i].EndUS, p.Launches[i].ColdEndUS = hot[i], late[i]
	}
	p.Total.US, p.Total.ColdUS = cost.Sequence(warm, dependent), cost.Sequence(cold, dependent)
	for _, k := range kernels {
		k.Share = k.US / p.AloneUS
		p.Kernels = append(p.Kernels, *k)
	}
	for _, b := range bounds {
		p.Bounds = append(p.Bounds, *b)
	}
	slices.SortFunc(p.Kernels, func(a, b Sum) int { return cmp.Or(cmp.Compare(b.US, a.US), strings.Compare(a.Kernel, b.Kernel)) })
	slices.SortFunc(p.Bounds, func(a, b Bound) int { return cmp.Or(cmp.Compare(b.US, a.US), strings.Compare(a.By, b.By)) })
	if len(p.Bounds) > 0 {
		p.Total.By = p.Bounds[0].By
	}
	p.Total.Share = 1
}
