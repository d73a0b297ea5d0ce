package main

import (
	"bytes"
	"encoding/csv"
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
	rowHeader = "| device | model | precision | predicted warm, µs | cold | for a caller |" +
		" measured warm, µs | cold | for a caller |"
	rowRule = "|---|---|---|--:|--:|--:|--:|--:|--:|"
)

func (r *row) String() string {
	cells := slices.Concat([]string{r.device, r.model, r.precision}, r.predicted[:], r.measured[:])
	return "| " + strings.Join(cells, " | ") + " |"
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

// columns are those of docs/data/gpu-times.csv.
var columns = []string{"device", "model", "precision",
	"predicted warm (µs)", "predicted cold (µs)", "predicted for a caller (µs)",
	"measured warm (µs)", "measured cold (µs)", "measured for a caller (µs)"}

// fillFile puts rows into a CSV file. A row replaces that of the same program on the same device, whose
// measured times stay where there are no new ones. New rows go last.
func fillFile(path string, rows []row) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	table, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err == nil && (len(table) == 0 || !slices.Equal(table[0], columns)) {
		err = fmt.Errorf("want the columns %s", strings.Join(columns, ","))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(filled(table, rows)); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes())
}

// filled returns a table with its header, and with rows in their places.
func filled(table [][]string, rows []row) [][]string {
	for _, r := range rows {
		key := []string{r.device, r.model, r.precision}
		cells := slices.Concat(key, r.predicted[:], r.measured[:])
		i := slices.IndexFunc(table, func(old []string) bool { return slices.Equal(old[:3], key) })
		if i < 0 {
			table = append(table, cells)
			continue
		}
		if r.measured == [3]string{} {
			copy(cells[6:], table[i][6:])
		}
		table[i] = cells
	}
	return table
}
