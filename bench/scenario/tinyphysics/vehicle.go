package tinyphysics

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/runtime"
)

// Drives are rows of drives at 10 Hz: [drives][rows], all of one length above MinRows.
type Drives struct {
	Roll     [][]float64 // lateral acceleration of the road's roll, m/s²
	V        [][]float64 // speed, m/s
	A        [][]float64 // longitudinal acceleration, m/s²
	Target   [][]float64 // lateral acceleration, m/s²
	SteerLog [][]float64 // steer commands; those before row ControlStart are used
	Uniform  [][]float64 // numbers in [0, 1) that tokens are drawn with, those from row 20 on
}

// MinRows is the number of rows that a drive needs for its costs: two from ControlStart on.
const MinRows = ControlStart + 2

// Result is what drives did: [drives][rows], and costs [drives]. Where a network's logits are not finite, the lateral
// acceleration from that row on and the drive's costs are NaN; other drives are not affected.
type Result struct {
	Steer        [][]float64
	Lataccel     [][]float64 // m/s²
	Token        [][]int64   // 0 in the first 20 rows
	LataccelCost []float64
	JerkCost     []float64
	TotalCost    []float64
}

// Vehicle is a program of Compile on a device. One goroutine uses it at a time.
type Vehicle struct {
	session *runtime.Session
	batch   int
}

// Open loads a program on a device.
func Open(ctx context.Context, p *runtime.Program, d hal.Device) (*Vehicle, error) {
	v := &Vehicle{}
	for _, q := range p.Inputs {
		if q.Name == inputUniform && len(q.Shape) == 1 {
			v.batch = q.Shape[0]
		}
	}
	if v.batch == 0 {
		return nil, fmt.Errorf("%s: the program has no input %s: compile the network with tinyphysics.Compile", p.Model,
			inputUniform)
	}
	var err error
	v.session, err = runtime.Open(ctx, p, d, runtime.ModelOptions{})
	return v, err
}

// Close frees the device's memory.
func (v *Vehicle) Close() error { return v.session.Close() }

// Batch is how many drives a step computes at a time.
func (v *Vehicle) Batch() int { return v.batch }

// Rollout runs drives from row 0, a batch at a time. A drive's result depends neither on how many others there are nor
// on its place among them. On the end of ctx it returns the error of ctx.
func (v *Vehicle) Rollout(ctx context.Context, d Drives) (*Result, error) {
	rows, err := d.check()
	if err != nil {
		return nil, err
	}
	n := len(d.Target)
	r := newResult(n, rows)
	for begin := 0; begin < n; begin += v.batch {
		for row := range rows {
			if err := v.step(ctx, &d, r, begin, row); err != nil {
				return nil, fmt.Errorf("drives from %d on, row %d: %w", begin, row, err)
			}
		}
	}
	return r, nil
}

// step computes a row of the drives from begin on. The drives are padded with copies of the last one.
func (v *Vehicle) step(ctx context.Context, d *Drives, r *Result, begin, row int) error {
	runtime.View[int32](v.session.Input(inputRow))[0] = int32(row)
	for _, in := range d.inputs() {
		to := runtime.View[float64](v.session.Input(in.name))
		for i := range to {
			to[i] = in.drives[min(begin+i, len(in.drives)-1)][row]
		}
	}
	if err := v.session.Run(ctx); err != nil {
		return err
	}
	count := min(v.batch, len(r.TotalCost)-begin)
	read := func(name string) []float64 { return runtime.View[float64](v.session.Output(name))[:count] }
	tokens := runtime.View[int64](v.session.Output(outputToken))
	for i, x := range read(outputSteer) {
		r.Steer[begin+i][row] = x
		r.Lataccel[begin+i][row] = read(outputLataccel)[i]
		if row >= window {
			r.Token[begin+i][row] = tokens[i]
		}
	}
	copy(r.LataccelCost[begin:], read(outputLataccelCost))
	copy(r.JerkCost[begin:], read(outputJerkCost))
	copy(r.TotalCost[begin:], read(outputTotalCost))
	return nil
}

// series is an input of the step and its rows of drives.
type series struct {
	name   string
	drives [][]float64
}

func (d *Drives) inputs() []series {
	return []series{{inputRoll, d.Roll}, {inputSpeed, d.V}, {inputAccel, d.A}, {inputTarget, d.Target},
		{inputSteerLog, d.SteerLog}, {inputUniform, d.Uniform}}
}

// check returns the number of rows, or what is wrong with drives: which series, drive and row.
func (d *Drives) check() (rows int, err error) {
	n := len(d.Target)
	if n == 0 {
		return 0, errors.New("no drives: give one or more, each as rows of target and the other series")
	}
	rows = len(d.Target[0])
	if rows < MinRows {
		return 0, fmt.Errorf("drive 0 has %d rows: costs need %d or more (10 rows a second)", rows, MinRows)
	}
	for _, in := range d.inputs() {
		if len(in.drives) != n {
			return 0, fmt.Errorf("%s has %d drives and %s %d: give as many", in.name, len(in.drives), inputTarget, n)
		}
		for i, values := range in.drives {
			if len(values) != rows {
				return 0, fmt.Errorf("%s of drive %d has %d rows and %s of drive 0 %d: give as many", in.name, i, len(values),
					inputTarget, rows)
			}
			for row, x := range values {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return 0, fmt.Errorf("%s of drive %d is %v in row %d: it must be finite", in.name, i, x, row)
				}
				if in.name == inputUniform && (x < 0 || x >= 1) {
					return 0, fmt.Errorf("%s of drive %d is %v in row %d: it must be in [0, 1)", in.name, i, x, row)
				}
			}
		}
	}
	return rows, nil
}

func newResult(n, rows int) *Result {
	return &Result{Steer: matrix[float64](n, rows), Lataccel: matrix[float64](n, rows), Token: matrix[int64](n, rows),
		LataccelCost: make([]float64, n), JerkCost: make([]float64, n), TotalCost: make([]float64, n)}
}

func matrix[T any](n, rows int) [][]T {
	m := make([][]T, n)
	for i := range m {
		m[i] = make([]T, rows)
	}
	return m
}
