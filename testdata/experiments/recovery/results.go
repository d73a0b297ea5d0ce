package recovery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spark-compile/spark-compile/testdata/gen/damage"
)

// Row is what one adapter reached.
type Row struct {
	Damage   damage.Kind
	Adapter  string  // its kind; "": none, the damaged network
	Chosen   string  // what its layers and ranks were chosen by
	Trainer  string  // PEFT, or "": this compiler
	Settings string  // of training
	Layers   int     // adapted
	Numbers  int     // trained
	Share    float64 // of the model's weights that the adapter's file takes
	Strength float64 // of the damage
	Quality

	// Of steps with a narrow base, or in precisions other than fp32.
	Arithmetic
	Constants int     // bytes that the program of the last stage keeps of weights
	Merged    Quality // of the file with the adapter merged into weights rounded as the base was
	Cleared   Quality // of the file with the adapter merged into its own weights
}

// same reports whether two rows are of one run.
func (r *Row) same(o *Row) bool {
	return r.Damage == o.Damage && r.Adapter == o.Adapter && r.Chosen == o.Chosen && r.Trainer == o.Trainer && r.Settings == o.Settings && r.Arithmetic == o.Arithmetic
}

// Results are rows in a file, one JSON value a line, so that a run that was interrupted goes on where it was.
type Results struct {
	path string
	rows []*Row
}

// OpenResults reads the rows that a file has, if there is one.
func OpenResults(path string) (*Results, error) {
	r := &Results{path: path}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		if len(text) == 0 {
			break
		}
		row := &Row{}
		if err := json.Unmarshal(line, row); err != nil {
			return nil, fmt.Errorf("%s:%d: %w: remove the line and its row is made again", path, i+1, err)
		}
		r.rows = append(r.rows, row)
	}
	return r, nil
}

// Row is the row of that name, from the file or made and added to it.
func (r *Results) Row(want Row, make func(*Row) error) (*Row, error) {
	for _, have := range r.rows {
		if have.same(&want) {
			return have, nil
		}
	}
	if err := make(&want); err != nil {
		return nil, err
	}
	text, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(append(text, '\n')); err != nil {
		f.Close()
		return nil, err
	}
	r.rows = append(r.rows, &want)
	return &want, f.Close()
}

// Heading is that of a CSV file of rows.
const Heading = "damage,adapter,trained by,layers chosen by,layers,numbers,share of the file (%),relative L2,variation explained\n"

// Print writes a row of the table.
func (r *Row) Print(w io.Writer) {
	if r.Adapter == "" {
		strength := ""
		if r.Strength > 0 {
			strength = fmt.Sprintf(" of strength %.3f", r.Strength)
		}
		fmt.Fprintf(w, "%s%s,none,,,,,,%.4f,%.3f\n", r.Damage, strength, r.Relative, r.Explained)
		return
	}
	share := ""
	if r.Trainer == "" {
		share = fmt.Sprintf("%.2f", 100*r.Share)
	}
	fmt.Fprintf(w, "%s,%s,%s,%s,%d,%d,%s,%.4f,%.3f\n", r.Damage, r.Adapter, r.Trainer, r.Chosen, r.Layers, r.Numbers, share, r.Relative, r.Explained)
}

// BaseHeading is that of a CSV file of rows by how steps compute.
const BaseHeading = "damage,values,base,weights (bytes),adapter,layers,numbers,step: relative L2,step: variation explained,merged: relative L2,merged: variation explained,merged into own weights: variation explained\n"

// PrintBase writes a row of that table.
func (r *Row) PrintBase(w io.Writer) {
	fmt.Fprintf(w, "%s,%s,%s,", r.Damage, r.Precision, cmp.Or(r.Base, "wide"))
	if r.Adapter == "" {
		fmt.Fprintf(w, ",none,,,%.4f,%.3f,,,\n", r.Relative, r.Explained)
		return
	}
	fmt.Fprintf(w, "%d,%s,%d,%d,%.4f,%.3f,%.4f,%.3f,%.3f\n", r.Constants, r.Adapter, r.Layers, r.Numbers,
		r.Relative, r.Explained, r.Merged.Relative, r.Merged.Explained, r.Cleared.Explained)
}
