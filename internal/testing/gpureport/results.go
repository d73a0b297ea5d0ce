package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
)

// results are the files of a run of the bundle's script. Steps that did not pass have left out theirs.
type results struct {
	dir       string
	steps     []stepLine
	machine   *cost.File // nil: not measured
	device    string     // by bench.jsonl
	predicted []report.Prediction
	measured  []measured
	golden    []goldenRun
	peers     []peer
	missing   []string // what is not there, and what that leaves out
}

// stepLine is a line of summary.txt.
type stepLine struct {
	status, name, detail string
}

// measured is a result of spark-bench and the step that made it.
type measured struct {
	step string
	bench.Result
}

// goldenRun is a run on golden inputs, with its outputs' distance from the golden ones.
type goldenRun struct {
	step string
	report.Report
}

// peer is a line of bench/torch_latency.py.
type peer struct {
	Model   string `json:"model"`
	Mode    string `json:"mode"`
	Asked   string `json:"asked"`
	Skipped string `json:"skipped"`
	Error   string `json:"error"`
	Wall    *peerTimes
	Event   *peerTimes
}

type peerTimes struct {
	P50 float64 `json:"p50_ms"`
}

// line is a line of reports.jsonl and bench.jsonl.
type line struct {
	Step   string          `json:"step"`
	Report json.RawMessage `json:"report"`
}

var stepPattern = regexp.MustCompile(`(?m)^(ok|FAIL|LIMIT|LATE|skip) +([^(\n]*?) \((.*)\)$`)

// readResults reads a directory. Files of steps that were not reached may be missing, but not summary.txt.
func readResults(dir string) (*results, error) {
	r := &results{dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, "summary.txt"))
	if err != nil {
		return nil, fmt.Errorf("%w: want the results of .gpu/run.sh", err)
	}
	for _, m := range stepPattern.FindAllStringSubmatch(string(raw), -1) {
		r.steps = append(r.steps, stepLine{m[1], m[2], m[3]})
	}
	if len(r.steps) == 0 {
		return nil, fmt.Errorf("%s: no line of a step", filepath.Join(dir, "summary.txt"))
	}
	path := filepath.Join(dir, "machine.json")
	switch err := r.readMachine(path); {
	case errors.Is(err, fs.ErrNotExist):
		r.missing = append(r.missing, "machine.json (step `machine`): no constant is measured")
	case err != nil:
		return nil, err
	}
	if err := r.readLines("bench.jsonl", "no program is measured", r.addBench); err != nil {
		return nil, err
	}
	return r, r.readLines("reports.jsonl", "neither predictions, golden outputs nor peers", r.addReport)
}

// readMachine reads the machine file, which of a dry run describes no GPU.
func (r *results) readMachine(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f := &cost.File{}
	if err := json.Unmarshal(raw, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if f.DryRun == "" {
		if f, err = cost.ReadFile(path); err != nil {
			return err
		}
	}
	r.machine = f
	return nil
}

// readLines reads a file of a report a line. The last line may be cut off, where the script was killed. A line that is no
// JSON is left out: the others are still worth a report.
func (r *results) readLines(name, without string, add func(l line) error) error {
	path := filepath.Join(r.dir, name)
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		r.missing = append(r.missing, name+": "+without)
		return nil
	}
	lines := strings.SplitAfter(string(raw), "\n")
	for i, text := range lines {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var l line
		err := json.Unmarshal([]byte(text), &l)
		if err != nil && !strings.HasSuffix(text, "\n") {
			r.missing = append(r.missing, name+": the last line is cut off")
			continue
		}
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			r.missing = append(r.missing, fmt.Sprintf("%s:%d: left out: %v", name, i+1, err))
			continue
		}
		if err == nil && l.Step == "" {
			err = errors.New("no step")
		}
		if err == nil {
			err = add(l)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return nil
}

func (r *results) addBench(l line) error {
	var b bench.Report
	if err := json.Unmarshal(l.Report, &b); err != nil {
		return err
	}
	if b.Version != bench.Version {
		return fmt.Errorf("report version %d of step %q, want %d", b.Version, l.Step, bench.Version)
	}
	r.device = b.Device
	for _, x := range b.Results {
		r.measured = append(r.measured, measured{l.Step, x})
	}
	return nil
}

func (r *results) addReport(l line) error {
	switch word, _, _ := strings.Cut(l.Step, " "); word {
	case "predicted":
		return json.Unmarshal(l.Report, &r.predicted)
	case "golden":
		var g goldenRun
		g.step = l.Step
		r.golden = append(r.golden, g)
		return json.Unmarshal(l.Report, &r.golden[len(r.golden)-1].Report)
	case "peer":
		var p peer
		if err := json.Unmarshal(l.Report, &p); err != nil {
			return err
		}
		r.peers = append(r.peers, p)
	}
	return nil
}

// bench is what the step of that first word measured of a program; nil: nothing.
func (r *results) bench(word string, model, precision string) *bench.Result {
	i := slices.IndexFunc(r.measured, func(m measured) bool {
		return strings.HasPrefix(m.step, word+" ") && m.Model == model && m.Precision == precision
	})
	if i < 0 {
		return nil
	}
	return &r.measured[i].Result
}

const unknownDevice = "unknown device"

// deviceName is the short name of the device, if it is a known one.
func (r *results) deviceName() string {
	full, _, _ := strings.Cut(r.device, " (")
	if r.machine != nil {
		full = r.machine.Device
	}
	return cmp.Or(regexp.MustCompile(`H100|H200|GB10|A100`).FindString(full), full, unknownDevice)
}

// noGPU says why the results are not a GPU's. It is empty where they are.
func (r *results) noGPU() string {
	switch {
	case r.machine != nil && r.machine.DryRun != "":
		return r.machine.DryRun
	case strings.HasSuffix(r.device, " (emu)"):
		return "it was made on the CPU device"
	}
	return ""
}

// longestKernels are the kernels that take longest by a profile.
func longestKernels(path string, n int) ([]string, error) {
	var r struct{ Profile *profile.Profile }
	if err := readJSON(path, &r); err != nil {
		return nil, err
	}
	if r.Profile == nil {
		return nil, fmt.Errorf("%s: no profile: want a report of spark-run --profile --json", path)
	}
	var names []string
	for _, k := range r.Profile.Kernels {
		if k.Kernel != "" && k.Kernel != "copy" && len(names) < n {
			names = append(names, k.Kernel)
		}
	}
	if len(names) < n {
		return nil, fmt.Errorf("%s: %s kernels, want %d", path, strconv.Itoa(len(names)), n)
	}
	return names, nil
}

func readJSON(path string, x any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, x); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
