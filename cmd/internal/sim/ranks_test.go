package sim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/localranks"
)

// noisy is a file with two scenarios, of which each loop has other draws and noise, and the arguments to run them.
func noisy(t *testing.T, n int) (dir string, args func(name string) []string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "noisy.yaml")
	text := "scenarios:\n  - {name: noisy, set: {duration: 2, noise_offset: 0.1}, " +
		"vary: {offset: {uniform: [-0.2, 0.2]}}, sweep: {latency: [0, 0.1]}}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return dir, func(name string) []string {
		path := filepath.Join(dir, name)
		return []string{"spark-sim", "run", file, "--n", fmt.Sprint(n), "--device", "emu", "--json", path + ".json",
			"--jsonl",
			path + ".jsonl", "--ranks"}
	}
}

// ran waits for ranks, which must end well.
func ran(t *testing.T, j *localranks.Job) []localranks.Result {
	t.Helper()
	all := j.Wait()
	for rank, r := range all {
		require.Zero(t, r.Code, "rank %d: %s", rank, r.Output)
	}
	return all
}

// sameFiles requires runs of two names to have written the same.
func sameFiles(t *testing.T, dir, a, b string) {
	t.Helper()
	for _, end := range []string{".json", ".jsonl"} {
		want, err := os.ReadFile(filepath.Join(dir, a+end))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, b+end))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "%s and %s: %s", a, b, end)
	}
}

// TestRanks_WriteWhatOneProcessDoes, where loops do not divide evenly and where there are fewer than ranks.
func TestRanks_WriteWhatOneProcessDoes(t *testing.T) {
	fulltest.Long(t)
	for _, n := range []int{7, 1} {
		dir, args := noisy(t, n)
		ran(t, localranks.Start(t, 1, nil, args("1")...))
		for _, size := range []int{2, 3} {
			name := fmt.Sprint(size)
			all := ran(t, localranks.Start(t, size, nil, args(name)...))
			sameFiles(t, dir, "1", name)
			require.Contains(t, all[0].Output, fmt.Sprintf("%d loops, ", 2*n))
			require.Contains(t, all[0].Output, fmt.Sprintf(", %d ranks over tcp", size))
			require.NotContains(t, all[1].Output, "loops", "the first one prints")
		}
	}
}

// untilLoopsEnd waits for loops of a run that have ended.
func untilLoopsEnd(t *testing.T, dir, name string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(filepath.Join(dir, name+".jsonl")); err == nil && info.Size() > 0 {
			return
		}
		require.True(t, time.Now().Before(end), "no loop of %s has ended", name)
	}
}

// TestRanks_ThatEndKeepWhatIsFinished: a rank that is killed is named, an interrupt ends all, and another number of
// ranks goes on from what had ended, to the bytes of a run that was not stopped.
func TestRanks_ThatEndKeepWhatIsFinished(t *testing.T) {
	fulltest.Long(t)
	dir, args := noisy(t, 6*1024)
	ran(t, localranks.Start(t, 1, nil, args("whole")...))
	resume := func(name string, size int) {
		t.Helper()
		r, err := readReport(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		require.True(t, r.Partial)
		require.NotEmpty(t, r.Metrics)
		ran(t, localranks.Start(t, size, nil, append(args(name), "--resume", filepath.Join(dir, name+".json"))...))
		sameFiles(t, dir, "whole", name)
		left, err := filepath.Glob(filepath.Join(dir, name+"*"))
		require.NoError(t, err)
		require.Len(t, left, 2, "no other file is left")
	}

	j := localranks.Start(t, 2, nil, args("killed")...)
	untilLoopsEnd(t, dir, "killed")
	j.Kill(1)
	first := j.Wait()[0]
	require.Equal(t, cli.BadInput, first.Code, first.Output)
	require.Contains(t, first.Output, "rank 1 on ")
	require.Contains(t, first.Output, "go on with --resume ")
	resume("killed", 3)

	j = localranks.Start(t, 2, nil, args("stopped")...)
	untilLoopsEnd(t, dir, "stopped")
	j.Signal(0, syscall.SIGINT)
	j.Signal(1, syscall.SIGINT)
	for rank, r := range j.Wait() {
		require.Equal(t, cli.Interrupted, r.Code, "rank %d: %s", rank, r.Output)
	}
	resume("stopped", 1)
}

// pair runs f as each of two ranks over TCP in this process.
func pair(t *testing.T, f func(j *job) error) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, errors.Join(err, listener.Close()))
	var ended errgroup.Group
	for rank := range 2 {
		env := map[string]string{"RANK": fmt.Sprint(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
			"MASTER_PORT": port, collectives.TokenVariable: strings.Repeat("0123456789abcdef", 2)}
		ended.Go(func() error {
			g, err := collectives.Join(t.Context(), collectives.Options{Getenv: func(name string) string { return env[name] }})
			if err != nil {
				return err
			}
			return errors.Join(f(&job{g}), g.Close())
		})
	}
	return ended.Wait()
}

