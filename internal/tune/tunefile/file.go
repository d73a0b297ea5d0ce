// Package tunefile reads and writes the schedules that a search found for one target. Entries are sorted, so equal results give equal
// bytes and diffs stay short. Applying a file searches nothing.
package tunefile

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Format is the version of tuning files, and of the signatures and schedules in them.
const Format = 1

// File is a tuning file.
type File struct {
	Format   int       `json:"format"`
	Target   string    `json:"target"`
	Machine  string    `json:"machine,omitempty"` // digest of the machine file by which times were predicted; "": the target's own figures
	Device   string    `json:"device,omitempty"`  // on which times were measured; "": they are predicted
	Compiler string    `json:"compiler,omitempty"`
	Kernels  []Kernel  `json:"kernels"`            // sorted by name
	Programs []Program `json:"programs,omitempty"` // likewise
}

// Kernel is the best schedule that was found of a kernel by itself.
type Kernel struct {
	Name        string  `json:"kernel"` // its signature
	Schedule    string  `json:"schedule"`
	US          float64 `json:"us"`
	Default     string  `json:"default"` // schedule by the cost model alone
	DefaultUS   float64 `json:"default_us"`
	Evaluations int     `json:"evaluations"`
	Bad         []Bad   `json:"bad,omitempty"` // schedules that must not be tried again
}

// Bad is a schedule whose kernel failed on the device: it hung, faulted, or was refused.
type Bad struct {
	Schedule string `json:"schedule"`
	Why      string `json:"why"`
}

// Program is the best that was found of a whole launch list. It names every kernel of it, so another file's kernels do not change it.
type Program struct {
	Name          string            `json:"program"` // its signature
	Model         string            `json:"model"`   // of which it was found, for people
	Kernels       map[string]string `json:"kernels"` // schedules by signature
	Prefetch      *Prefetch         `json:"ahead,omitempty"`
	US            float64           `json:"us"`
	ColdUS        float64           `json:"cold_us"` // after another program; 0: not measured
	DefaultUS     float64           `json:"default_us"`
	DefaultColdUS float64           `json:"default_cold_us"`
	Evaluations   int               `json:"evaluations"`
}

// Prefetch says how weights of later launches are fetched into L2, as codegen.Prefetch does.
type Prefetch struct {
	Off       bool    `json:"off,omitempty"`
	NoHints   bool    `json:"no_hints,omitempty"`
	Window    int     `json:"window_bytes,omitempty"`
	BacklogUS float64 `json:"backlog_us,omitempty"`
}

// String says it for people.
func (a Prefetch) String() string {
	switch {
	case a.Off:
		return "weights do not come ahead"
	case a.NoHints:
		return "no eviction hints"
	case a.Window > 0 && a.BacklogUS > 0:
		return fmt.Sprintf("window %d bytes, backlog %v µs", a.Window, a.BacklogUS)
	case a.Window > 0:
		return fmt.Sprintf("window %d bytes", a.Window)
	case a.BacklogUS > 0:
		return fmt.Sprintf("backlog %v µs", a.BacklogUS)
	}
	return "as by default"
}

