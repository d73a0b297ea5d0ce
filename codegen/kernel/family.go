package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// Family makes kernels of regions, and of fused regions that end in one of its own.
type Family struct {
	Name string
	// Analyse is the kernel of a region but for its schedule. The error says why the family has none. It has no
	// effect on anything else.
	Analyse func(region *ir.Node, ctx *Context) (Kernel, error)
}

// Kernel is a kernel whose schedule is open.
type Kernel interface {
	// Signature is what Choices know the kernel by (Context.Signature); "" if it has one schedule.
	Signature() string
	// Key distinguishes kernels for which Choose may find different schedules; "" if its result is not cached.
	Key() string
	// Choose is the schedule of least estimated time.
	Choose() (Choice, error)
	// Parse is a schedule that was chosen from outside, in its readable form.
	Parse(schedule string) (Choice, error)
	// Candidates are the schedules that a tuner tries, Within what the fastest is estimated to take. The family's own
	// is one.
	Candidates(own Choice) ([]Candidate, error)
	// Spec is the kernel with a schedule.
	Spec(c Choice) (*Spec, error)
}

// Choice is a schedule of a kernel.
type Choice struct {
	Schedule fmt.Stringer
	Work     *cost.Work // what the launch does; nil where it is not known
	Reason   string     // why a rule of thumb is not met, or empty
}

// clone is a choice with a work of its own, which callers change.
func (c Choice) clone() Choice {
	if c.Work != nil {
		w := *c.Work
		w.Products = slices.Clone(w.Products)
		c.Work = &w
	}
	return c
}

// Memo caches chosen schedules, for programs that have most regions in common: a choice estimates thousands of
// schedules. The zero value is an empty cache.
type Memo struct {
	mu    sync.Mutex
	known map[string]*memoised
	works map[string]*cost.Work // of fused regions and parts whose benefit was predicted; nil: no kernel
}

// memoised is a choice that is made once, also if several regions ask at the same time.
type memoised struct {
	sync.Once
	choice Choice
	err    error
}

// Len is how many schedules are remembered.
func (m *Memo) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known)
}

// choose is what a kernel chooses; of nil it is not remembered.
func (m *Memo) choose(family string, k Kernel) (Choice, error) {
	key := k.Key()
	if m == nil || key == "" {
		return k.Choose()
	}
	key = fmt.Sprintf("%s %T %s", family, k, key)
	m.mu.Lock()
	of := m.known[key]
	if of == nil {
		if m.known == nil {
			m.known = map[string]*memoised{}
		}
		of = &memoised{}
		m.known[key] = of
	}
	m.mu.Unlock()
	of.Do(func() { of.choice, of.err = k.Choose() })
	if of.err != nil {
		return k.Choose() // whose error names this region
	}
	return of.choice.clone(), nil
}

// Families make the kernels of a program.
type Families struct {
	list []Family
	memo *Memo
}

// NewFamilies are families of different names, whose choices memo remembers, unless it is nil.
func NewFamilies(memo *Memo, list ...Family) *Families { return &Families{list, memo} }

// With are the families with another one in place of that of its name.
func (f *Families) With(other Family) *Families {
	out := &Families{slices.Clone(f.list), f.memo}
	for i := range out.list {
		if out.list[i].Name == other.Name {
			out.list[i] = other
		}
	}
	return out
}

// of is the family of a name.
func (f *Families) of(name string) (Family, error) {
	at := slices.IndexFunc(f.list, func(x Family) bool { return x.Name == name })
	if at < 0 {
		return Family{}, fmt.Errorf("no kernels for regions of family %s", name)
	}
	return f.list[at], nil
}

// Lower is the kernel of a region with the schedule that the schedule cache or its family chooses. The error says why
// the family has none: a ScheduleError if it cannot have that schedule, ErrUnfused if the parts are to be separate
// launches.
func (f *Families) Lower(region *ir.Node, ctx *Context) (*Spec, error) {
	return f.lower(region.LastPart().Region.Family, region, ctx)
}

// Loop is Lower of a region of any family as a loop.
func (f *Families) Loop(region *ir.Node, ctx *Context) (*Spec, error) {
	return f.lower(ir.FamilyLoop, region, ctx)
}

func (f *Families) lower(family string, region *ir.Node, ctx *Context) (*Spec, error) {
	of, err := f.of(family)
	if err != nil {
		return nil, err
	}
	return of.lower(region, ctx, f.memo)
}

// Space is Family.Space of a region's family.
func (f *Families) Space(region *ir.Node, ctx *Context) (*Space, error) {
	of, err := f.of(region.LastPart().Region.Family)
	if err != nil {
		return nil, err
	}
	return of.Space(region, ctx)
}

// Lower is the kernel of a region of the family (of any region for loop), or of a fused one that ends in it
// (Families.Lower).
func (f Family) Lower(region *ir.Node, ctx *Context) (*Spec, error) { return f.lower(region, ctx, nil) }

func (f Family) lower(region *ir.Node, ctx *Context, memo *Memo) (*Spec, error) {
	k, err := f.Analyse(region, ctx)
	var c Choice
	if err == nil {
		c, err = f.schedule(k, region, ctx, memo)
	}
	var spec *Spec
	if err == nil {
		spec, err = k.Spec(c)
	}
	switch {
	case errors.Is(err, ErrUnfused):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: %w", region.Region.Family, err)
	}
	spec.Signature, spec.Work, spec.Reason = k.Signature(), c.Work, c.Reason
	return spec, nil
}

// schedule is the schedule that was chosen from outside, or the kernel's own choice.
func (f Family) schedule(k Kernel, region *ir.Node, ctx *Context, memo *Memo) (Choice, error) {
	signature := k.Signature()
	text := ""
	if signature != "" {
		text = ctx.Chosen(signature)
	}
	switch {
	case text == "":
		return memo.choose(f.Name, k)
	case text == Unfused && region.IsFamily(ir.FamilyFused):
		return Choice{}, ErrUnfused
	}
	c, err := k.Parse(text)
	if err != nil {
		err = &ScheduleError{Signature: signature, Schedule: text, Err: err}
	}
	return c, err
}

// Space is the schedules that the kernel of a region may have, as a tuner searches them: many more than Lower
// estimates. It is nil where there is no choice.
func (f Family) Space(region *ir.Node, ctx *Context) (*Space, error) {
	k, err := f.Analyse(region, ctx)
	if err != nil || k.Signature() == "" {
		return nil, err
	}
	own, err := k.Choose()
	if err != nil {
		return nil, err
	}
	plans, err := k.Candidates(own)
	if err != nil {
		return nil, err
	}
	return &Space{Signature: k.Signature(), Default: own.Schedule.String(), Candidates: plans}, nil
}
