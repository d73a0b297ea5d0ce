package compile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/tune"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
)

// timed names the device on which kernels for a target can be timed; "" if there is none.
func timed(ctx context.Context, on string) string {
	d, _, err := detect.Open(ctx, detect.Options{})
	if err != nil {
		return ""
	}
	defer d.Close()
	info := d.Info()
	if t, err := target.For(info.Target); info.Target == "" || err != nil || t.Name != on {
		return ""
	}
	return info.Name
}

// worker is this program as one that times kernels.
func worker() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return &exec.Cmd{Path: self, Args: []string{"spark-compile", "--tune-worker"}}
}

// timeKernels is what that program does.
func timeKernels(ctx context.Context, stdout io.Writer) error {
	d, _, err := detect.Open(ctx, detect.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	return tune.Work(ctx, d, os.Stdin, stdout)
}

const (
	kernelTimeout = 20 * time.Second // for a process to start and a kernel to run some hundred times
	tuneBudget    = 10 * time.Minute
	tuneBeam      = 8
)

// tuner is the search that the flags ask for; nil if none.
func (f *flags) tuner() (*tune.Tuner, error) {
	if !f.Tune {
		if f.TuneBudget != "" || f.Beam != nil {
			return nil, errors.New("--tune-budget and --beam say how to search for schedules: give --tune too")
		}
		return nil, nil
	}
	if len(f.Target) != 1 {
		return nil, fmt.Errorf("--tune searches for one target: give one of the %d with --target, and the others later", len(f.Target))
	}
	if f.Emit == "ir" {
		return nil, errors.New("--tune searches for schedules of kernels, and --emit ir makes none: leave one of them out")
	}
	u := &tune.Tuner{Budget: tuneBudget, Beam: tuneBeam, Families: families.New(nil)}
	if f.Beam != nil {
		if u.Beam = *f.Beam; u.Beam < 1 {
			return nil, fmt.Errorf("--beam %d: want 1 or more", u.Beam)
		}
	}
	if f.TuneBudget == "" {
		return u, nil
	}
	if n, err := strconv.Atoi(f.TuneBudget); err == nil {
		if u.Evaluations, u.Budget = n, 0; n < 1 {
			return nil, fmt.Errorf("--tune-budget %d: want 1 kernel to try or more, or a time like 10m", n)
		}
		return u, nil
	}
	d, err := time.ParseDuration(f.TuneBudget)
	if err != nil || d <= 0 {
		return nil, fmt.Errorf("--tune-budget %s: want a time above 0, like 10m or 90s, or a number of kernels to try", f.TuneBudget)
	}
	u.Budget = d
	return u, nil
}

// tuning reads the tuning files, and lets the search add to them.
func (f *flags) tuning(ctx context.Context, opt *compile.Options, u *tune.Tuner) (err error) {
	if u == nil && len(f.TuneFile) == 0 {
		return nil
	}
	machine := ""
	if opt.Machine != nil {
		machine = opt.Machine.Digest()
	}
	paths := f.TuneFile
	if u != nil && len(paths) > 0 {
		u.Path = paths[0]
		if u.Trace, err = tune.OpenTrace(tune.TracePath(u.Path)); err != nil {
			return err
		}
		if _, err := os.Stat(u.Path); errors.Is(err, fs.ErrNotExist) {
			paths = paths[1:]
		}
	}
	if opt.Tuning, err = tunefile.Load(paths, f.Target, machine); err != nil {
		return err
	}
	for _, c := range opt.Tuning.Conflicts {
		opt.Warn("--tune-file: " + c)
	}
	if u == nil {
		return nil
	}
	t, device := opt.Tuning, timed(ctx, f.Target[0])
	if len(paths) == 0 {
		t.File = tunefile.File{Format: tunefile.Format, Target: f.Target[0], Machine: machine, Device: device}
	}
	if t.Device != device {
		return fmt.Errorf("%s: its times are of device %q (none: predicted), and here they would be of %q: give another file with --tune-file", strings.Join(paths, ", "), t.Device, device)
	}
	if device != "" {
		b := &tune.Bench{Timeout: kernelTimeout, Command: worker}
		u.Measure, u.MeasureProgram, u.Closing = b.Measure, b.MeasureProgram, b.Close
	}
	t.Compiler, t.Paths = cli.Version(), f.TuneFile
	u.Table = t
	opt.Tune = u.Tune
	return nil
}
