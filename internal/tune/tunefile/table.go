package tunefile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Table is what one or more files say, and which file says it.
type Table struct {
	File
	Paths     []string
	Conflicts []string // between the files
	from      map[string]string
}

// Load reads files and merges them. Those that the times of another target or machine are of are refused: machine is the digest of the machine file,
// if there is one.
func Load(paths []string, targets []string, machine string) (*Table, error) {
	t := &Table{Paths: paths, from: map[string]string{}}
	for i, path := range paths {
		f, err := Read(path)
		if err != nil {
			return nil, err
		}
		if err := f.suits(targets, machine); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if i == 0 {
			t.File = File{Format: Format, Target: f.Target, Machine: f.Machine, Device: f.Device, Compiler: f.Compiler}
		}
		for _, k := range f.Kernels {
			if was := t.Kernel(k.Name); was == nil || k.US < was.US {
				t.from[k.Name] = path
			}
		}
		conflicts, err := t.Merge(f, [2]string{strings.Join(paths[:max(1, i)], " and "), path})
		if err != nil {
			return nil, err
		}
		t.Conflicts = append(t.Conflicts, conflicts...)
	}
	return t, nil
}

// suits says why a file is not for these targets and this machine.
func (f *File) suits(targets []string, machine string) error {
	switch {
	case !slices.Contains(targets, f.Target):
		return fmt.Errorf("it was tuned for %s, which is not among the targets %s: give --target %s, or tune for these with another file", f.Target, strings.Join(targets, ", "), f.Target)
	case f.Machine != machine && machine == "":
		return fmt.Errorf("it was tuned for %s: give that file with --machine, or tune again without", f.whose())
	case f.Machine != machine:
		return fmt.Errorf("it was tuned for %s, and --machine is %s: tune again for this machine, with another file", f.whose(), machine)
	}
	return nil
}

// Schedules are what a table says of one program: schedules by signature, and the weight prefetch. They record
// what was asked for, and may be asked concurrently.
type Schedules struct {
	Prefetch *Prefetch // nil: the default

	table    *Table
	program  string
	kernels  map[string]string
	elsewhen map[string]bool // kernels of other programs

	mu    sync.Mutex
	asked map[string]bool // guarded by mu
}

// For is what the table says of a program: its own entry, or else that of each kernel. It is nil for a nil table and for another target.
func (t *Table) For(target, program string) *Schedules {
	if t == nil || t.Target != target {
		return nil
	}
	c := &Schedules{table: t, program: program, kernels: map[string]string{}, asked: map[string]bool{}, elsewhen: map[string]bool{}}
	for _, k := range t.Kernels {
		c.kernels[k.Name] = k.Schedule
	}
	for _, p := range t.Programs {
		if p.Name == program {
			maps.Copy(c.kernels, p.Kernels)
			c.Prefetch = p.Prefetch
			continue
		}
		for name := range p.Kernels {
			c.elsewhen[name] = true
		}
	}
	return c
}

// Schedule implements kernel.Choices.
func (c *Schedules) Schedule(signature string) (string, bool) {
	c.mu.Lock()
	c.asked[signature] = true
	c.mu.Unlock()
	s, ok := c.kernels[signature]
	return s, ok
}

// Unused lists the kernels that were not asked for, and that no other program of the table has.
func (c *Schedules) Unused() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(c.kernels)) {
		if !c.asked[name] && !c.elsewhen[name] {
			out = append(out, name)
		}
	}
	return out
}

// Source names the file that chose a kernel's schedule.
func (c *Schedules) Source(signature string) string {
	if p := c.table.Program(c.program); p != nil && p.Kernels[signature] != "" {
		return strings.Join(c.table.Paths, ", ")
	}
	return c.table.from[signature]
}
