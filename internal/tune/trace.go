package tune

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// Trace is what a search tried, in its order, as a table for people and for plots. A search that goes on adds to what is there.
type Trace struct {
	path string
	rows [][]string
}

// traced are the columns of a trace. A step is of a kernel by itself (kernel), of a kernel in the launch list
// (swap), of a fused region in it that is split into launches (split), or of the list as a whole (default, best,
// prefetch). Estimates are those of the family's plan. Times are predicted from counts or measured. cold_us is
// with weights that L2 does not have.
var traced = []string{"step", "kernel", "choice", "estimate_us", "us", "cold_us", "failed"}

// TracePath is where the trace of a tuning file lies.
func TracePath(file string) string { return strings.TrimSuffix(file, ".json") + ".trace.csv" }

// OpenTrace reads a trace that is there, or begins one.
func OpenTrace(path string) (*Trace, error) {
	t := &Trace{path: path}
	raw, err := memory.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	if t.rows, err = csv.NewReader(strings.NewReader(string(raw))).ReadAll(); err == nil && (len(t.rows) == 0 || strings.Join(t.rows[0], ",") != strings.Join(traced, ",")) {
		err = fmt.Errorf("want the columns %s", strings.Join(traced, ","))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a trace of --tune: %w; move it away, and a new one is begun", path, err)
	}
	t.rows = t.rows[1:]
	return t, nil
}

// add notes a step. A nil trace notes nothing.
func (t *Trace) add(step, kernel, choice, estimate, us, cold, failed string) {
	if t != nil {
		t.rows = append(t.rows, []string{step, kernel, choice, estimate, us, cold, failed})
	}
}

// write replaces the file, as a whole.
func (t *Trace) write() error {
	if t == nil {
		return nil
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.WriteAll(append([][]string{traced}, t.rows...)); err != nil {
		return err
	}
	return atomicfile.Write(t.path, []byte(text.String()))
}

// micro is a time in µs to the nanosecond; "" if there is none.
func micro(us float64) string {
	if math.IsInf(us, 1) {
		return ""
	}
	return fmt.Sprint(nanoseconds(us))
}
