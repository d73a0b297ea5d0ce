package tunefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is a file with a kernel that two programs have, and one that has no program.
func example() *File {
	return &File{Format: Format, Target: "sm_121", Compiler: "v1", Kernels: []Kernel{
		{Name: "b #2", Schedule: "fast", US: 2, Default: "slow", DefaultUS: 3, Evaluations: 7, Bad: []Bad{{"hangs", "it hung"}}},
		{Name: "a #1", Schedule: "x", US: 1, Default: "x", DefaultUS: 1, Evaluations: 2},
		{Name: "c #3", Schedule: "y", US: 1, Default: "y", DefaultUS: 1, Evaluations: 2},
	}, Programs: []Program{
		{Name: "p", Model: "m", Kernels: map[string]string{"b #2": "faster here", "a #1": "x"}, US: 9, ColdUS: 10, DefaultUS: 11, DefaultColdUS: 12, Prefetch: &Prefetch{Window: 1 << 20}},
		{Name: "q", Model: "n", Kernels: map[string]string{"a #1": "x"}, US: 5, ColdUS: 6, DefaultUS: 5, DefaultColdUS: 6},
	}}
}

func write(t *testing.T, f *File) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.json")
	require.NoError(t, f.Write(path))
	return path
}

// TestAFileIsReadAsItWasWritten: sorted, so in whatever order it was found it is the same bytes.
func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := write(t, example())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Less(t, strings.Index(string(raw), "a #1"), strings.Index(string(raw), "b #2"))
	f, err := Read(path)
	require.NoError(t, err)
	again := write(t, f)
	same, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, string(raw), string(same))
	other := example()
	other.Kernels[0], other.Kernels[2] = other.Kernels[2], other.Kernels[0]
	require.Equal(t, f.Digest(), other.Digest(), "of the same schedules")
	digests := map[string]bool{f.Digest(): true}
	for name, change := range map[string]func(f *File){
		"schedule": func(f *File) { f.Kernels[0].Schedule = "z" }, "program": func(f *File) { f.Programs[0].Kernels["a #1"] = "z" },
		"ahead": func(f *File) { f.Programs[1].Prefetch = &Prefetch{Off: true} }, "target": func(f *File) { f.Target = "sm_90" },
		"hints":   func(f *File) { f.Programs[1].Prefetch = &Prefetch{NoHints: true} },
		"window":  func(f *File) { f.Programs[1].Prefetch = &Prefetch{Window: 1 << 20} },
		"windows": func(f *File) { f.Programs[1].Prefetch = &Prefetch{Window: 2 << 20} },
		"backlog": func(f *File) { f.Programs[1].Prefetch = &Prefetch{BacklogUS: 2} },
	} {
		x := example()
		change(x)
		require.False(t, digests[x.Digest()], name)
		digests[x.Digest()] = true
	}
	x := example()
	x.Kernels[0].US, x.Kernels[0].Evaluations, x.Compiler = 1, 99, "v2"
	require.Equal(t, f.Digest(), x.Digest(), "what changes no program")
}

