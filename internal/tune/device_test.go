package tune

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

const workerMark = "SPARK_TEST_TUNE_WORKER"

func TestMain(m *testing.M) {
	switch os.Getenv(workerMark) {
	case "":
		os.Exit(m.Run())
	case "dies":
		fmt.Fprintln(os.Stderr, "CUDA says no")
		os.Exit(7)
	}
	d, err := emu.Open(emu.Options{})
	if err == nil {
		err = Work(context.Background(), d, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench times on the CPU device, in a process of the test's own.
func bench(t *testing.T, kind string) *Bench {
	t.Helper()
	b := &Bench{Timeout: 20 * time.Second, Command: func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), workerMark+"="+kind)
		return c
	}}
	t.Cleanup(b.Close)
	return b
}

// planted is a spec whose kernel does what a test wants.
func planted(emit func(k *ptx.Kernel, params []ptx.Sym)) *kernel.Spec {
	return &kernel.Spec{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Operands: []kernel.Operand{{Workspace: 256}}, Emit: emit}
}

// TestKernelsThatFailAreKilled: one that never ends, one that reads what it may not, and a process that dies are failures of the kernel; the next is
// timed in a new process.
func TestKernelsThatFailAreKilled(t *testing.T) {
	on, err := target.Lookup("sm_121")
	require.NoError(t, err)
	good := planted(func(k *ptx.Kernel, params []ptx.Sym) { k.I("ret") })
	hangs := planted(func(k *ptx.Kernel, params []ptx.Sym) {
		again, x := k.NewLabel("again"), k.Reg(ptx.B32) // a loop that changed nothing would be found to be endless
		k.I("mov.b32", x, ptx.Imm(0))
		k.Place(again)
		k.I("add.s32", x, x, ptx.Imm(1))
		k.I("bra", again)
	})
	faults := planted(func(k *ptx.Kernel, params []ptx.Sym) {
		p, x := k.Reg(ptx.B64), k.Reg(ptx.B32)
		k.I("ld.param.u64", p, ptx.At(params[0], 0))
		k.I("cvta.to.global.u64", p, p)
		k.I("ld.global.b32", x, ptx.At(p, 1<<20))
		k.I("st.global.b32", ptx.At(p, 0), x)
		k.I("ret")
	})
	b := bench(t, "emu")
	var failed *FailedError
	for range 2 {
		b.Timeout = 20 * time.Second
		_, err = b.Measure(t.Context(), good, on)
		require.NoError(t, err)
		first := b.cmd.Process.Pid
		group, err := syscall.Getpgid(first)
		require.NoError(t, err)
		require.NotEqual(t, syscall.Getpgrp(), group, "a terminal does not interrupt it")
		_, err = b.Measure(t.Context(), good, on)
		require.NoError(t, err)
		require.Equal(t, first, b.cmd.Process.Pid, "good kernels share a process")

		_, err = b.Measure(t.Context(), faults, on)
		require.ErrorAs(t, err, &failed)
		require.NotContains(t, failed.Why, "did not end")
		t.Log(failed.Why)

		b.Timeout = time.Second
		begin := time.Now()
		_, err = b.Measure(t.Context(), hangs, on)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "it did not end within 1s", failed.Why)
		require.Less(t, time.Since(begin), 10*time.Second)
		require.Nil(t, b.cmd, "its process is gone")
	}
	_, err = bench(t, "dies").Measure(t.Context(), good, on)
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "its process ended: CUDA says no", failed.Why)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	b.Timeout = 20 * time.Second
	_, err = b.Measure(ctx, hangs, on)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, b.cmd)

	b.Command = func() *exec.Cmd { return exec.Command("/no/such/program") }
	_, err = b.Measure(t.Context(), good, on)
	require.ErrorContains(t, err, "timing kernels in another process")
	require.NotErrorAs(t, err, &failed)
}

