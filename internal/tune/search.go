package tune

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
)

// FailedError says that a kernel cannot be used: it hung, faulted or was refused. Others go on.
type FailedError struct{ Why string }

func (e *FailedError) Error() string { return e.Why }

// search is a beam search through a space: it begins with the plans that the estimate puts first, and then tries the neighbours of the best found.
type search struct {
	space *kernel.Space
	beam  int
	cost  func(kernel.Candidate) (float64, error)
	more  func(evaluated int) bool // whether another plan may be evaluated
	bad   []tunefile.Bad           // known and found

	ranked []int           // plans by their estimate
	seen   map[int]float64 // costs of plans; of bad ones infinite
	tried  int
	lines  map[string][]int // plans on a line along a coordinate, in its order
}

// run returns the plans that were evaluated, the best first.
func (s *search) run() ([]int, error) {
	s.seen, s.lines = map[int]float64{}, map[string][]int{}
	for i := range s.space.Candidates {
		s.ranked = append(s.ranked, i)
		for d := range s.space.Candidates[i].At {
			k := s.line(i, d)
			s.lines[k] = append(s.lines[k], i)
		}
	}
	slices.SortStableFunc(s.ranked, func(a, b int) int { return cmp.Compare(s.space.Candidates[a].US, s.space.Candidates[b].US) })
	for _, i := range s.starts() {
		if err := s.evaluate(i); err != nil {
			return nil, err
		}
	}
	expanded := map[int]bool{}
	for {
		best := s.best()
		next := slices.IndexFunc(best[:min(len(best), s.beam)], func(i int) bool { return !expanded[i] })
		if next < 0 || !s.more(s.tried) {
			return best, nil
		}
		expanded[best[next]] = true
		for _, i := range s.neighbours(best[next]) {
			if err := s.evaluate(i); err != nil {
				return nil, err
			}
		}
	}
}

// starts are the default and the best plans by the estimate, no two of them neighbours.
func (s *search) starts() []int {
	out := []int{slices.IndexFunc(s.space.Candidates, func(p kernel.Candidate) bool { return p.Schedule == s.space.Default })}
	for _, i := range s.ranked {
		if len(out) > s.beam {
			break
		}
		near := func(j int) bool {
			differ := 0
			for d, x := range s.space.Candidates[i].At {
				if x != s.space.Candidates[j].At[d] {
					differ++
				}
			}
			return differ < 2
		}
		if !slices.ContainsFunc(out, near) {
			out = append(out, i)
		}
	}
	return out
}

func (s *search) evaluate(i int) error {
	if _, done := s.seen[i]; done || len(s.seen) > 0 && !s.more(s.tried) {
		return nil
	}
	p := s.space.Candidates[i]
	if slices.ContainsFunc(s.bad, func(b tunefile.Bad) bool { return b.Schedule == p.Schedule }) {
		s.seen[i] = math.Inf(1)
		return nil
	}
	s.tried++
	us, err := s.cost(p)
	if failed := (*FailedError)(nil); errors.As(err, &failed) {
		s.bad = append(s.bad, tunefile.Bad{Schedule: p.Schedule, Why: failed.Why})
		us, err = math.Inf(1), nil
	}
	s.seen[i] = us
	return err
}

// best are the plans that were evaluated and are not bad, by their cost, then by their estimate.
func (s *search) best() (out []int) {
	for _, i := range s.ranked {
		if us, ok := s.seen[i]; ok && !math.IsInf(us, 1) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.seen[a], s.seen[b]) })
	return out
}

// line names the plans that differ from one in a coordinate alone.
func (s *search) line(i, d int) string {
	at := slices.Clone(s.space.Candidates[i].At)
	at[d] = -1
	return fmt.Sprint(d, at)
}

// neighbours are the plans next to one along each coordinate, by their estimate.
func (s *search) neighbours(i int) (out []int) {
	at := s.space.Candidates[i].At
	for d := range at {
		before, after := -1, -1
		for _, j := range s.lines[s.line(i, d)] {
			switch x := s.space.Candidates[j].At[d]; {
			case x < at[d] && (before < 0 || x > s.space.Candidates[before].At[d]):
				before = j
			case x > at[d] && (after < 0 || x < s.space.Candidates[after].At[d]):
				after = j
			}
		}
		for _, j := range []int{before, after} {
			if j >= 0 {
				out = append(out, j)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.space.Candidates[a].US, s.space.Candidates[b].US) })
	return out
}
