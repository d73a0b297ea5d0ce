package hal

import (
	"fmt"
	"slices"
	"strings"
)

// Switches turn off what makes programs faster without changing what they compute, to measure what each is worth. The
// zero value has everything on.
type Switches struct {
	NoPDL      bool `json:"no_pdl,omitempty"`      // programmatic dependent launch: every edge of a graph is a full dependency
	NoPrefetch bool `json:"no_prefetch,omitempty"` // prefetches of later launches' weights into L2
	NoHints    bool `json:"no_hints,omitempty"`    // L2 eviction priorities: what is read as evict-first is read as evict-normal
	NoCarveout bool `json:"no_carveout,omitempty"` // the largest shared-memory carve-out for every kernel: the driver chooses one for each
}

// switchRow is one of Switches by name.
type switchRow struct {
	name string
	at   func(*Switches) *bool // true: off
}

var switchRows = []switchRow{
	{"pdl", func(s *Switches) *bool { return &s.NoPDL }},
	{"prefetch", func(s *Switches) *bool { return &s.NoPrefetch }},
	{"hints", func(s *Switches) *bool { return &s.NoHints }},
	{"carveout", func(s *Switches) *bool { return &s.NoCarveout }},
}

// SwitchNames lists the names of the mechanisms: pdl, prefetch, hints, carveout.
func SwitchNames() []string {
	out := make([]string, len(switchRows))
	for i, r := range switchRows {
		out[i] = r.name
	}
	return out
}

// Set turns the mechanism of a name on or off. An unknown name is an error.
func (s *Switches) Set(name string, on bool) error {
	i := slices.IndexFunc(switchRows, func(r switchRow) bool { return r.name == name })
	if i < 0 {
		return fmt.Errorf("%q: want %s", name, strings.Join(SwitchNames(), ", "))
	}
	*switchRows[i].at(s) = !on
	return nil
}

// Off lists the names of the mechanisms that are off.
func (s Switches) Off() []string {
	out := []string{}
	for _, r := range switchRows {
		if *r.at(&s) {
			out = append(out, r.name)
		}
	}
	return out
}
