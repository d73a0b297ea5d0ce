package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// Record is a line of metrics.jsonl: of an update, or of an evaluation after it.
type Record struct {
	Update int     `json:"update"` // that were made
	Epoch  float64 `json:"epoch"`  // that were seen

	Loss    float64            `json:"loss,omitempty"` // mean over the batches of all ranks
	Terms   map[string]float64 `json:"terms,omitempty"`
	Rate    float64            `json:"learning_rate,omitempty"`
	Norm    float64            `json:"gradient_norm,omitempty"` // before it is clipped
	Skipped bool               `json:"skipped,omitempty"`       // the gradient was not finite

	Seconds float64 `json:"seconds,omitempty"`
	Samples float64 `json:"samples_per_second,omitempty"` // of all ranks
	Waited  float64 `json:"waited,omitempty"`             // share of the time in which the device had no data

	Validation *Evaluation `json:"validation,omitempty"`
}

// Evaluation is a model's mean loss over the samples that are kept from training.
type Evaluation struct {
	Loss  float64            `json:"loss"`
	Terms map[string]float64 `json:"terms,omitempty"`
}

// metrics appends records to a file.
type metrics struct{ file *os.File }

// metricsFile in the output directory.
const metricsFile = "metrics.jsonl"

// readMetrics are the records of a directory up to an update. What was written after the last checkpoint is computed again.
func readMetrics(dir string, update int) ([]Record, error) {
	path := filepath.Join(dir, metricsFile)
	data, err := memory.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Record
	for line := range bytes.Lines(data) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			break // the last line was cut where the process was killed
		}
		if r.Update > update {
			break
		}
		out = append(out, r)
	}
	return out, nil
}

// openMetrics begins the file with records, which it replaces.
func openMetrics(dir string, records []Record) (*metrics, error) {
	path := filepath.Join(dir, metricsFile)
	var data []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		data = append(append(data, line...), '\n')
	}
	if err := atomicfile.Write(path, data); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	return &metrics{f}, err
}

func (m *metrics) write(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s: %w", m.file.Name(), err)
	}
	_, err = m.file.Write(append(line, '\n'))
	return err
}

func (m *metrics) close() error { return m.file.Close() }
