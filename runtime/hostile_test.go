package runtime_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
	"github.com/spark-compile/spark-compile/runtime"
)

// forged is a directory whose digests are right, whoever wrote it. What it holds of weights and kernels is good.
func forged(t testing.TB, program []byte, good fstest.MapFS) fstest.MapFS {
	t.Helper()
	dir := fstest.MapFS{}
	for name, f := range good {
		dir[name] = f
	}
	var p runtime.Program
	if json.Unmarshal(program, &p) == nil && len(p.Identity) == 64 {
		zeros := bytes.Replace(program, []byte(p.Identity), []byte(strings.Repeat("0", 64)), 1)
		program = bytes.Replace(program, []byte(p.Identity), fmt.Appendf(nil, "%x", sha256.Sum256(zeros)), 1)
	}
	dir[runtime.ProgramFile] = &fstest.MapFile{Data: program}
	return dir
}

func TestRead_ProgramsThatAskForMemory(t *testing.T) {
	good := directory(t, accumulator(true))
	defer memory.Limit(4 << 20)()
	for name, c := range map[string]struct{ text, want string }{
		"list":   {`{"format":2,"inputs":[` + strings.Repeat("{},", 20000) + `{}]}`, "JSON of 60026 bytes needs 19.6 MiB"},
		"depth":  {strings.Repeat("[", 5000), "program.json: "},
		"number": {`{"format":2,"variants":[{"arena_bytes":1e30}]}`, "number 1e30 into Go struct field"},
		"sizes":  {`{"format":2,"variants":[{"arena_bytes":99999999999999999999}]}`, "number 99999999999999999999 into"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := forged(t, []byte(c.text), good)
			hostile.Bounded(t, len(c.text), 64, func() {
				_, err := runtime.Read(dir)
				require.ErrorContains(t, err, "program.json: ")
				require.ErrorContains(t, err, c.want)
			})
		})
	}
}

