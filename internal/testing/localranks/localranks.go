// Package localranks starts the ranks of a job on this machine, for tests.
package localranks

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Job is a number of processes.
type Job struct {
	Address string // where the first rank listens

	t      testing.TB
	ranks  []*exec.Cmd
	output []*output
}

// output may be read while its process writes.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// Result is how a process ended.
type Result struct {
	Code   int // -1: by a signal
	Output string
}

// Start starts a command n times, each a rank as torchrun starts it, with a token in its environment that is the job's own. Processes that the test leaves running are killed at its end.
func Start(t testing.TB, n int, env []string, command ...string) *Job {
	t.Helper()
	j := &Job{t: t, Address: fmt.Sprintf("127.0.0.1:%d", free(t))}
	host, port, err := net.SplitHostPort(j.Address)
	require.NoError(t, err)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	env = append([]string{fmt.Sprintf("SPARK_TOKEN=%x", secret)}, env...)
	for rank := range n {
		j.start(append(env, fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n), fmt.Sprintf("LOCAL_RANK=%d", rank),
			"MASTER_ADDR="+host, "MASTER_PORT="+port, "TORCHELASTIC_RUN_ID="+t.Name()), command...)
	}
	return j
}

// MPI starts a command under Open MPI's mpirun as one process, whose output is that of all ranks. The test is skipped without it.
func MPI(t testing.TB, n int, env []string, command ...string) *Job {
	t.Helper()
	mpirun := filepath.Join(filepath.Dir(os.Getenv("SPARK_PYTHON")), "mpirun")
	if _, err := os.Stat(mpirun); err != nil || os.Getenv("SPARK_PYTHON") == "" {
		t.Skip("mpirun is missing: SPARK_PYTHON names no Python with Open MPI (make tools)")
	}
	j := &Job{t: t}
	env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	j.start(env, append([]string{mpirun, "--oversubscribe", "-n", fmt.Sprint(n)}, command...)...)
	return j
}

func (j *Job) start(env []string, command ...string) {
	j.t.Helper()
	cmd, out := exec.Command(command[0], command[1:]...), &output{}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	require.NoError(j.t, cmd.Start())
	j.ranks, j.output = append(j.ranks, cmd), append(j.output, out)
	j.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// Kill kills a process at once.
func (j *Job) Kill(rank int) {
	j.t.Helper()
	require.NoError(j.t, j.ranks[rank].Process.Kill())
}

// Signal sends a signal to a process.
func (j *Job) Signal(rank int, s os.Signal) {
	j.t.Helper()
	require.NoError(j.t, j.ranks[rank].Process.Signal(s))
}

// Until waits for text in a process's output.
func (j *Job) Until(rank int, text string) {
	j.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(j.output[rank].String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			j.t.Fatalf("rank %d did not print %q: %s", rank, text, j.output[rank])
		}
	}
}

// Wait waits for all processes.
func (j *Job) Wait() (out []Result) {
	j.t.Helper()
	for i, cmd := range j.ranks {
		r := Result{}
		if err := cmd.Wait(); err != nil {
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				j.t.Fatal(err)
			}
			r.Code = exit.ExitCode()
		}
		r.Output = j.output[i].String()
		out = append(out, r)
	}
	return out
}

// free is a port that nobody listens at.
func free(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
