package sim

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// stateOf is the file of the loops that were unfinished when a report's run was stopped.
func stateOf(report string) string { return report + ".state" }

// loopsOf is how many loops checkpoints have.
func loopsOf(list []scenario.Checkpoint) (n int) {
	for _, c := range list {
		n += c.Loops
	}
	return n
}

// writeJSON writes the report, and its file of unfinished loops, or removes that of an earlier run. The report is
// written even if the loops cannot be: they then start again.
func (f *runFlags) writeJSON(r *report, left []scenario.Checkpoint) (written bool, err error) {
	if atomicfile.IsStdout(f.JSON) {
		err := atomicfile.WriteJSON(f.JSON, r)
		return err == nil, err
	}
	state := stateOf(f.JSON)
	r.State = ""
	if len(left) > 0 {
		var sum string
		if err = writeState(state, left); err == nil {
			sum, err = digestOf(state)
		}
		if err == nil {
			r.State = sum
		}
	}
	if failed := atomicfile.WriteJSON(f.JSON, r); failed != nil {
		return false, errors.Join(err, failed)
	}
	if info, none := os.Lstat(state); len(left) == 0 && none == nil && info.Mode().IsRegular() {
		err = os.Remove(state)
	}
	return true, err
}

// saver writes the report while loops run, with the loops on their way that it is given, if it is time.
func (f *runFlags) saver(s *start) func(left ...scenario.Checkpoint) error {
	last := time.Now()
	return func(left ...scenario.Checkpoint) error {
		r := s.Report
		if f.JSON == "" || atomicfile.IsStdout(f.JSON) || time.Since(last) < cmp.Or(f.every, saveEvery) || len(r.Metrics) == r.total() {
			return nil
		}
		r.Partial = true
		_, err := f.writeJSON(r, s.others(left))
		last = time.Now()
		return err
	}
}

func digestOf(path string) (string, error) {
	raw, err := memory.ReadRegular(path)
	return fmt.Sprintf("%x", sha256.Sum256(raw)), err
}

// Arrays of a file of checkpoints: of each a row of the first loop, the number of loops and steps; metrics; and its
// states.
const (
	stateBatches = "batches"
	stateMetrics = "metrics"
	stateName    = "state."
)

// writeState writes checkpoints as arrays: those of the second one have names that begin with 1/.
func writeState(path string, list []scenario.Checkpoint) error {
	var batches []int64
	arrays := map[string]*npy.Array{}
	for i, c := range list {
		batches = append(batches, int64(c.First), int64(c.Loops), int64(c.Step))
		if c.Metrics != nil {
			var x []float64
			for _, row := range c.Metrics {
				x = append(x, row...)
			}
			arrays[fmt.Sprintf("%d/%s", i, stateMetrics)] = &npy.Array{DType: ir.Float64.String(),
				Shape: []int{len(c.Metrics), len(c.Metrics[0])}, Data: runtime.Bytes(x)}
		}
		for name, data := range c.States {
			arrays[fmt.Sprintf("%d/%s%s", i, stateName, name)] = &npy.Array{DType: ir.Uint8.String(),
				Shape: []int{len(data)}, Data: data}
		}
	}
	arrays[stateBatches] = &npy.Array{DType: ir.Int64.String(), Shape: []int{len(list), 3},
		Data: runtime.Bytes(batches)}
	return npy.WriteZip(path, arrays)
}

// readState reads the checkpoints of a report, which must be those that were written with it.
func readState(report string, r *report) (list []scenario.Checkpoint, err error) {
	path := stateOf(report)
	sum, err := digestOf(path)
	switch {
	case err != nil:
		return nil, err
	case sum != r.State:
		return nil, fmt.Errorf("%s is damaged, or of another report than %s", path, report)
	}
	arrays, err := npy.ReadZip(path)
	if err != nil {
		return nil, err
	}
	wrong := fmt.Errorf("%s: want a file that spark-sim run wrote", path)
	b := arrays[stateBatches]
	if b == nil || b.DType != ir.Int64.String() || len(b.Data)%24 != 0 {
		return nil, wrong
	}
	for x := runtime.View[int64](b.Data); len(x) > 0; x = x[3:] {
		c := scenario.Checkpoint{First: int(x[0]), Loops: int(x[1]), Step: int(x[2])}
		if c.Loops < 1 || c.Loops > r.total() || c.First < len(r.Metrics) || c.First > r.total()-c.Loops || c.Step < 0 {
			return nil, wrong
		}
		list = append(list, c)
	}
	for name, a := range arrays {
		number, rest, _ := strings.Cut(name, "/")
		i, err := strconv.Atoi(number)
		state, ok := strings.CutPrefix(rest, stateName)
		switch {
		case name == stateBatches:
		case err != nil || i < 0 || i >= len(list):
			return nil, wrong
		case ok:
			if list[i].States == nil {
				list[i].States = map[string][]byte{}
			}
			list[i].States[state] = a.Data
		case rest == stateMetrics && a.DType == ir.Float64.String() && len(a.Data) == 8*list[i].Loops*len(r.Columns):
			x := runtime.View[float64](a.Data)
			if slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
				return nil, wrong
			}
			for k := range list[i].Loops {
				list[i].Metrics = append(list[i].Metrics, x[k*len(r.Columns):(k+1)*len(r.Columns)])
			}
		default:
			return nil, wrong
		}
	}
	for _, c := range list {
		if c.States == nil && c.Metrics == nil {
			return nil, wrong
		}
	}
	return list, nil
}
