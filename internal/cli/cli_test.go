package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestExitCodes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		run  func(context.Context) error
		code int
		says string
	}{
		"done":                            {func(context.Context) error { return nil }, Done, "^$"},
		"failed":                          {func(context.Context) error { return Failure("2 cases") }, Failed, "tool: 2 cases"},
		"bad input":                       {func(context.Context) error { return errors.New("no model") }, BadInput, "tool: no model"},
		"interrupted":                     {interrupted, Interrupted, "tool: interrupted"},
		"of a group that was interrupted": {func(context.Context) error { return fmt.Errorf("rank 1: %w", ErrInterrupted) }, Interrupted, "tool: interrupted"},
		"cancelled":                       {func(context.Context) error { return context.Canceled }, BadInput, "context canceled"},
		"bug": {func(context.Context) error {
			var none []int
			_ = none[3]
			return nil
		}, Bug, `tool: this is a bug in tool \(.*index out of range.*\): please report it with .*tool-panic-.*\.txt, and the model if you can`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.Equal(t, c.code, Main(&struct{}{}, "tool", "A tool.", nil, &out, &errs, c.run))
			require.Regexp(t, c.says, errs.String())
			if c.code == Bug {
				text, err := os.ReadFile(regexp.MustCompile(`report it with (.*\.txt)`).FindStringSubmatch(errs.String())[1])
				require.NoError(t, err)
				require.Contains(t, string(text), "cli_test.go")
				require.Contains(t, string(text), "arguments: []")
			}
		})
	}
}

// interrupted is interrupted as by Ctrl-C.
func interrupted(ctx context.Context) error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// stubborn names this test in a process that does not end on an interrupt.
const stubborn = "SPARK_TEST_STUBBORN"

// TestMain_ASecondInterruptEndsAtOnce, in a process of its own, whatever the command does.
func TestMain_ASecondInterruptEndsAtOnce(t *testing.T) {
	if os.Getenv(stubborn) != "" {
		Main(&struct{}{}, "tool", "", nil, os.Stdout, os.Stderr, func(ctx context.Context) error {
			fmt.Println("runs")
			<-ctx.Done()
			fmt.Println("stops")
			select {}
		})
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", t.Name())
	cmd.Env = append(os.Environ(), stubborn+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for _, line := range []string{"runs", "stops"} {
		require.True(t, lines.Scan())
		require.Equal(t, line, lines.Text())
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
			return
		case <-time.After(20 * time.Millisecond): // the second one may have come before the first was done with
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
}

// TestInterruptible_TakesRepeatedSignalsForOne: here the test's process would end by the second one.
func TestInterruptible_TakesRepeatedSignalsForOne(t *testing.T) {
	ctx, stop := interruptible(time.Hour)
	defer stop()
	require.ErrorIs(t, interrupted(ctx), context.Canceled)
	time.Sleep(20 * time.Millisecond)
	for _, again := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		require.NoError(t, syscall.Kill(os.Getpid(), again))
	}
	time.Sleep(20 * time.Millisecond)
}

// waiting names TestMain_EndsWithTheTerminal in a process that waits for a signal.
const waiting = "SPARK_TEST_WAITING"

// TestMain_EndsWithTheTerminal, by SIGHUP, where nohup has not had that ignored.
func TestMain_EndsWithTheTerminal(t *testing.T) {
	if os.Getenv(waiting) != "" {
		os.Exit(Main(&struct{}{}, "tool", "", nil, os.Stdout, os.Stderr, func(ctx context.Context) error {
			fmt.Println("runs")
			<-ctx.Done()
			fmt.Println("ends")
			return ctx.Err()
		}))
	}
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as under nohup, and so it is in every process that this one starts")
	}
	for _, ignored := range []bool{false, true} {
		command := `exec "$0" -test.run ` + t.Name()
		if ignored {
			command = "trap '' HUP; " + command
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command, os.Args[0])
		cmd.Env = append(os.Environ(), waiting+"=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		ends := make(chan bool, 1)
		go func() { ends <- lines.Scan() }()
		if ignored {
			select {
			case <-ends:
				t.Fatal("it has ended though SIGHUP was ignored")
			case <-time.After(100 * time.Millisecond):
			}
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
		require.True(t, <-ends)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, Interrupted, exit.ExitCode(), "ignored: %v", ignored)
	}
}

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, Done, Main(&struct{}{}, "tool", "A tool.", []string{"--version"}, &out, &errs, func(context.Context) error { return errors.New("ran") }))
	require.Equal(t, "tool "+Version()+"\n", out.String())
	require.Empty(t, errs.String())
}

