package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
)

// routes is a set of a directory's segments.
type routes struct {
	opt      Options
	contract *contract
	segments []*segment
	at       []place  // of samples
	remove   []string // directories that go with the set

	mu       sync.Mutex
	features map[string][]float32 // by key, of the frames that samples were made of lately
}

// openRoutes reads the logs and videos below a directory, or what the cache has of them.
func openRoutes(ctx context.Context, dir string, opt Options, k kind) (_ Set, err error) {
	c, err := contractOf(opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	found, err := route.Find(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, p := range found.Problems {
		opt.Warn(fmt.Sprintf("%s is left out: %v", p.Path, p.Err))
	}
	r := &routes{opt: opt, contract: c, features: map[string][]float32{}}
	cache := opt.Cache
	if cache == "" {
		if cache, err = os.MkdirTemp("", "spark-frames"); err != nil {
			return nil, err
		}
		r.remove = append(r.remove, cache)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := sweep(cache); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	opened, refused := openSegments(ctx, found.Segments, c, k, cache, opt.Progress)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), r.Close())
	}
	for i, err := range refused {
		if errors.Is(err, memory.ErrBudget) { // no fault of the segment, and another set without it
			return nil, errors.Join(fmt.Errorf("segment %s: %w", found.Segments[i].Name(), err), r.Close())
		}
		var full *unkept
		if errors.As(err, &full) {
			return nil, errors.Join(fmt.Errorf("segment %s: what models see of it cannot be kept in %s: %w: make room there, or give another directory for the cache", found.Segments[i].Name(), cache, full), r.Close())
		}
	}
	link(opened)
	var reasons []string
	for i, g := range opened {
		err, samples := refused[i], []int(nil)
		if err == nil {
			if samples = g.samples(c); len(samples) == 0 {
				err = errors.New("it is too short for a sample")
			}
		}
		if err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", found.Segments[i].Name(), err))
			opt.Warn(fmt.Sprintf("segment %s is left out: %v", found.Segments[i].Name(), err))
			continue
		}
		for _, text := range g.index.Damage {
			opt.Warn(text)
		}
		for _, k := range samples {
			r.at = append(r.at, place{g, k})
		}
		r.segments = append(r.segments, g)
	}
	if len(r.at) == 0 {
		reason := "no segment was found; they are directories with an rlog"
		if len(reasons) > 0 {
			reason = "none of its segments can be used: " + strings.Join(reasons[:min(3, len(reasons))], "; ")
		}
		return nil, errors.Join(fmt.Errorf("%s: %s", dir, reason), r.Close())
	}
	return r, nil
}

// openSegments opens several at a time, since a process that decodes a video does not fill all cores. Of each there is a segment or a reason why not. Those that other
// processes read into the same cache come last, so that ranks of one machine share the work.
func openSegments(ctx context.Context, found []route.Segment, c *contract, k kind, cache string, progress func(done, of int)) ([]*segment, []error) {
	opened, refused := make([]*segment, len(found)), make([]error, len(found))
	var mu sync.Mutex
	done := 0
	each := func(list []int, wait bool) (elsewhere []int) {
		var group errgroup.Group
		group.SetLimit(min(runtime.GOMAXPROCS(0), mostDecoded))
		for _, i := range list {
			group.Go(func() error {
				if ctx.Err() != nil {
					return nil
				}
				g, err := openSegment(ctx, &found[i], c, k, cache, wait)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errElsewhere) {
					elsewhere = append(elsewhere, i)
					return nil
				}
				opened[i], refused[i] = g, err
				done++
				progress(done, len(found))
				return nil
			})
		}
		_ = group.Wait() // errors are the segments'
		return elsewhere
	}
	all := make([]int, len(found))
	for i := range all {
		all[i] = i
	}
	each(each(all, false), true)
	return opened, refused
}

// mostDecoded bounds the segments that are read at once: each holds some twenty frames of two cameras, about 70 MB.
const mostDecoded = 8

func (r *routes) Len() int { return len(r.at) }

func (r *routes) Route(i int) string { return r.at[i].route }

func (r *routes) Fingerprint() string {
	h := sha256.New()
	for _, g := range r.segments {
		before := "" // whose frames are seen too
		if g.previous != nil {
			before = g.previous.content
		}
		fmt.Fprintln(h, g.name, g.content, before)
	}
	fmt.Fprintln(h, len(r.at))
	return hex.EncodeToString(h.Sum(nil))
}

