package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/bench/machine"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// job is a kernel to be timed, or a program, in words that go to another process.
type job struct {
	Program string `json:"program,omitempty"` // directory of the program; "": a kernel

	Target string  `json:"target"`
	PTX    string  `json:"ptx"`
	Grid   [3]int  `json:"grid"`
	Block  [3]int  `json:"block"`
	Shared int     `json:"shared"`
	Params []param `json:"params"`
}

// param is memory of so many bytes, or a number.
type param struct {
	Bytes    int    `json:"bytes,omitempty"`
	Data     []byte `json:"data,omitempty"` // of small constants, which may be indices; all else is filled with small numbers
	Constant bool   `json:"constant,omitempty"`
	Zero     bool   `json:"zero,omitempty"` // of counters, which kernels leave so
	Number   uint64 `json:"number,omitempty"`
	Size     int    `json:"size,omitempty"` // of a number; 0: it is memory
}

// reply is the time, or why there is none.
type reply struct {
	US    float64 `json:"us,omitempty"`
	Error string  `json:"error,omitempty"`
}

const (
	kernelName = "candidate"
	copies     = 20 // of a launch in a graph
	samples    = 5
	runs       = 21       // of a program
	warmup     = 5        // runs before that
	indexBytes = 64 << 10 // up to which constants are sent as they are
	filling    = 0x2c     // in every byte: 0.07 in f16, 2⁻⁷ in e4m3, 2e-12 in f32
)

// jobOf is a spec as a job.
func jobOf(s *kernel.Spec, t *target.Target) job {
	m := s.Build(t, kernelName)
	j := job{Target: t.Name, PTX: m.String(), Grid: s.Grid, Block: s.Block, Shared: s.Shared}
	for _, o := range s.Operands {
		p := param{Bytes: o.Workspace + o.Counter, Zero: o.Counter > 0}
		switch {
		case o.Number != nil:
			p.Number, p.Size = o.Number.Bits, o.Bytes()
		case o.Const != nil:
			p.Bytes, p.Constant = len(o.Const), true
		case o.Value != nil:
			p.Bytes, p.Constant = o.Value.Type.Bytes(), o.Value.IsConst()
			if p.Constant && p.Bytes <= indexBytes {
				p.Data = o.Value.Const.Dense()
			}
		}
		j.Params = append(j.Params, p)
	}
	return j
}

// Work times the kernels and programs that come as JSON on r, and answers each on w, until r ends. After an error that the device may not survive it ends too.
func Work(ctx context.Context, d hal.Device, r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var j job
		if err := in.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		us, err := j.time(ctx, d)
		answer := reply{US: us}
		if err != nil {
			answer = reply{Error: err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("a kernel failed: %w", err)
		}
	}
}

// run times a program on inputs that are zero, with weights and arena as previous runs left them. It returns the
// median.
func (j *job) run(ctx context.Context, d hal.Device) (us float64, err error) {
	p, err := runtime.Read(os.DirFS(j.Program))
	if err != nil {
		return 0, err
	}
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var took []time.Duration
	for range warmup + runs {
		t, err := s.Replay(ctx, hal.Timing{})
		if err != nil {
			return 0, err
		}
		took = append(took, t)
	}
	took = took[warmup:]
	slices.Sort(took)
	return float64(took[len(took)/2]) / float64(time.Microsecond), nil
}

// time runs the job's kernel or program.
func (j *job) time(ctx context.Context, d hal.Device) (us float64, err error) {
	if j.Program != "" {
		return j.run(ctx, d)
	}
	m, err := d.Load(ctx, hal.Image{Name: kernelName, Target: j.Target, PTX: j.PTX})
	if err != nil {
		return 0, err
	}
	held := []func() error{m.Close}
	defer func() {
		for _, free := range held {
			err = errors.Join(err, free())
		}
	}()
	op := hal.Op{Module: m, Kernel: kernelName, Grid: j.Grid, Block: j.Block, Shared: j.Shared}
	for _, p := range j.Params {
		if p.Size > 0 {
			op.Params, op.Sizes = append(op.Params, p.Number), append(op.Sizes, p.Size)
			continue
		}
		mem, err := d.Alloc(p.Bytes, hal.DeviceMemory)
		if err != nil {
			return 0, err
		}
		held = append(held, mem.Free)
		data := p.Data
		if data == nil && !p.Zero {
			data = bytes.Repeat([]byte{filling}, p.Bytes)
		}
		if err := mem.Write(data, 0); err != nil {
			return 0, err
		}
		at := hal.Range{Memory: mem, Bytes: p.Bytes, Constant: p.Constant}
		op.Reads = append(op.Reads, at)
		if !p.Constant {
			op.Writes = append(op.Writes, at)
		}
		op.Params, op.Sizes = append(op.Params, mem.Addr()), append(op.Sizes, 8)
	}
	return machine.LaunchUS(ctx, d, op, copies, samples)
}