// TestAFaultyCandidateIsRememberedInTheFile: of a kernel whose best candidates hang or fault, another schedule is chosen, and the file says why.
func TestAFaultyCandidateIsRememberedInTheFile(t *testing.T) {
	node, ctx := matmul(16, 64, 32, ir.Float16)(t), kerneltest.Target(t, "sm_121")
	b := bench(t, "emu")
	u := &Tuner{Beam: 2, Evaluations: 6, Families: families.New(nil), Table: &tunefile.Table{File: tunefile.File{Format: tunefile.Format, Target: "sm_121"}}}
	n := 0
	u.Measure = func(c context.Context, s *kernel.Spec, on *target.Target) (float64, error) {
		if n++; n == 2 {
			j := jobOf(s, on)
			j.PTX = string(bytes.Replace([]byte(j.PTX), []byte("ret;"), []byte("$forever:\n\tadd.s32 %r0, %r0, 1;\n\tbra $forever;\n\tret;"), 1))
			b.Timeout = time.Second
			defer func() { b.Timeout = 20 * time.Second }()
			return b.run(c, j, b.Timeout)
		}
		return b.Measure(c, s, on)
	}
	k := newTask("", node, node.Region.Family)
	s, err := u.Families.Space(node, ctx)
	require.NoError(t, err)
	k.signature = s.Signature
	searched, err := u.kernel(t.Context(), k, ctx, ctx.Target, 1)
	require.NoError(t, err)
	require.True(t, searched)
	found := u.Table.Kernel(s.Signature)
	require.Len(t, found.Bad, 1)
	require.Equal(t, "it did not end within 1s", found.Bad[0].Why)
	require.NotEqual(t, found.Bad[0].Schedule, found.Schedule)
	require.Equal(t, 6, found.Evaluations)
	require.Positive(t, found.US)
}

// TestProgramsAreTimedAsAWhole: real programs run in the other process; what is chosen is what the times say, and one that fails is left out.
func TestProgramsAreTimedAsAWhole(t *testing.T) {
	fulltest.Long(t)
	b := bench(t, "emu")
	u := tuner(filepath.Join(t.TempDir(), "t.json"), 0)
	u.Beam = 1
	var err error
	u.Trace, err = OpenTrace(TracePath(u.Path))
	require.NoError(t, err)
	u.Measure = func(context.Context, *kernel.Spec, *target.Target) (float64, error) { return 1, nil }
	var usual, fast string // schedules of one kernel: by default, and the first other one
	timed := 0
	u.MeasureProgram = func(ctx context.Context, p *runtime.Program) (float64, error) {
		if timed++; timed <= 2 {
			us, err := b.MeasureProgram(ctx, p)
			require.NoError(t, err)
			require.Positive(t, us)
		}
		s := p.Variants[0].Kernels[1].Schedule
		switch {
		case usual == "" || s == usual:
			usual = s
			return 10, nil
		case fast == "" || s == fast:
			fast = s
			return 9, nil
		}
		return 0, &FailedError{"it hung"}
	}
	compiled(t, "policy", compile.Options{Tuning: u.Table, Tune: u.Tune})
	p := u.Table.Programs[0]
	require.NotEmpty(t, fast)
	require.Contains(t, slices.Collect(maps.Values(p.Kernels)), fast)
	require.Contains(t, fmt.Sprint(u.Trace.rows), "it hung")
	require.Equal(t, 9.0, p.US)
	require.Equal(t, 10.0, p.DefaultUS)
	require.Contains(t, strings.Join(u.Found, "; "), "measured: 9.0 µs, by default 10.0: 10.0 % less")
	require.Greater(t, timed, 5)

	u.Table.Programs = nil
	u.MeasureProgram = func(context.Context, *runtime.Program) (float64, error) { return 0, &FailedError{"it faults"} }
	_, err = compile.Compile(t.Context(), model(t, "policy"), compile.Options{Precision: "fp16", Targets: []string{"sm_121"}, Tuning: u.Table, Tune: u.Tune})
	require.ErrorContains(t, err, "the program with its default schedules does not run on the device: it faults")
}

// TestAProgramThatIsRefusedIsAFailure, as a kernel is, and nothing of it is left on the disk.
func TestAProgramThatIsRefusedIsAFailure(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p := *compiled(t, "policy", compile.Options{}).Program
	p.Variants = slices.Clone(p.Variants)
	p.Variants[0].PTX = strings.Replace(p.Variants[0].PTX, "ret;", "trap;", 1)
	_, err := bench(t, "emu").MeasureProgram(t.Context(), &p)
	var failed *FailedError
	require.ErrorAs(t, err, &failed)
	t.Log(failed.Why)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "spark-tune-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