// Close removes pictures that no cache keeps.
func (r *routes) Close() error {
	var errs []error
	for _, dir := range r.remove {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func (r *routes) Sample(ctx context.Context, i int) (*Sample, error) {
	p := r.at[i]
	s := &Sample{Key: p.key(), Inputs: map[string][]byte{}, Truth: map[string][]float32{}}
	for _, in := range r.contract.inputs {
		data, err := r.input(ctx, p, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Key, in.Name, err)
		}
		s.Inputs[in.Name] = data
	}
	if r.contract.rule != "" {
		seen, err := p.pictures.read(p.k)
		if err != nil {
			return nil, err
		}
		s.View = driverView(r.contract, seen)
		return s, nil
	}
	s.Truth["plan"] = p.truth()
	if r.contract.sees {
		road, _, err := p.pictures.readPair(p.k)
		if err != nil {
			return nil, err
		}
		s.View = &View{Planes: road, Width: r.contract.look.Width, Height: r.contract.look.Height}
	}
	return s, nil
}

// input is what the model takes at a moment.
func (r *routes) input(ctx context.Context, p place, in Input) ([]byte, error) {
	if r.contract.rule != "" {
		return r.driverInput(p, in)
	}
	if v, ok := r.contract.row.Vector(in.Name); ok {
		m := p.moment()
		return elements(in.Type, v.Values(generation.Car{RightHandDrive: m.RightHand, Speed: m.Speed, LateralDelay: m.Delays[0], LongitudinalDelay: m.Delays[1]})), nil
	}
	switch {
	case slices.Contains(generation.RoadInputs(), in.Name), slices.Contains(generation.WideInputs(), in.Name):
		return r.picture(p, in)
	case slices.Contains(generation.DesireInputs(), in.Name):
		return elements(in.Type, p.desires(in.Type.Numel()/generation.Desires, r.contract.old)), nil
	case in.Name == generation.PrevCurvatures:
		return elements(in.Type, p.curvatures(in.Type.Numel(), r.contract.old)), nil
	}
	x, err := r.history(ctx, p)
	if err != nil {
		return nil, err
	}
	return elements(in.Type, x), nil
}

// picture is that of a camera some frames ago, then now's.
func (r *routes) picture(p place, in Input) ([]byte, error) {
	var both []byte
	then, ok := p.before(r.contract.step)
	if !ok {
		return nil, errors.New("the frame before is missing")
	}
	for _, at := range []place{then, p} {
		road, wide, err := at.pictures.readPair(at.k)
		if err != nil {
			return nil, err
		}
		if slices.Contains(generation.WideInputs(), in.Name) {
			road = wide
		}
		both = append(both, road...)
	}
	return bytesOf(in.Type, both), nil
}

// history are the features of the frames up to now, or up to the one before; zero before the route begins, or where it has a gap, as when modeld starts. Where the log
// has lost a frame, those before it are there in its place.
func (r *routes) history(ctx context.Context, p place) ([]float64, error) {
	c := r.contract
	spacing, last := c.step, 0
	if !c.now {
		last = 1
	}
	var moments []place
	rows := make([]*place, c.rows)
	for row := range rows {
		at, ok := p.near(spacing * (c.rows - 1 - row + last))
		if ok {
			_, ok = at.before(c.step)
		}
		switch {
		case ok:
			moments, rows[row] = append(moments, at), &at
		case row > 0:
			rows[row] = rows[row-1]
		}
	}
	found, err := r.featuresOf(ctx, moments)
	if err != nil {
		return nil, err
	}
	out := make([]float64, c.rows*c.width)
	for row, at := range rows {
		if at == nil {
			continue
		}
		x := found[*at]
		if len(x) != c.width {
			return nil, fmt.Errorf("the vision model makes %d features, the model takes %d", len(x), c.width)
		}
		for i, v := range x {
			out[row*c.width+i] = float64(v)
		}
	}
	return out, nil
}

// mostFeatures are kept in memory, by frame: overlapping histories read each one many times.
const mostFeatures = 1 << 16

// featuresOf are those of moments, by moment.
func (r *routes) featuresOf(ctx context.Context, moments []place) (map[place][]float32, error) {
	out := map[place][]float32{}
	var missing []place
	r.mu.Lock()
	for _, at := range moments {
		if x, ok := r.features[at.key()]; ok {
			out[at] = x
		} else {
			missing = append(missing, at)
		}
	}
	r.mu.Unlock()
	var keys []string
	var inputs []map[string][]byte
	for _, at := range missing {
		one := map[string][]byte{}
		for _, in := range r.opt.Vision {
			data, err := r.picture(at, in)
			if err != nil {
				return nil, err
			}
			one[in.Name] = data
		}
		keys, inputs = append(keys, at.key()), append(inputs, one)
	}
	if len(keys) == 0 {
		return out, nil
	}
	found, err := r.opt.Features(ctx, keys, inputs)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.features)+len(keys) > mostFeatures {
		clear(r.features)
	}
	for i, at := range missing {
		out[at], r.features[keys[i]] = found[i], found[i]
	}
	return out, nil
}

// Counts are what a set of routes is made of.
type Counts struct {
	Segments, Frames int
	Hours            float64
	Events           map[string]int // messages by kind
	Cars             map[string]int // segments by the car's fingerprint, of sets without cameras
}

// Counted is a set that says what it is made of.
type Counted interface{ Count() Counts }

// Count adds up all segments.
func (r *routes) Count() Counts {
	c := Counts{Segments: len(r.segments), Events: map[string]int{}}
	for _, g := range r.segments {
		c.Frames += len(g.index.Timeline.Moments)
		for kind, n := range g.index.Timeline.Events {
			c.Events[kind] += n
		}
	}
	c.Hours = float64(c.Frames) / (20 * 3600)
	return c
}

// DrivingInputs are those of openpilot's vision models, which show what is in the data whatever is to be trained.
func DrivingInputs() []Input {
	t := ir.T(ir.Uint8, 1, 12, 128, 256)
	names := generation.Named("plan").Pictures[0]
	return []Input{{names.Road, t}, {names.Wide, t}}
}
