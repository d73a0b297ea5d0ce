package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/report"
)

// row is a program on a device: predicted and measured times of a run with warm and with cold weights, and for a
// caller.
type row struct {
	device, model, precision string
	predicted, measured      [3]string
}

const (
	rowHeader = "| device | model | precision | predicted warm, µs | cold | for a caller |" + measuredHeader + "\n" +
		"|---|---|---|--:|--:|--:|--:|--:|--:|\n"
	measuredHeader = " measured warm, µs | cold | for a caller |"
)

func (r *row) String() string {
	cells := slices.Concat([]string{r.device, r.model, r.precision}, r.predicted[:], r.measured[:])
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// rowsOf are rows of predictions, with what was measured of the same programs.
func rowsOf(device string, all []report.Prediction, measured func(model, precision string) *bench.Result) []row {
	var out []row
	for _, p := range all {
		r := row{device: device, model: strings.TrimSuffix(p.Model, ".onnx"), precision: p.Precision,
			predicted: [3]string{ranged(p.Range), ranged(p.ColdRange), ranged(p.Waited)}}
		if measured != nil {
			r.measured = times(measured(p.Model, p.Precision))
		}
		out = append(out, r)
	}
	return out
}

// times are the medians of a measurement in µs.
func times(b *bench.Result) (out [3]string) {
	if b == nil {
		return out
	}
	if b.LaunchToLaunch != nil {
		out[0] = digits(1e3 * b.LaunchToLaunch.P50)
	}
	if b.Cold != nil {
		out[1] = digits(1e3 * b.Cold.P50)
	}
	out[2] = digits(1e3 * b.P50)
	return out
}

// rows are those of the results.
func (r *results) rows() []row {
	return rowsOf(r.deviceName(), r.predicted, func(model, precision string) *bench.Result {
		return r.bench("bench", model, precision)
	})
}

func ranged(f cost.Figure) string {
	return fmt.Sprintf("%s (%s–%s)", digits(f.Middle), digits(f.Low), digits(f.High))
}

// digits writes three significant digits.
func digits(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// The tables of docs/gpu-results.md.
const (
	rowsBegin   = "<!-- predicted and measured: make gpu-report RESULTS=DIR UPDATE=1 -->\n"
	leversBegin = "<!-- levers: UPDATE=1 go test ./internal/testing/gpureport -run Document -->\n"
	tableEnd    = "<!-- end -->\n"
)

// fillFile puts rows into a document's table. A row replaces that of the same program on the same device, whose
// measured times stay where there are no new ones. New rows go last.
func fillFile(path string, rows []row) error {
	return replaceIn(path, rowsBegin, func(table string) (string, error) { return filled(table, rows) })
}

// replaceIn replaces what is between a marker and the end of its table.
func replaceIn(path, begin string, with func(table string) (string, error)) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	if !ok {
		return fmt.Errorf("%s: no line %q", path, strings.TrimSpace(begin))
	}
	table, after, ok := strings.Cut(rest, tableEnd)
	if !ok {
		return fmt.Errorf("%s: no %q after %q", path, strings.TrimSpace(tableEnd), strings.TrimSpace(begin))
	}
	if table, err = with(table); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, []byte(before+begin+table+tableEnd+after))
}

func filled(table string, rows []row) (string, error) {
	var all []row
	for i, text := range strings.Split(strings.TrimSpace(table), "\n") {
		if i < 2 || text == "" {
			continue // the header
		}
		cells := strings.Split(strings.Trim(text, "|"), "|")
		if len(cells) != 9 {
			return "", fmt.Errorf("%q: want 9 columns", text)
		}
		for k := range cells {
			cells[k] = strings.TrimSpace(cells[k])
		}
		all = append(all, row{cells[0], cells[1], cells[2], [3]string(cells[3:6]), [3]string(cells[6:9])})
	}
	for _, r := range rows {
		i := slices.IndexFunc(all, func(o row) bool {
			return o.device == r.device && o.model == r.model && o.precision == r.precision
		})
		if i < 0 {
			all = append(all, r)
			continue
		}
		if r.measured == [3]string{} {
			r.measured = all[i].measured
		}
		all[i] = r
	}
	var b strings.Builder
	b.WriteString(rowHeader)
	for i := range all {
		b.WriteString(all[i].String())
	}
	return b.String(), nil
}
