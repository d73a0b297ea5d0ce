package emu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/hal"
)

// Const marks an argument of RunKernel as a constant: read only, also before griddepcontrol.wait.
type Const struct{ Data any }

// Out marks an argument of RunKernel as written only: its bytes count as never written when the kernel begins.
type Out struct{ Data any }

// RunKernel runs one kernel of a PTX text with all checks on, for tests of code generators. args are the parameters in
// order: slices of numbers ([]byte, []float32, []uint16 …), which the kernel may read and write and which hold the
// result afterwards; a slice in Const or Out; or scalars (uint32, int32, float32, uint64). Where the kernel executes
// griddepcontrol.wait, it is launched as a dependent one.
func RunKernel(ptxText, kernel string, grid, block [3]int, shared int, args ...any) error {
	return RunKernelWith(Options{Check: true}, ptxText, kernel, grid, block, shared, args...)
}

// RunKernelWith is RunKernel with options.
func RunKernelWith(opts Options, ptxText, kernel string, grid, block [3]int, shared int, args ...any) error {
	d, err := Open(opts)
	if err != nil {
		return err
	}
	m, err := d.Load(context.Background(), hal.Image{Name: kernel, PTX: ptxText})
	if err != nil {
		return err
	}
	return d.runKernel(m, kernel, grid, block, shared, args...)
}

// runKernel is RunKernel of a loaded module.
func (d *Device) runKernel(m hal.Module, kernel string, grid, block [3]int, shared int, args ...any) error {
	ctx := context.Background()
	op := hal.Op{Module: m, Kernel: kernel, Grid: grid, Block: block, Shared: shared}
	if p := m.(*module).programs[kernel]; p != nil {
		op.Dependent = p.waits
	}
	var after []func() error
	for i, a := range args {
		if bits, size, ok := scalarBits(a); ok {
			op.Params, op.Sizes = append(op.Params, bits), append(op.Sizes, size)
			continue
		}
		constant, out := false, false
		switch w := a.(type) {
		case Const:
			a, constant = w.Data, true
		case Out:
			a, out = w.Data, true
		}
		n := binary.Size(a)
		if n < 0 {
			return fmt.Errorf("emu: argument %d: %T is neither a slice of numbers nor a scalar", i, a)
		}
		kind := hal.DeviceMemory
		if out {
			kind = hal.ScratchMemory
		}
		mem, err := d.Alloc(n, kind)
		if err != nil {
			return err
		}
		raw := mem.Bytes()
		if _, err := binary.Encode(raw, binary.LittleEndian, a); err != nil {
			return fmt.Errorf("emu: argument %d: %w", i, err)
		}
		r := hal.Range{Memory: mem, Bytes: n, Constant: constant}
		if !out {
			op.Reads = append(op.Reads, r)
		}
		if !constant {
			op.Writes = append(op.Writes, r)
			after = append(after, func() error { _, err := binary.Decode(raw, binary.LittleEndian, a); return err })
		}
		op.Params, op.Sizes = append(op.Params, mem.Addr()), append(op.Sizes, 8)
	}
	g, err := d.Capture(ctx, []hal.Op{op})
	if err != nil {
		return err
	}
	if err := g.Run(ctx); err != nil {
		return err
	}
	for _, f := range after {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func scalarBits(a any) (bits uint64, size int, ok bool) {
	switch v := a.(type) {
	case uint32:
		return uint64(v), 4, true
	case int32:
		return uint64(uint32(v)), 4, true
	case float32:
		return uint64(math.Float32bits(v)), 4, true
	case uint64:
		return v, 8, true
	case int64:
		return uint64(v), 8, true
	}
	return 0, 0, false
}
