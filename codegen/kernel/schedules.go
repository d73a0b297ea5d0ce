package kernel

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// ScheduleCache are schedules that are chosen from outside: by a tuner, or by what it found earlier. Regions are lowered
// on all cores, so its method is called concurrently.
type ScheduleCache interface {
	// Schedule is the schedule, in its readable form, of the kernel with a signature; ok is false where the family
	// chooses.
	Schedule(signature string) (schedule string, ok bool)
}

// ScheduleError says why a kernel cannot have the schedule that was chosen from outside. No other kernel takes its
// place.
type ScheduleError struct {
	Signature, Schedule string
	Err                 error
}

func (e *ScheduleError) Error() string {
	return fmt.Sprintf("kernel %q cannot have the schedule %q: %v", e.Signature, e.Schedule, e.Err)
}

func (e *ScheduleError) Unwrap() error { return e.Err }

// Chosen is the schedule that was chosen from outside for the kernel with a signature; "" where the family chooses.
func (c *Context) Chosen(signature string) string {
	if c.Schedules == nil {
		return ""
	}
	s, _ := c.Schedules.Schedule(signature)
	return s
}

// alignments beyond this many bytes make no difference to a kernel: no access is wider.
const widestAccess = 16

// Signature names the kernel of a region for Choices: what it computes, for people, and a digest of all that
// schedules depend on: the body without names and values of constants, the storage of operands and results, and the
// alignment of what is no constant.
func (c *Context) Signature(family, what string, region *ir.Node) string {
	h := sha256.New()
	align := func(v *ir.Value) int {
		if !slices.Contains(region.Inputs, v) && !slices.Contains(region.Outputs, v) { // between fused parts: not in memory
			return 0
		}
		return min(c.AlignOf(v), widestAccess)
	}
	for _, part := range region.Parts() {
		describe(h, family, part, align)
	}
	return fmt.Sprintf("%s #%x", what, h.Sum(nil)[:8])
}

// describe writes what the schedule of a region that is not fused depends on.
func describe(h io.Writer, family string, region *ir.Node, align func(v *ir.Value) int) {
	r := region.Region
	fmt.Fprintln(h, family, r.Members)
	storage := func(s ir.Storage) ir.Storage {
		if s.Scale != 0 {
			s.Scale = 1 // another one makes no other kernel
		}
		return s
	}
	for i, v := range region.Inputs {
		fmt.Fprint(h, v.Type, v.IsConst())
		if !v.IsConst() { // as in the first signatures, which tuning files have
			fmt.Fprint(h, " ", align(v))
		}
		if i < len(r.Operands) {
			o := r.Operands[i]
			fmt.Fprintf(h, " %v %v %v %v", r.Body.Inputs[i].Type, storage(o.Storage), o.Batched, storage(o.Read))
		}
		fmt.Fprintln(h)
	}
	fmt.Fprintln(h, r.Body.Signature())
	for _, v := range region.Outputs {
		fmt.Fprintln(h, v.Type, align(v))
	}
	for _, s := range r.Results {
		fmt.Fprintln(h, storage(s))
	}
}

// Unfused is the schedule that runs the parts of a fused region as separate launches.
const Unfused = "apart"

// ErrUnfused reports that the schedule chosen for a fused region is Unfused.
var ErrUnfused = errors.New("chosen to be launches of their own")

// Space is the schedules that a kernel may have, as a tuner searches them.
type Space struct {
	Signature  string
	Default    string      // the family's own choice
	Candidates []Candidate // Default is one of them
}

// Candidate is a schedule of a space.
type Candidate struct {
	Schedule string
	At       []int   // coordinates: plans that differ in one alone, and have none between them, are neighbours
	US       float64 // as the family estimates it
}

// Slowest is how many times the least estimate of a space a plan's may be. Of four small kernels, whose plans up to 3
// times as slow were all counted, the best by counts was within 1 % of the least estimate.
const Slowest = 2

// Within leaves out the plans that are estimated to take more than Slowest times as long as the best, but for the one
// at the family's own coordinates. Plans may get their Schedule later.
func Within(plans []Candidate, own []int) []Candidate {
	least := plans[0].US
	for _, p := range plans {
		least = min(least, p.US)
	}
	return slices.DeleteFunc(plans, func(p Candidate) bool { return p.US > Slowest*least && !slices.Equal(p.At, own) })
}
