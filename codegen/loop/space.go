package loop

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// more returns the schedules that a tuner tries in addition to the candidates: other vectors, larger and smaller
// blocks.
func (p *problem) more() []*schedule {
	var out []*schedule
	seen := map[string]bool{}
	once := func(s *schedule) {
		if text := s.String(); !seen[text] {
			seen[text] = true
			out = append(out, s)
		}
	}
	usual, last := p.candidates(), 1
	for _, s := range usual {
		once(s)
	}
	if i := p.lastDim(); i >= 0 {
		last = p.shape[i]
	}
	for _, s := range usual {
		vectors := []int{s.vector}
		if p.blocks == nil && p.packed() == 1 {
			for v := 8; v > 0; v /= 2 {
				if s.team == 1 && p.divides(v) || s.team > 1 && s.adjacent && last%v == 0 && v <= s.vector {
					vectors = append(vectors, v)
				}
			}
		}
		for _, v := range vectors {
			for _, threads := range []int{32, 64, 128, 256, 512} {
				c := *s
				c.vector = v
				switch {
				case s.team == 1:
					c.threads = threads
					c.blocks = (p.elements + v*threads - 1) / (v * threads)
					c.sized = c.threads != p.flatVector(v).threads
				case s.adjacent && threads%s.team == 0 && threads >= 32:
					c.teams, c.threads = threads/s.team, threads
					c.blocks = (c.rows + c.teams - 1) / c.teams
				default:
					continue
				}
				once(&c)
			}
		}
	}
	return out
}

// Parse implements kernel.Kernel.
func (p *problem) Parse(text string) (kernel.Choice, error) {
	var forms []string
	for _, s := range p.more() {
		if s.String() == text {
			w, err := p.work(s, cost.Of(p.ctx.Target))
			if err == nil && s.shared > maxShared {
				err = fmt.Errorf("its reductions need %d bytes of shared memory, a block has %d", s.shared, maxShared)
			}
			return kernel.Choice{Schedule: *s, Work: w}, err
		}
		if len(forms) < 4 {
			forms = append(forms, s.String())
		}
	}
	return kernel.Choice{}, fmt.Errorf("no such loop; forms are %q", forms)
}

// Signature implements kernel.Kernel.
func (p *problem) Signature() string {
	if p.elements == 0 {
		return ""
	}
	what := stem(p.region.Region.Body) + " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(p.shape), " ", "x"), "[]")
	return p.ctx.Signature(ir.FamilyLoop, strings.TrimSpace(what), p.region)
}

// Candidates implements kernel.Kernel.
func (p *problem) Candidates(own kernel.Choice) (plans []kernel.Candidate, err error) {
	m := cost.Of(p.ctx.Target)
	for _, s := range p.more() {
		w, err := p.work(s, m)
		if err != nil {
			return nil, err
		}
		if s.shared <= maxShared {
			plans = append(plans, kernel.Candidate{Schedule: s.String(), At: s.coordinates(), US: m.Estimate(w).US})
		}
	}
	return kernel.Within(plans, own.Schedule.(schedule).coordinates()), nil
}

// coordinates are those of a plan (kernel.Candidate): what threads of a team read, how many they are, elements and
// threads.
func (s schedule) coordinates() []int {
	kind := 0
	switch {
	case s.team > 1 && s.adjacent:
		kind = 1
	case s.team > 1:
		kind = 2
	}
	return []int{kind, s.team, s.vector, s.threads}
}
