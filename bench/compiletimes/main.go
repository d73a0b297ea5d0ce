//go:build linux

// Command compiletimes measures what compiling in low precisions takes: CPU time, time and memory of the whole process, one
// compile after another, with the load of the machine before and after. `make measure-compile` runs it.
//
//	go run ./bench/compiletimes [-only TEXT] [-models DIR] COMPILER
//
// DIR holds MODEL.onnx and calibration/MODEL/*.npz.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// compiles are what is measured. A goal is what issue 11 asked for, in seconds of CPU time and MB; 0: none.
var compiles = []struct {
	model, precision string
	forced           bool
	seconds, mb      float64
}{
	{"driving_vision", "fp8", true, 25, 1500},
	{"driving_vision", "fp8", false, 60, 1500},
	{"driving_vision", "nvfp4", false, 90, 1500},
	{"dmonitoring_model", "fp8", false, 8, 0},
	{"dmonitoring_model", "nvfp4", false, 12, 0},
	{"driving_policy", "fp8", false, 8, 0},
	{"driving_policy", "nvfp4", false, 12, 0},
}

func main() {
	models := flag.String("models", "../shared/models", "directory of the models and their calibration inputs")
	only := flag.String("only", "", "measure only compiles whose name contains this")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := measure(flag.Arg(0), *models, *only); err != nil {
		fmt.Fprintln(os.Stderr, "compiletimes:", err)
		os.Exit(2)
	}
}

func measure(compiler, models, only string) error {
	compiler, err := filepath.Abs(compiler)
	if err != nil {
		return err
	}
	fmt.Printf("%d CPUs, load average %s\n\n", runtime.NumCPU(), load())
	fmt.Println("| | CPU s, of which system | s | MB at most | goal |")
	fmt.Println("|---|---:|---:|---:|---|")
	for _, c := range compiles {
		name := c.model + " " + c.precision
		if c.forced {
			name += ", `--min-cosine 0`"
		}
		if !strings.Contains(name, only) {
			continue
		}
		model := filepath.Join(models, c.model+".onnx")
		if _, err := os.Stat(model); err != nil {
			return fmt.Errorf("%s is missing: the shared models are not part of the repository; name their directory with -models", model)
		}
		args := []string{model, "--precision", c.precision, "--calibrate", filepath.Join(models, "calibration", c.model), "--quiet"}
		if c.forced {
			args = append(args, "--min-cosine", "0")
		}
		u, err := run(compiler, args)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		goal := fmt.Sprintf("%g s", c.seconds)
		if c.mb > 0 {
			goal += fmt.Sprintf(", %g MB", c.mb)
		}
		fmt.Printf("| %s | %.1f, %.1f | %.1f | %.0f | %s |\n", name, (u.user + u.system).Seconds(), u.system.Seconds(), u.clock.Seconds(), u.mb, goal)
	}
	fmt.Printf("\nload average %s\n", load())
	return nil
}

// usage is what a process took.
type usage struct {
	user, system, clock time.Duration
	mb                  float64 // resident at most, in 10^6 bytes
}

func run(compiler string, args []string) (*usage, error) {
	dir, err := os.MkdirTemp("", "compiletimes")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := exec.Command(compiler, append(args, "-o", filepath.Join(dir, "network"))...)
	begin := time.Now()
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	took := time.Since(begin)
	s, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return nil, errors.New("this system does not tell the memory of a process")
	}
	return &usage{c.ProcessState.UserTime(), c.ProcessState.SystemTime(), took, float64(s.Maxrss) * 1024 / 1e6}, nil
}

// load is the load average over 1, 5 and 15 minutes.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], ", ")
}
