package window

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// Family makes the kernels of windows, and of two fused windows. Regions it rejects fall back to loop, fused ones to
// their parts.
var Family = kernel.Family{Name: ir.FamilyWindow, Analyse: func(region *ir.Node, ctx *kernel.Context) (k kernel.Kernel, err error) {
	defer lower.Catch(&err)
	if region.IsFamily(ir.FamilyFused) {
		c, err := analyseFused(region)
		if err != nil {
			return nil, err
		}
		return &tiled[fusedSchedule]{c, ctx, region}, ctx.StoresBlocks(c.second.region)
	}
	p, err := analyse(region)
	if err != nil {
		return nil, err
	}
	return &tiled[schedule]{p, ctx, region}, ctx.StoresBlocks(p.region)
}}

// tiling is a window, or several that one kernel computes, with schedules of type S.
type tiling[S tile] interface {
	all() iter.Seq[S] // the schedules worth considering, in a fixed order, with rows packed
	placed(s S) S     // with rows padded in shared memory, which takes long to optimise
	shared(s S) int   // bytes of a block's shared memory
	work(s S, m *cost.Machine) *cost.Work
	spec(s S, ctx *kernel.Context, region *ir.Node) (*kernel.Spec, error)
	what() string   // for Signature
	noSuch() string // for who chose another schedule: the form that they have
	fewBlocks() string
}

var (
	_ tiling[schedule]      = (*problem)(nil)
	_ tiling[fusedSchedule] = (*fusedWindows)(nil)
)

type tile interface {
	fmt.Stringer
	coordinates() []int
}

// tiled is a kernel whose schedule is open.
type tiled[S tile] struct {
	tiling[S]
	ctx    *kernel.Context
	region *ir.Node
}

// Signature implements kernel.Kernel.
func (k *tiled[S]) Signature() string {
	return k.ctx.Signature(k.region.Region.Family, k.what(), k.region)
}

// Key implements kernel.Kernel.
func (k *tiled[S]) Key() string { return "" }

func (k *tiled[S]) fits(s S) bool { return k.shared(s) <= k.ctx.Target.SharedBlock }

func (k *tiled[S]) choice(s S, w *cost.Work) kernel.Choice {
	c := kernel.Choice{Schedule: s, Work: w}
	if w.Blocks < k.ctx.Target.SMs {
		c.Reason = fmt.Sprintf("%s are %d blocks", k.fewBlocks(), w.Blocks)
	}
	return c
}

// Choose implements kernel.Kernel; among equals it takes the first. Rows are padded only where that may pay.
func (k *tiled[S]) Choose() (best kernel.Choice, err error) {
	least, m := math.Inf(1), cost.Of(k.ctx.Target)
	for s := range k.all() {
		if !k.fits(s) || m.Estimate(k.work(s, m)).US >= least {
			continue
		}
		s = k.placed(s)
		w := k.work(s, m)
		if us := m.Estimate(w).US; us < least && k.fits(s) {
			best, least = k.choice(s, w), us
		}
	}
	if best.Schedule == nil {
		return best, fmt.Errorf("no tile of %s fits into shared memory", k.what())
	}
	return best, nil
}

// Parse implements kernel.Kernel.
func (k *tiled[S]) Parse(text string) (c kernel.Choice, err error) {
	for s := range k.all() {
		if s.String() != text {
			continue
		}
		if s = k.placed(s); !k.fits(s) {
			return c, fmt.Errorf("%d bytes of shared memory, a block has %d", k.shared(s), k.ctx.Target.SharedBlock)
		}
		return k.choice(s, k.work(s, cost.Of(k.ctx.Target))), nil
	}
	return c, errors.New(k.noSuch())
}

// Candidates implements kernel.Kernel.
func (k *tiled[S]) Candidates(own kernel.Choice) (plans []kernel.Candidate, err error) {
	defer lower.Catch(&err)
	m, by := cost.Of(k.ctx.Target), map[string]S{}
	us := func(s S) float64 { return m.Estimate(k.work(s, m)).US }
	for s := range k.all() {
		if k.fits(s) {
			by[s.String()] = s
			plans = append(plans, kernel.Candidate{Schedule: s.String(), At: s.coordinates(), US: us(s)})
		}
	}
	plans = kernel.Within(plans, own.Schedule.(S).coordinates())
	for i := range plans {
		s := k.placed(by[plans[i].Schedule])
		by[plans[i].Schedule], plans[i].US = s, us(s)
	}
	return slices.DeleteFunc(plans, func(p kernel.Candidate) bool { return !k.fits(by[p.Schedule]) }), nil
}

// Spec implements kernel.Kernel.
func (k *tiled[S]) Spec(c kernel.Choice) (spec *kernel.Spec, err error) {
	defer lower.Catch(&err)
	return k.spec(c.Schedule.(S), k.ctx, k.region)
}

func (s schedule) coordinates() []int {
	return []int{s.Rows, s.Columns / s.Pixels, s.Channels, s.Pixels, s.Vector}
}

func (s fusedSchedule) coordinates() []int { return append(s.second.coordinates(), s.first.Pixels) }
