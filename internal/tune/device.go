package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// Bench times kernels and programs in a process of its own. One that hangs is killed with its process, one that faults ends it; the next kernel gets a new one.
type Bench struct {
	Command func() *exec.Cmd // a process that calls Work
	Timeout time.Duration    // for a kernel, its process's start included; programs, whose PTX the driver compiles as a whole, have programTimeouts of it

	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan answered
	stderr  *bytes.Buffer
}

// answered is a reply, or why there is none.
type answered struct {
	reply
	err error
}

// Measure is Tuner.Measure. A kernel that hangs, faults or is refused is a FailedError.
func (b *Bench) Measure(ctx context.Context, s *kernel.Spec, t *target.Target) (float64, error) {
	return b.run(ctx, jobOf(s, t), b.Timeout)
}

const programTimeouts = 6

// MeasureProgram is Tuner.MeasureProgram, with errors likewise. The program is in a directory of its own meanwhile.
func (b *Bench) MeasureProgram(ctx context.Context, p *runtime.Program) (us float64, err error) {
	dir, err := os.MkdirTemp("", "spark-tune-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files, err := p.Files()
	if err != nil {
		return 0, err
	}
	at := filepath.Join(dir, "program")
	if err := gopkg.Write(at, files); err != nil {
		return 0, err
	}
	return b.run(ctx, job{Program: at}, programTimeouts*b.Timeout)
}

func (b *Bench) run(ctx context.Context, j job, timeout time.Duration) (float64, error) {
	if b.cmd == nil {
		if err := b.start(); err != nil {
			return 0, fmt.Errorf("timing kernels in another process: %w", err)
		}
	}
	go func(in io.Writer) { _ = json.NewEncoder(in).Encode(j) }(b.in) // a process that has ended answers nothing
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-ctx.Done():
		b.Close()
		return 0, ctx.Err()
	case <-late.C:
		b.Close()
		return 0, &FailedError{fmt.Sprintf("it did not end within %v", timeout)}
	case a := <-b.replies:
		switch {
		case a.err != nil:
			b.Close() // waits, so all that it said is there
			said := strings.TrimSpace(b.stderr.String())
			if i := strings.LastIndexByte(said, '\n'); i >= 0 {
				said = said[i+1:]
			}
			return 0, &FailedError{strings.TrimSuffix("its process ended: "+said, ": ")}
		case a.Error != "":
			b.Close()
			return 0, &FailedError{a.Error}
		}
		return a.US, nil
	}
}

// start begins a process.
func (b *Bench) start() (err error) {
	cmd := b.Command()
	toolchain.OwnProcessGroup(cmd) // an interrupted kernel would count as one that fails
	b.stderr = &bytes.Buffer{}
	cmd.Stderr = b.stderr
	if b.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	replies := make(chan answered, 1)
	go func() {
		for d := json.NewDecoder(out); ; {
			var a answered
			a.err = d.Decode(&a.reply)
			replies <- a
			if a.err != nil {
				return
			}
		}
	}()
	b.cmd, b.replies = cmd, replies
	return nil
}

// Close ends the process, if there is one.
func (b *Bench) Close() {
	if b.cmd == nil {
		return
	}
	b.in.Close()
	_ = b.cmd.Process.Kill()
	var exit *exec.ExitError
	if err := b.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(b.stderr, err)
	}
	b.cmd = nil
}