func TestDamagedFiles(t *testing.T) {
	good, err := os.ReadFile(write(t, example()))
	require.NoError(t, err)
	for reason, damage := range map[string]func(s string) string{
		"not a tuning file":        func(s string) string { return s[:len(s)/2] },
		"not a tuning file: json":  func(s string) string { return strings.Replace(s, `"format": 1`, `"format": 1, "colour": 2`, 1) },
		"format 2":                 func(s string) string { return strings.Replace(s, `"format": 1`, `"format": 2`, 1) },
		"unknown target":           func(s string) string { return strings.Replace(s, "sm_121", "sm_1", 1) },
		`kernel "a #1" is there t`: func(s string) string { return strings.Replace(s, `"kernel": "b #2"`, `"kernel": "a #1"`, 1) },
		"no name or no schedule":   func(s string) string { return strings.Replace(s, `"schedule": "fast"`, `"schedule": ""`, 1) },
		`kernel "b #2" takes -2`:   func(s string) string { return strings.Replace(s, `"us": 2`, `"us": -2`, 1) },
		"no name, or that of":      func(s string) string { return strings.Replace(s, `"program": "q"`, `"program": "p"`, 1) },
		`program "p" takes -9`:     func(s string) string { return strings.Replace(s, `"us": 9`, `"us": -9`, 1) },
		"neither can be negative":  func(s string) string { return strings.Replace(s, `"window_bytes": 1048576`, `"window_bytes": -1`, 1) },
	} {
		t.Run(reason, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.json")
			bad := damage(string(good))
			require.NotEqual(t, string(good), bad)
			require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
			_, err := Read(path)
			require.ErrorContains(t, err, reason)
			require.ErrorContains(t, err, path)
		})
	}
	_, err = Read(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestMerging: the faster of two schedules stays, wherever it stands, and what failed in either file is remembered.
func TestMerging(t *testing.T) {
	other := &File{Format: Format, Target: "sm_121", Kernels: []Kernel{
		{Name: "b #2", Schedule: "fastest", US: 1, Default: "slow", DefaultUS: 3, Bad: []Bad{{"faults", "it faulted"}}},
		{Name: "c #3", Schedule: "z", US: 2, Default: "z", DefaultUS: 2},
		{Name: "a #1", Schedule: "x", US: 1, Default: "x", DefaultUS: 1},
		{Name: "new #4", Schedule: "n", US: 1, Default: "n", DefaultUS: 1},
	}, Programs: []Program{{Name: "p", Kernels: map[string]string{"b #2": "fastest"}, US: 8, ColdUS: 8, DefaultUS: 11, DefaultColdUS: 12}}}
	for _, turned := range []bool{false, true} {
		a, b, names := example(), write(t, other), [2]string{"one", "two"}
		second, err := Read(b)
		require.NoError(t, err)
		if turned {
			a, second = second, a
			names = [2]string{"two", "one"}
		}
		conflicts, err := a.Merge(second, names)
		require.NoError(t, err)
		require.Len(t, conflicts, 3)
		require.Contains(t, strings.Join(conflicts, "\n"), "the one in two is taken")
		require.Contains(t, strings.Join(conflicts, "\n"), "the one in one is taken")
		require.Len(t, a.Kernels, 4)
		require.Equal(t, "fastest", a.Kernel("b #2").Schedule)
		require.ElementsMatch(t, []Bad{{"hangs", "it hung"}, {"faults", "it faulted"}}, a.Kernel("b #2").Bad)
		require.Equal(t, "y", a.Kernel("c #3").Schedule)
		require.Equal(t, map[string]string{"b #2": "fastest"}, a.Program("p").Kernels)
		require.NotNil(t, a.Program("q"))
	}
	other.Target = "sm_90"
	_, err := example().Merge(other, [2]string{"one", "two"})
	require.ErrorContains(t, err, "give files of one target")
	other.Target, other.Machine = "sm_121", "sha256:1"
	_, err = example().Merge(other, [2]string{"one", "two"})
	require.ErrorContains(t, err, "the machine file sha256:1: their times do not compare")
}

// TestChoices: a program's own entry comes before those of kernels, and kernels of other programs are not missed.
func TestChoices(t *testing.T) {
	path := write(t, example())
	table, err := Load([]string{path}, []string{"sm_90", "sm_121"}, "")
	require.NoError(t, err)
	require.Nil(t, table.For("sm_90", "p"))
	require.Nil(t, (*Table)(nil).For("sm_121", "p"))
	p := table.For("sm_121", "p")
	require.Equal(t, &Prefetch{Window: 1 << 20}, p.Prefetch)
	s, ok := p.Schedule("b #2")
	require.True(t, ok)
	require.Equal(t, "faster here", s)
	_, ok = p.Schedule("d #5")
	require.False(t, ok)
	require.Equal(t, []string{"c #3"}, p.Unused(), "a #1 is also q's")
	require.Equal(t, path, p.Source("b #2"))
	none := table.For("sm_121", "unknown")
	require.Nil(t, none.Prefetch)
	s, _ = none.Schedule("b #2")
	require.Equal(t, "fast", s)
	require.Equal(t, []string{"c #3"}, none.Unused())
	require.Equal(t, path, none.Source("b #2"))
}

// TestSchedules_AreAskedConcurrently: codegen lowers regions on all cores.
func TestSchedules_AreAskedConcurrently(t *testing.T) {
	table, err := Load([]string{write(t, example())}, []string{"sm_121"}, "")
	require.NoError(t, err)
	p := table.For("sm_121", "p")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10_000 {
				p.Schedule(fmt.Sprintf("kernel %d of %d", j, i))
			}
			p.Schedule("c #3")
			p.Schedule("b #2")
		})
	}
	wg.Wait()
	require.Empty(t, p.Unused())
}

func TestFilesForOthers(t *testing.T) {
	path := write(t, example())
	_, err := Load([]string{path}, []string{"sm_90"}, "")
	require.ErrorContains(t, err, path+": it was tuned for sm_121, which is not among the targets sm_90: give --target sm_121")
	_, err = Load([]string{path}, []string{"sm_121"}, "sha256:2")
	require.ErrorContains(t, err, "it was tuned for the figures of sm_121, and --machine is sha256:2: tune again")
	f := example()
	f.Machine = "sha256:1"
	path = write(t, f)
	_, err = Load([]string{path}, []string{"sm_121"}, "")
	require.ErrorContains(t, err, "it was tuned for the machine file sha256:1: give that file with --machine")
	_, err = Load([]string{path}, []string{"sm_121"}, "sha256:1")
	require.NoError(t, err)
	two, err := Load([]string{path, path}, []string{"sm_121"}, "sha256:1")
	require.NoError(t, err)
	require.Empty(t, two.Conflicts)
	require.Equal(t, f.Digest(), two.Digest())
}
