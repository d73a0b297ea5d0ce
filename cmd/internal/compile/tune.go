package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/tune"
	"github.com/spark-compile/spark-compile/internal/tuning"
)

const (
	tuneBudget = 10 * time.Minute
	tuneBeam   = 8
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
	u := &tune.Tuner{Budget: tuneBudget, Beam: tuneBeam, Families: compile.Families()}
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
func (f *flags) tuning(opt *compile.Options, u *tune.Tuner) (err error) {
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
		if _, err := os.Stat(u.Path); errors.Is(err, fs.ErrNotExist) {
			paths = paths[1:]
		}
	}
	if opt.Tuning, err = tuning.Load(paths, f.Target, machine); err != nil {
		return err
	}
	for _, c := range opt.Tuning.Conflicts {
		opt.Warn("--tune-file: " + c)
	}
	if u == nil {
		return nil
	}
	t := opt.Tuning
	if len(paths) == 0 {
		t.File = tuning.File{Format: tuning.Format, Target: f.Target[0], Machine: machine}
	}
	t.Compiler, t.Paths = cli.Version(), f.TuneFile
	u.Table = t
	opt.Tune = u.Tune
	return nil
}
