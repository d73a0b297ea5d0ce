package gputest

import (
	"context"
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Target is the newest target whose PTX a device accepts: its own, in the architecture-specific variant (sm_121a), or an older
// one. A device that accepts any gets the default.
func Target(info hal.Info) (string, error) {
	t, err := target.For(info.Target)
	if err != nil {
		return "", fmt.Errorf("%s: %w", info.Name, err)
	}
	if have, _, _ := target.Parse(t.Name); info.Target != "" && info.Target != t.Name || have < 90 { // the first architecture that has such
		return t.Name, nil
	}
	return t.Name + "a", nil
}

// Runner runs cases on a device. Their kernels are loaded as one module or, if the device rejects that, one by one, so that
// one instruction does not hide the others.
type Runner struct {
	Device hal.Device
	Target string

	all     hal.Module
	refused bool
}

// Open loads the cases that the runner will be asked for.
func (r *Runner) Open(ctx context.Context, cases []*Case) error {
	m, err := r.Device.Load(ctx, hal.Image{Name: "cases", Target: r.Target, PTX: PTX(r.Target, cases)})
	switch {
	case errors.Is(err, hal.ErrBadModule):
		r.refused = true
		return nil
	case err != nil:
		return err
	}
	r.all = m
	return nil
}

// Close unloads the cases.
func (r *Runner) Close() error {
	if r.all == nil {
		return nil
	}
	return r.all.Close()
}

// Run runs a case and returns its output.
func (r *Runner) Run(ctx context.Context, c *Case) ([]byte, error) { return r.run(ctx, c, c.Inputs) }

func (r *Runner) run(ctx context.Context, c *Case, inputs [][]byte) (out []byte, err error) {
	module := r.all
	if module == nil {
		if module, err = r.Device.Load(ctx, hal.Image{Name: c.Name, Target: r.Target, PTX: PTX(r.Target, []*Case{c})}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, module.Close()) }()
	}
	op := hal.Op{Module: module, Kernel: c.kernel(), Grid: [3]int{c.Blocks, 1, 1}, Block: [3]int{c.Threads, 1, 1}, Shared: c.Shared}
	buffer := func(data []byte) (hal.Memory, error) {
		m, err := r.Device.Alloc(len(data), hal.DeviceMemory)
		if err != nil {
			return nil, err
		}
		op.Params, op.Sizes = append(op.Params, m.Addr()), append(op.Sizes, 8)
		op.Reads = append(op.Reads, hal.Range{Memory: m, Bytes: len(data), Constant: true})
		return m, m.Write(data, 0)
	}
	free := func(m hal.Memory) {
		if m != nil {
			err = errors.Join(err, m.Free())
		}
	}
	for _, in := range inputs {
		m, err := buffer(in)
		defer free(m)
		if err != nil {
			return nil, err
		}
	}
	result, err := buffer(make([]byte, c.Output))
	defer free(result)
	if err != nil {
		return nil, err
	}
	op.Writes = []hal.Range{{Memory: result, Bytes: c.Output}}
	for _, s := range c.Scalars {
		op.Params, op.Sizes = append(op.Params, s.Bits), append(op.Sizes, ptx.Bytes(s.Type))
	}
	g, err := r.Device.Capture(ctx, []hal.Op{op})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := g.Run(ctx); err != nil {
		return nil, err
	}
	out = make([]byte, c.Output)
	return out, result.Read(out, 0)
}

// Reference computes cases on the CPU device, with all checks on.
type Reference struct{ runner Runner }

// NewReference returns a CPU device for a target.
func NewReference(ctx context.Context, target string, cases []*Case) (*Reference, error) {
	d, err := emu.Open(emu.Options{Check: true})
	if err != nil {
		return nil, err
	}
	r := &Reference{Runner{Device: d, Target: target}}
	return r, r.runner.Open(ctx, cases)
}

// Check compares another device's output of a case with the CPU device's.
func (r *Reference) Check(ctx context.Context, c *Case, got []byte) error {
	want, err := r.runner.Run(ctx, c)
	if err != nil {
		return fmt.Errorf("on the CPU device: %w", err)
	}
	var scale []byte
	if c.Rule.Terms > 0 {
		if scale, err = r.runner.run(ctx, c, c.scale); err != nil {
			return fmt.Errorf("scale, on the CPU device: %w", err)
		}
	}
	return c.Rule.compare(got, want, scale)
}