// TestJob_SharesLargeCheckpoints: those of models are larger than a message over TCP.
func TestJob_SharesLargeCheckpoints(t *testing.T) {
	fulltest.Long(t)
	c := scenario.Checkpoint{Loops: 8, Step: 3, States: map[string][]byte{"planes": make([]byte, 49<<20)}}
	require.NoError(t, pair(t, func(j *job) error {
		s, err := j.share(t.Context(), &start{Report: &report{}, Checkpoints: []scenario.Checkpoint{c}})
		if err != nil {
			return err
		}
		var own part
		if j.rank() == 1 {
			own.Checkpoint = &c
		}
		parts, err := j.exchange(t.Context(), own)
		if err != nil {
			return err
		}
		for _, got := range []*scenario.Checkpoint{&s.Checkpoints[0], parts[1].Checkpoint} {
			if got == nil || len(got.States["planes"]) != 49<<20 {
				return fmt.Errorf("rank %d: a checkpoint is lost", j.rank())
			}
		}
		return nil
	}))
}

// TestJob_ComparesRecordedRoutes, of which each rank reads its own.
func TestJob_ComparesRecordedRoutes(t *testing.T) {
	t.Setenv("SPARK_CACHE", "off")
	dir := t.TempDir()
	s := dataset.Synthesis{Routes: 1, Seconds: 1, Width: 32, Height: 20, Middle: true}
	for rank := range 2 {
		require.NoError(t, dataset.Synthesise(t.Context(), filepath.Join(dir, fmt.Sprint(rank)), s))
	}
	agree := func(j *job) error {
		r := &report{Tier: scenario.Pictures.String(), Route: filepath.Join(dir, fmt.Sprint(j.rank()))}
		return j.agree(t.Context(), r, &scenario.Models{})
	}
	require.NoError(t, pair(t, agree))
	logs, err := filepath.Glob(filepath.Join(dir, "1", "*", "rlog.zst"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(logs[0], []byte("another"), 0o644))
	require.ErrorContains(t, pair(t, agree), "rank 1 differs: SHA-256 of the recorded route is ")
}

// TestRanks_ThatDifferAreRefused, on all of them.
func TestRanks_ThatDifferAreRefused(t *testing.T) {
	dir, _ := noisy(t, 1)
	script := fmt.Sprintf("cd %s/$RANK && exec spark-sim run curve --n 4 --algorithm policy.onnx --device emu --ranks", dir)
	for rank, output := range []string{"action", "action", "other"} {
		at := filepath.Join(dir, fmt.Sprint(rank))
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, writePolicy(filepath.Join(at, "policy.onnx"), "observation", "action"))
		if output == "other" {
			f, err := os.OpenFile(filepath.Join(at, "policy.onnx"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("\x32\x01x") // a comment
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	for _, r := range localranks.Start(t, 3, nil, "sh", "-c", script).Wait() {
		require.Equal(t, cli.BadInput, r.Code)
		require.Contains(t, r.Output, "rank 2 differs: SHA-256 of the file of algorithm policy.onnx is ")
	}
	for rank := range 2 {
		at := filepath.Join(dir, fmt.Sprint(rank))
		require.NoError(t, writeOutside(filepath.Join(at, "outside.onnx")))
	}
	weights := filepath.Join(dir, "1", "weights.bin")
	data, err := os.ReadFile(weights)
	require.NoError(t, err)
	data[0] ^= 1
	require.NoError(t, os.WriteFile(weights, data, 0o644))
	outside := strings.Replace(script, "policy.onnx", "outside.onnx", 1)
	for _, r := range localranks.Start(t, 2, nil, "sh", "-c", outside).Wait() {
		require.Equal(t, cli.BadInput, r.Code)
		require.Contains(t, r.Output, "rank 1 differs: SHA-256 of the file of algorithm outside.onnx is ")
	}
	script = strings.Replace(script, "spark-sim run curve", "spark-sim run curv", 1)
	for rank, r := range localranks.Start(t, 2, nil, "sh", "-c", script).Wait() {
		require.Equal(t, cli.BadInput, r.Code)
		require.Contains(t, r.Output, `no family "curv"`)
		if rank > 0 {
			require.Contains(t, r.Output, "rank 0 on ")
		}
	}
	script = fmt.Sprintf("cd %s/$RANK && exec spark-sim run curve --n $((4 + RANK)) --quiet --device emu --ranks --json $RANK.json", dir)
	for _, r := range localranks.Start(t, 2, nil, "sh", "-c", script).Wait() {
		require.Equal(t, cli.BadInput, r.Code)
		require.Contains(t, r.Output, `rank 1 differs: n is "5" and was "4" on rank 0: give all ranks the same program, files and flags`)
	}
}

// TestJob_ComparesAllFlags but those that a rank may have of its own.
func TestJob_ComparesAllFlags(t *testing.T) {
	dir, _ := noisy(t, 1)
	for flags, name := range map[string]string{
		"--algorithm feedforward": "algorithm", "--tier controls": "tier", "crosswind": "scenarios", "--seed 3": "seed", "--precision fp16": "precision",
	} {
		script := fmt.Sprintf("cd %s && [ $RANK = 0 ] || more='%s'; exec spark-sim run curve $more --n 2 --device emu --ranks", dir, flags)
		for _, r := range localranks.Start(t, 2, nil, "sh", "-c", script).Wait() {
			require.Contains(t, r.Output, "rank 1 differs: "+name+" is ", flags)
		}
	}
	script := fmt.Sprintf("cd %s && exec spark-sim run curve --json $RANK.json --device emu --n $((2)) --ranks $([ $RANK = 0 ] || echo --quiet --times)", dir)
	ran(t, localranks.Start(t, 2, nil, "sh", "-c", script))
}
