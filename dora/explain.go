package dora

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/internal/console"
)

// Explain says in lines for people what was compiled for the first target: the adapter, the launches of each entry, the bytes of
// values between launches, and what is computed again to keep to StepOptions.Memory, the largest first.
func (s *Step) Explain() string {
	var b strings.Builder
	v := &s.Program.Variants[0]
	fmt.Fprintf(&b, "%s, %s, for %s: %s with an adapter, %s\n", s.Program.Model, s.opt.Precision, v.Target,
		console.Count(len(s.Adapter.Layers), "layer"), console.Count(s.trained.size, "trained number"))
	var launches []string
	for _, e := range v.Entries {
		launches = append(launches, fmt.Sprintf("%s %d", e.Name, len(e.Launches)))
	}
	fmt.Fprintf(&b, "launches: %s\nbytes between launches: %d", strings.Join(launches, ", "), v.ArenaBytes)
	if s.opt.Memory > 0 {
		fmt.Fprintf(&b, ", %d allowed", s.opt.Memory)
	}
	again := s.Compile.Rematerialised()
	if again == "" {
		b.WriteString(", nothing is computed again")
	}
	return b.String() + "\n" + again
}