// Weights, kernels and program.json of any size take no memory before they are compared with the budget.
func TestRead_FilesWithoutEnd(t *testing.T) {
	defer memory.Limit(1 << 20)()
	for _, name := range []string{"program.json", "weights.bin", "sm_80/kernels.ptx"} {
		root := t.TempDir()
		for file, f := range directory(t, accumulator(true)) {
			path := filepath.Join(root, file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
			require.NoError(t, os.WriteFile(path, f.Data, 0o666))
		}
		_, err := runtime.Read(os.DirFS(root))
		require.NoError(t, err)
		path := filepath.Join(root, name)
		require.NoError(t, os.Truncate(path, 1<<40))
		_, err = runtime.Read(os.DirFS(root))
		require.ErrorContains(t, err, name+": reading it needs 1 TiB of memory")
		require.NoError(t, os.Remove(path))
		require.NoError(t, syscall.Mkfifo(path, 0o666))
		_, err = runtime.Read(os.DirFS(root))
		require.ErrorContains(t, err, name+": not a regular file")
	}
}

type (
	program = runtime.Program
	variant = runtime.Variant
	launch  = runtime.Launch
)

// Programs whose figures no device has, and those that would read or write what is not theirs.
func TestValidate_FiguresOfNoDevice(t *testing.T) {
	for want, spoil := range map[string]func(p *program, v *variant, l *launch){
		"an arena of 4611686018427387904 bytes": func(_ *program, v *variant, _ *launch) { v.ArenaBytes = 1 << 62 },
		"(state_h): range outside its":          func(_ *program, v *variant, _ *launch) { v.Buffers[1].Bytes = 1 << 62 },
		"which no device has": func(_ *program, v *variant, _ *launch) {
			v.ArenaBytes = 1 << 40
			v.Buffers = append(v.Buffers, runtime.Buffer{Name: "kept", Kind: runtime.StateBuffer, Bytes: 1 << 40})
		},
		"(x): it has 15 bytes, i32[4] needs 16":      func(_ *program, v *variant, _ *launch) { v.Buffers[0].Bytes = 15 },
		`unknown element type "q7"`:                  func(p *program, _ *variant, _ *launch) { p.Inputs[0].DType = "q7" },
		"grid [1 65536 1] and block":                 func(_ *program, _ *variant, l *launch) { l.Grid[1] = 1 << 16 },
		"grid [2147483648 1 1] and block":            func(_ *program, _ *variant, l *launch) { l.Grid[0] = 1 << 31 },
		"[64 64 1] has 4096 threads, more than 1024": func(_ *program, _ *variant, l *launch) { l.Block = [3]int{64, 64, 1} },
		"[0 1 1]":                        func(_ *program, _ *variant, l *launch) { l.Block = [3]int{0, 1, 1} },
		"[-32 1 1]":                      func(_ *program, _ *variant, l *launch) { l.Block = [3]int{-32, 1, 1} },
		"[1 0 1]":                        func(_ *program, _ *variant, l *launch) { l.Grid = [3]int{1, 0, 1} },
		"-16 bytes of shared memory":     func(_ *program, _ *variant, l *launch) { l.Shared = -16 },
		"1048576 bytes of shared memory": func(_ *program, _ *variant, l *launch) { l.Shared = 1 << 20 },
		"it writes constant w": func(_ *program, v *variant, l *launch) {
			v.Buffers = append(v.Buffers, runtime.Buffer{Name: "w", Kind: runtime.ConstantBuffer, Bytes: 1})
			to := runtime.Access{Buffer: len(v.Buffers) - 1, Bytes: 1}
			*l = launch{Copy: &runtime.Copy{Src: runtime.Access{Buffer: 0, Bytes: 1}, Dst: to, Bytes: 1}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			p := accumulator(true)
			v := &p.Variants[0]
			spoil(p, v, &v.Entries[0].Launches[0])
			require.ErrorContains(t, p.Validate(), want)
			_, err := runtime.Read(directory(t, p))
			require.ErrorContains(t, err, "program.json: ")
			require.ErrorContains(t, err, "compile the model again")
		})
	}
	p := accumulator(true)
	l := p.Variants[0].Entries[0].Launches
	p.Variants[0].Entries[0].Launches = append(l, make([]launch, 40000)...)
	defer memory.Limit(64 << 20)()
	require.ErrorContains(t, p.Validate(), "entry run, whose 40002 launches may wait for each other, needs 191 MiB")
}

// An arena that the file may ask for, but the machine has not, is an error of the CPU device.
func TestNewSession_ArenaBeyondTheBudget(t *testing.T) {
	p := accumulator(true)
	p.Variants[0].ArenaBytes = 1 << 36
	require.NoError(t, p.Validate())
	defer memory.Limit(1 << 20)()
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	m, err := runtime.NewModel(t.Context(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	hostile.Bounded(t, 0, 0, func() {
		_, err = m.NewSession(t.Context(), runtime.SessionOptions{})
		require.ErrorContains(t, err, "arena of 68719476736 bytes")
		require.ErrorContains(t, err, "--memory")
	})
}

// FuzzProgram reads whatever there may be in a program.json whose digests are right, and makes a session. It ends in
// an error, or takes no more memory than the budget.
func FuzzProgram(f *testing.F) {
	p := accumulator(true)
	files, err := p.Files()
	require.NoError(f, err)
	good := fstest.MapFS{}
	for name, data := range files {
		good[name] = &fstest.MapFile{Data: data}
	}
	raw := string(files[runtime.ProgramFile])
	f.Add([]byte(raw))
	f.Add([]byte(strings.Replace(raw, `"arena_bytes": 256`, `"arena_bytes": 1099511627776`, 1)))
	f.Add([]byte(strings.Replace(raw, `"shape": [
    4`, `"shape": [
    4611686018427387904`, 1)))
	f.Add([]byte(strings.Replace(raw, `"offset": 0`, `"offset": -1`, -1)))
	f.Add([]byte(strings.Replace(raw, `"after": [
        0`, `"after": [
        77`, 1)))
	defer memory.Limit(4 << 20)()
	d, err := emu.Open(emu.Options{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := forged(t, data, good)
		hostile.Bounded(t, len(data), 256, func() {
			p, err := runtime.Read(dir)
			if err != nil {
				return
			}
			m, err := runtime.NewModel(t.Context(), p, d, runtime.ModelOptions{})
			if err != nil {
				return
			}
			s, err := m.NewSession(t.Context(), runtime.SessionOptions{})
			if err == nil {
				require.NoError(t, s.Close())
			}
			require.NoError(t, m.Close())
		})
	})
}
