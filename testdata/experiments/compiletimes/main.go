//go:build linux

// Command compiletimes measures what compiling in low precisions takes, and in fp16 to compare: CPU time, time and memory of
// the whole process, one compile after another, with the load of the machine before and after; and what the budget leaves of
// the precision: layers in 16 bits, the least cosine and the predicted time. `make measure-compile` runs it.
//
//	compiletimes [-only TEXT] [-models DIR] COMPILER
//
// DIR holds MODEL.onnx and calibration/MODEL/*.npz.
package main

import (
	"encoding/json"
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

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/report"
)

// compiles are what is measured. A goal is what issue 11 asked for, in seconds of CPU time and MB; 0: none.
var compiles = []struct {
	model, precision string
	forced           bool
	seconds, mb      float64
}{
	{"driving_vision", "fp16", false, 0, 0},
	{"driving_vision", "fp8", true, 25, 1500},
	{"driving_vision", "fp8", false, 60, 1500},
	{"driving_vision", "nvfp4", false, 90, 1500},
	{"dmonitoring_model", "fp16", false, 0, 0},
	{"dmonitoring_model", "fp8", false, 8, 0},
	{"dmonitoring_model", "nvfp4", false, 12, 0},
	{"driving_policy", "fp16", false, 0, 0},
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
	fmt.Printf("%s, load average %s\n\n", console.Count(runtime.NumCPU(), "CPU"), load())
	fmt.Println("model and precision,CPU (s),of which system (s),clock (s),memory (MB),CPU goal (s),memory goal (MB)," + resultHead)
	for _, c := range compiles {
		name := c.model + " " + c.precision
		if c.forced {
			name += " --min-cosine 0"
		}
		if !strings.Contains(name, only) {
			continue
		}
		model := filepath.Join(models, c.model+".onnx")
		if _, err := os.Stat(model); err != nil {
			return fmt.Errorf("%s is missing: the shared models are not part of the repository; name their directory with -models", model)
		}
		args, calibrates := []string{model, "--precision", c.precision, "--quiet"}, precision.Calibrates(c.precision)
		if calibrates {
			args = append(args, "--calibrate", filepath.Join(models, "calibration", c.model))
		}
		if c.forced { // without a budget a report would add to the time: only for it the file is compiled in fp16 too
			args = append(args, "--min-cosine", "0")
		}
		u, err := run(compiler, args, calibrates && !c.forced)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s,%.1f,%.1f,%.1f,%.0f,%s,%s,%s\n", name, (u.user + u.system).Seconds(), u.system.Seconds(), u.clock.Seconds(), u.mb,
			goal(c.seconds), goal(c.mb), u.result)
	}
	fmt.Printf("\nload average %s\n", load())
	return nil
}

// goal is one as a cell, empty if there is none.
func goal(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprint(x)
}

// usage is what a process took.
type usage struct {
	user, system, clock time.Duration
	mb                  float64 // resident at most, in 10^6 bytes
	result              string  // cells of the report
}

func run(compiler string, args []string, reported bool) (*usage, error) {
	dir, err := os.MkdirTemp("", "compiletimes")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "report.json")
	if reported {
		args = append(args, "--report", file)
	}
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
	u := &usage{c.ProcessState.UserTime(), c.ProcessState.SystemTime(), took, float64(s.Maxrss) * 1024 / 1e6, strings.Repeat(",", strings.Count(resultHead, ","))}
	if reported {
		u.result, err = result(file)
	}
	return u, err
}

const resultHead = "layers in 16 bits,layers,least cosine,predicted (µs),cold weights (µs),fp16 predicted (µs),fp16 with cold weights (µs)"

// result is what a report says of a budget. Where fp16 replaced the program, the times are those that it would have had.
func result(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var r report.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", err
	}
	wide := 0
	for _, l := range r.Layers {
		if l.Precision == "fp16" {
			wide++
		}
	}
	half, low := r.Predicted[0], r.Predicted[len(r.Predicted)-1]
	if r.Kept != nil {
		low.US, low.ColdUS = r.Kept.US, r.Kept.ColdUS
	}
	return fmt.Sprintf("%d,%d,%.6f,%.1f,%.1f,%.1f,%.1f", wide, len(r.Layers), r.Verdict.LeastCosine, low.US, low.ColdUS, half.US, half.ColdUS), nil
}

// load is the load average over 1, 5 and 15 minutes.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], ", ")
}
