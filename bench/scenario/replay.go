package scenario

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Replay is a loop as a file: with the same algorithm it has the same bits as in the run that it is taken from.
type Replay struct {
	Scenario  Scenario // with the noise of the loop
	Family    string   // that it was drawn from
	Loop      int
	Seed      uint64
	Algorithm string // that drove; "" if the file does not say
	Tier      Tier
	MinCosine *float64 // as of Runner
}

// stream is the number of a loop of a family, which decides its noise.
func stream(family string, loop int) uint64 {
	h := fnv.New32a()
	h.Write([]byte(family))
	return uint64(h.Sum32())<<32 | uint64(uint32(loop))
}

// replayKeys are the fields of replay: in a file; of tier planner if it does not say.
var replayKeys = []string{"scenario", "loop", "seed", "algorithm", "tier", "min_cosine"}

// Format is the file: a scenario file with one scenario of which nothing is drawn, which says whose noise it has.
// note is a comment, of one line.
func (r *Replay) Format(note string) []byte {
	var b strings.Builder
	text := func(s string) string {
		if strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", c) }) {
			return strconv.Quote(s)
		}
		return s
	}
	if note != "" {
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	more := ""
	if r.Tier == Controls {
		more = ", tier: " + r.Tier.String()
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	if r.MinCosine != nil {
		more += ", min_cosine: " + number(*r.MinCosine)
	}
	fmt.Fprintf(&b, "replay: {scenario: %s, loop: %d, seed: %d, algorithm: %s%s}\n", text(r.Family), r.Loop, r.Seed,
		text(r.Algorithm), more)
	fmt.Fprintf(&b, "scenarios:\n  - name: %s\n    set:\n", text(fmt.Sprintf("%s/loop=%d", r.Family, r.Loop)))
	for i, p := range Params {
		if !r.Tier.uses(p.Name) {
			continue
		}
		_, _, follows := profilePoint(p.Name) // the speed, where it is left out
		follows = follows || p.Name == "cruise" ||
			r.Scenario.Road != nil && slices.Contains([]string{"speed", "duration", "car0_present"}, p.Name) // the record
		if r.Scenario.Road != nil && r.Scenario.Road.instead(p.Name) != "" {
			continue
		}
		if x := r.Scenario.Values[i]; x != p.Default || follows {
			fmt.Fprintf(&b, "      %s: %s\n", p.Name, number(x))
		}
	}
	if r.Scenario.Road != nil {
		b.WriteString("    road:\n")
		fmt.Fprintf(&b, "      spacing: %s\n", number(r.Scenario.Road.Spacing))
		if r.Scenario.Road.Interval != 0 {
			fmt.Fprintf(&b, "      interval: %s\n", number(r.Scenario.Road.Interval))
		}
		for _, c := range roadColumns {
			if list := *c.of(r.Scenario.Road); list != nil {
				var text []string
				for _, x := range list {
					text = append(text, number(x))
				}
				fmt.Fprintf(&b, "      %s: [%s]\n", c.Name, strings.Join(text, ", "))
			}
		}
	}
	return []byte(b.String())
}

// ReadReplay reads such a file. Errors name file and line.
func ReadReplay(path string) (*Replay, error) {
	raw, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	r, err := parseReplay(raw, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func parseReplay(raw []byte, dir string) (*Replay, error) {
	list, n, err := fileTier.parse(raw, dir)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, errors.New("it does not say replay:, which loop of a run it is; spark-sim compare --regressions writes such files")
	case len(list) != 1 || len(list[0].Vary) > 0:
		return nil, errors.New("a loop is one scenario with one value for each parameter, without vary and sweep")
	}
	at, err := fields(n, "replay", replayKeys)
	if err != nil {
		return nil, err
	}
	r := &Replay{}
	for _, key := range replayKeys[:3] {
		x := at[key]
		if x == nil || x.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: replay does not say %s", n.Line, key)
		}
		var err error
		switch key {
		case "scenario":
			r.Family = x.Value
		case "loop":
			var k uint64
			k, err = strconv.ParseUint(x.Value, 10, 31)
			r.Loop = int(k)
		case "seed":
			r.Seed, err = strconv.ParseUint(x.Value, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is %q, want a number from 0 on", x.Line, key, shortened(x.Value))
		}
	}
	if x := at["algorithm"]; x != nil {
		r.Algorithm = x.Value
	}
	if r.Tier, err = replayTier(n); err != nil {
		return nil, err
	}
	if x := at["min_cosine"]; x != nil {
		c, err := number(&Param{Name: "min_cosine"}, x)
		if err != nil || c < 0 || c >= 1 {
			return nil, fmt.Errorf("line %d: min_cosine is %q, want 0 or more, and less than 1", x.Line, shortened(x.Value))
		}
		r.MinCosine = &c
	}
	if r.Scenario, err = list[0].Draw(0, 0); err != nil {
		return nil, err
	}
	r.Scenario.Name, r.Scenario.Stream = r.Family, stream(r.Family, r.Loop)
	return r, nil
}

// replayTier is the tier that a file says under replay; nil: it has no such field.
func replayTier(n *yaml.Node) (Tier, error) {
	if n == nil {
		return Planner, nil
	}
	at, err := fields(n, "replay", replayKeys)
	if err != nil || at["tier"] == nil {
		return Planner, err
	}
	t, err := TierNamed(at["tier"].Value)
	if err != nil {
		return t, onLine(at["tier"], err)
	}
	return t, nil
}

// ReplayOf is loop k of a family of a tier with a seed.
func (t Tier) ReplayOf(f *Family, seed uint64, k int, algorithm string) (*Replay, error) {
	s, err := f.Draw(seed, k)
	return &Replay{Scenario: s, Family: f.Name, Loop: k, Seed: seed, Algorithm: algorithm, Tier: t}, err
}