func TestFollowing(t *testing.T) {
	npz := func(arg string) bool { return strings.HasSuffix(arg, ".npz") }
	for args, want := range map[string][2]string{
		"--in a.npz b.npz model -q": {"model -q", "a.npz b.npz"},
		"model --in dir other":      {"model other", "dir"},
		"--in a.npz --in b.npz":     {"", "a.npz b.npz"},
		"model --in":                {"model --in", ""},
		"--in -q model":             {"--in -q model", ""},
		"--in=a.npz model":          {"--in=a.npz model", ""},
	} {
		rest, values := Following(strings.Fields(args), "--in", npz)
		require.Equal(t, want, [2]string{strings.Join(rest, " "), strings.Join(values, " ")}, args)
	}
}

func TestMain_RefusedByTheMachine(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{unix.ENOSPC, Refused}, {unix.EDQUOT, Refused}, {unix.EROFS, Refused}, {unix.EACCES, Refused}, {unix.EPERM, Refused}, {unix.EIO, Refused},
		{unix.ENOENT, BadInput}, {errors.New("wrong use"), BadInput}, {Failure("differ"), Failed},
	} {
		code := Main(&struct{}{}, "spark-x", "", nil, io.Discard, io.Discard, func(context.Context) error { return fmt.Errorf("writing f: %w", c.err) })
		require.Equal(t, c.code, code, c.err)
	}
}

func TestTables_MakeWayForAFileOnStandardOutput(t *testing.T) {
	out, err := &bytes.Buffer{}, &bytes.Buffer{}
	for args, aside := range map[string]bool{
		"m.onnx --json -": true, "--json=- m.onnx": true, "--html /dev/stdout m": true, "-o /dev/fd/1": true,
		"m.onnx --json x.json": false, "- --quiet": false, "m.onnx --json ./-": false, "": false,
	} {
		require.Equal(t, aside, Tables(strings.Fields(args), out, err) == io.Writer(err), args)
	}
}

// TestParse_RefusesEmptyValues of flags and arguments, which are those of variables that are not set.
func TestParse_RefusesEmptyValues(t *testing.T) {
	type flags struct {
		Models    []string `arg:"" optional:""`
		Output    string
		Calibrate []string `sep:"none"`
		Layers    []string
		Quiet     bool
		Count     int
	}
	for says, args := range map[string][]string{
		"--output is empty: give a value, or leave it out": {"--output", ""},
		"--output is empty":       {"--output="},
		"--calibrate is empty":    {"--calibrate", "a", "--calibrate", ""},
		"--layers is empty":       {"--layers", ""},
		"--layers is empty:":      {"--layers", "a,,b"},
		"[<models> ...] is empty": {"a", ""},
	} {
		require.ErrorContains(t, Parse(&flags{}, "tool", args), says, "%q", args)
		var out, errs bytes.Buffer
		require.Equal(t, BadInput, Main(&flags{}, "tool", "A tool.", args, &out, &errs, func(context.Context) error { return nil }))
		require.Contains(t, errs.String(), says)
	}
	require.NoError(t, Parse(&flags{}, "tool", []string{"a", "b", "--output", "x", "--calibrate", "a", "--calibrate", "b", "--quiet", "--count", "0"}))
	require.NoError(t, Parse(&flags{}, "tool", nil))
}

// TestMain_ErrorsSayWhatWasMeant, not which system call failed, nor what the parser read.
func TestMain_ErrorsSayWhatWasMeant(t *testing.T) {
	var flags struct {
		Output string
	}
	missing := filepath.Join(t.TempDir(), "nothing")
	run := func(context.Context) error {
		_, err := os.Stat(missing)
		return fmt.Errorf("calibration: %w", err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--output"}, "tool: --output: its value is missing\n"},
		{nil, "tool: calibration: " + missing + ": no such file or directory; check the path\n"},
	} {
		var out, text bytes.Buffer
		require.Equal(t, BadInput, Main(&flags, "tool", "", c.args, &out, &text, run))
		require.Equal(t, c.want, text.String())
	}
	_, err := ONNX("-")
	require.ErrorContains(t, err, "not read from standard input")
}