// Read reads a tuning file and checks it.
func Read(path string) (*File, error) {
	raw, err := memory.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func parse(raw []byte) (*File, error) {
	var version struct{ Format int }
	if err := memory.Unmarshal(raw, &version); err != nil {
		return nil, fmt.Errorf("not a tuning file: %w", err)
	}
	if version.Format != Format {
		return nil, fmt.Errorf("a tuning file of format %d, and this version reads %d: tune again with --tune and another file",
			version.Format, Format)
	}
	f := &File{}
	if err := memory.UnmarshalStrict(raw, f); err != nil {
		return nil, fmt.Errorf("not a tuning file: %w", err)
	}
	return f, f.check()
}

// check says what no tuner writes.
func (f *File) check() error {
	if _, err := target.Lookup(f.Target); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, k := range f.Kernels {
		switch {
		case k.Name == "" || k.Schedule == "":
			return fmt.Errorf("kernel %d %q has no name or no schedule: remove it", i, k.Name)
		case seen[k.Name]:
			return fmt.Errorf("kernel %q is there twice: remove one of them", k.Name)
		case !isTime(k.US) || !isTime(k.DefaultUS):
			return fmt.Errorf("kernel %q takes %v µs, by default %v: remove it", k.Name, k.US, k.DefaultUS)
		}
		seen[k.Name] = true
	}
	clear(seen)
	for i, p := range f.Programs {
		switch {
		case p.Name == "" || seen[p.Name]:
			return fmt.Errorf("program %d %q has no name, or that of another: remove it", i, p.Name)
		case !isTime(p.US) || !isTime(p.ColdUS) || !isTime(p.DefaultUS) || !isTime(p.DefaultColdUS):
			return fmt.Errorf("program %q takes %v µs, cold %v: remove it", p.Name, p.US, p.ColdUS)
		case p.Prefetch != nil && (p.Prefetch.Window < 0 || !isTime(p.Prefetch.BacklogUS)):
			return fmt.Errorf("program %q has a window of %d bytes and a backlog of %v µs: neither can be negative", p.Name, p.Prefetch.Window, p.Prefetch.BacklogUS)
		}
		seen[p.Name] = true
	}
	return nil
}

func isTime(us float64) bool { return us >= 0 && !math.IsInf(us, 0) }

// Write replaces the file at path, as a whole.
func (f *File) Write(path string) error {
	slices.SortFunc(f.Kernels, func(a, b Kernel) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Programs, func(a, b Program) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range f.Kernels {
		slices.SortFunc(k.Bad, func(a, b Bad) int { return strings.Compare(a.Schedule, b.Schedule) })
	}
	if f.Kernels == nil {
		f.Kernels = []Kernel{}
	}
	return atomicfile.WriteJSON(path, f)
}

// Kernel finds a kernel by its signature; nil if it is not there.
func (f *File) Kernel(name string) *Kernel {
	for i := range f.Kernels {
		if f.Kernels[i].Name == name {
			return &f.Kernels[i]
		}
	}
	return nil
}

// Program finds a program likewise.
func (f *File) Program(name string) *Program {
	for i := range f.Programs {
		if f.Programs[i].Name == name {
			return &f.Programs[i]
		}
	}
	return nil
}

// Digest identifies what the file changes of programs.
func (f *File) Digest() string {
	var lines []string
	for _, k := range f.Kernels {
		lines = append(lines, fmt.Sprintf("%q %q", k.Name, k.Schedule))
	}
	for _, p := range f.Programs {
		line := fmt.Sprintf("program %q", p.Name)
		for _, name := range slices.Sorted(maps.Keys(p.Kernels)) {
			line += fmt.Sprintf(" %q %q", name, p.Kernels[name])
		}
		if p.Prefetch != nil {
			line += fmt.Sprintf(" {%v %v %v %v}", p.Prefetch.Off, p.Prefetch.NoHints, p.Prefetch.Window, p.Prefetch.BacklogUS)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(f.Target + "\n" + strings.Join(lines, "\n")))
	return fmt.Sprintf("sha256:%x", sum[:8])
}

// Merge adds the entries of another file of the same target and machine. Where both know a kernel or a program, the faster one stays; conflicts says
// which, where their schedules differ.
func (f *File) Merge(other *File, names [2]string) (conflicts []string, err error) {
	switch {
	case f.Target != other.Target:
		return nil, fmt.Errorf("%s is for %s and %s for %s: give files of one target", names[0], f.Target, names[1], other.Target)
	case f.Machine != other.Machine || f.Device != other.Device:
		return nil, fmt.Errorf("%s was made for %s and %s for %s: their times do not compare; give files of one machine", names[0], f.whose(), names[1], other.whose())
	}
	faster := func(what string, here, there float64) bool {
		at := 0
		if there < here {
			at = 1
		}
		conflicts = append(conflicts, fmt.Sprintf("%s: %s has %.3f µs, %s %.3f: the one in %s is taken", what, names[0], here, names[1], there, names[at]))
		return at == 1
	}
	for _, k := range other.Kernels {
		switch mine := f.Kernel(k.Name); {
		case mine == nil:
			f.Kernels = append(f.Kernels, k)
		case mine.Schedule != k.Schedule && faster(fmt.Sprintf("kernel %q", k.Name), mine.US, k.US):
			k.Bad = together(k.Bad, mine.Bad)
			*mine = k
		default:
			mine.Bad = together(mine.Bad, k.Bad)
		}
	}
	for _, p := range other.Programs {
		switch mine := f.Program(p.Name); {
		case mine == nil:
			f.Programs = append(f.Programs, p)
		case (!maps.Equal(mine.Kernels, p.Kernels) || *cmp.Or(mine.Prefetch, &Prefetch{}) != *cmp.Or(p.Prefetch, &Prefetch{})) &&
			faster(fmt.Sprintf("program %q", p.Name), mine.US+mine.ColdUS, p.US+p.ColdUS):
			*mine = p
		}
	}
	return conflicts, nil
}

// together are bad schedules of two lists.
func together(a, b []Bad) []Bad {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.ContainsFunc(out, func(y Bad) bool { return y.Schedule == x.Schedule }) {
			out = append(out, x)
		}
	}
	return out
}

// whose are the file's times.
func (f *File) whose() string {
	switch {
	case f.Device != "":
		return "the device " + f.Device
	case f.Machine != "":
		return "the machine file " + f.Machine
	}
	return "the figures of " + f.Target
}
