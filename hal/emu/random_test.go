package emu

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu/internal/jit"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/ptxrand"
)

// result is what a random kernel produces: its output, or how it failed.
func result(e Engine, c *ptxrand.Case) string { return faulty(e, c, nil) }

// faulty is result with the instructions that native code is compiled from changed, if wrong is given.
func faulty(e Engine, c *ptxrand.Case, wrong func(in *jit.Inst)) string {
	in := append([]uint64(nil), c.Input...)
	out := make([]byte, c.Output)
	run := func() error {
		d, err := Open(Options{Engine: e, Workers: 1, StepLimit: 1 << 16})
		if err != nil {
			return err
		}
		m, err := d.Load(context.Background(), hal.Image{Name: "k", PTX: c.Text})
		if err != nil {
			return err
		}
		if wrong != nil {
			p := m.(*module).programs["k"]
			p.native.once.Do(func() {
				insts := nativeForm(p)
				for i := range insts {
					insts[i].Vec = slices.Clone(insts[i].Vec)
					wrong(&insts[i])
				}
				p.native.code, err = jit.Compile(insts, p.knownRows(), copyLayout, d.engine.level, d.engine.steps)
			})
			if err != nil {
				return err
			}
		}
		// Two blocks, one after the other: the second begins with what the first left in its rows.
		return d.runKernel(m, "k", [3]int{2, 1, 1}, [3]int{c.Threads, 1, 1}, c.Shared, in, out)
	}
	if err := run(); err != nil {
		if strings.Contains(err.Error(), string(StepLimit)) {
			return "step limit" // native code counts loops only
		}
		return err.Error()
	}
	raw := bytes.NewBuffer(out)
	_ = binary.Write(raw, binary.LittleEndian, in)
	return raw.String()
}

// finished reports whether a result is a kernel's output, not how it failed.
func finished(c *ptxrand.Case, result string) bool { return len(result) == c.Output+8*len(c.Input) }

// disagreement is how a kernel's results differ between an engine and the interpreter, or "".
func disagreement(e Engine, c *ptxrand.Case) string {
	return difference(e, c, result(Specification, c))
}

// difference is disagreement with the interpreter's result, want.
func difference(e Engine, c *ptxrand.Case, want string) string {
	got := result(e, c)
	if want == got {
		return ""
	}
	if !finished(c, want) || !finished(c, got) {
		return fmt.Sprintf("%.300q, the interpreter %.300q", got, want)
	}
	for i := range want {
		if want[i] != got[i] {
			at := i &^ 7
			return fmt.Sprintf("byte %d (thread %d, %d): %x, the interpreter's %x", i, i/512, i%512, got[at:at+8], want[at:at+8])
		}
	}
	return ""
}

// TestRandomKernels compares random kernels with the interpreter, bit for bit: 100, with -short 10, with SPARK_FULL=1 10,000, from
// a seed that changes every day or is SPARK_SEED. All of them end without an error: an engine that fails as the
// interpreter does would agree with it. A kernel that differs is reduced and saved in testdata/regress, where
// TestRegressions finds it.
func TestRandomKernels(t *testing.T) {
	seed, n := uint64(time.Now().Unix()/86400)<<20, 100
	switch {
	case fulltest.Runs(t.Name()):
		n = 10000
	case testing.Short():
		n = 10
	}
	if s := os.Getenv("SPARK_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 0, 64)
		require.NoError(t, err)
		seed = v
	}
	begin := time.Now()
	all := engines(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := worker; i < n && !t.Failed(); i += 2 {
				c := ptxrand.New(seed + uint64(i))
				want := result(Specification, &c)
				if !finished(&c, want) {
					t.Errorf("seed %d ends in an error: %s\n%s", c.Seed, want, c.Text)
					return
				}
				for _, e := range all {
					if d := difference(e, &c, want); d != "" {
						mu.Lock()
						keep(t, e, c, d)
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d kernels from seed %#x on %v in %v", n, seed, all, time.Since(begin))
}

// keep cuts a failing kernel down and writes it to testdata/regress.
func keep(t *testing.T, e Engine, c ptxrand.Case, why string) {
	c.Text = ptxrand.Shrink(c.Text, func(text string) bool {
		d := c
		d.Text = text
		return disagreement(e, &d) != ""
	})
	file := filepath.Join("testdata", "regress", fmt.Sprintf("%x-%s.ptx", c.Seed, e))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	head := fmt.Sprintf("// seed %d\n", c.Seed)
	require.NoError(t, os.WriteFile(file, []byte(head+c.Text), 0o644))
	t.Errorf("%s, seed %d, kept in %s: %s, cut down: %s\n%s", e, c.Seed, file, why, disagreement(e, &c), c.Text)
}

// TestRegressions runs the kernels that once failed.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "regress", "*.ptx"))
	require.NoError(t, err)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			data, err := os.ReadFile(f)
			require.NoError(t, err)
			var seed uint64
			_, err = fmt.Sscanf(string(data), "// seed %d\n", &seed)
			require.NoError(t, err)
			c := ptxrand.New(seed)
			c.Text = string(data)
			for _, e := range engines(t) {
				require.Empty(t, disagreement(e, &c), e)
			}
		})
	}
}
