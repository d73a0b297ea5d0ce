//go:build gorgonia && cgo && linux

package gorgonia

import (
	"context"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/spark-compile/spark-compile/hal"
)

// sequence is a launch list issued on each run, since cu has no graphs.
type sequence struct {
	device    *Device
	stream    cu.Stream
	ops       []hal.Op
	functions []cu.Function
}

// Capture checks the launch list and looks up its kernels. A kernel with more than 48 KB of shared memory is an error.
// Dependent launches become plain ones, which is slower but equally correct.
func (d *Device) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &sequence{device: d, ops: ops, functions: make([]cu.Function, len(ops))}
	err := d.do(func() (err error) {
		for i, op := range ops {
			if op.Kernel == "" {
				continue
			}
			if op.Shared > sharedLimit {
				return fmt.Errorf("kernel %s: %d bytes of shared memory, more than %d, are %w", op.Kernel, op.Shared, sharedLimit, ErrUnsupported)
			}
			m, ok := op.Module.(*module)
			if !ok || m.device != d {
				return fmt.Errorf("kernel %s: its module belongs to another device", op.Kernel)
			}
			if s.functions[i], err = m.function(op.Kernel); err != nil {
				return err
			}
		}
		s.stream, err = cu.MakeStream(cu.DefaultStream)
		return failure("cuStreamCreate", err)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run issues every op on one stream, whose order satisfies every edge, and waits for the last.
func (s *sequence) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.device.do(func() error {
		for i := range s.ops {
			if err := s.issue(&s.ops[i], s.functions[i]); err != nil {
				return fmt.Errorf("op %d (%s): %w", i, s.ops[i].Kernel, err)
			}
		}
		return failure("cuStreamSynchronize", s.stream.Synchronize())
	})
}

func (s *sequence) issue(op *hal.Op, f cu.Function) error {
	if op.Kernel == "" {
		if op.Bytes == 0 {
			return nil
		}
		dst, src := cu.DevicePtr(op.Dst.Addr())+cu.DevicePtr(op.DstOffset), cu.DevicePtr(op.Src.Addr())+cu.DevicePtr(op.SrcOffset)
		return failure("cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(dst, src, int64(op.Bytes), s.stream))
	}
	params := make([]unsafe.Pointer, len(op.Params))
	for i := range op.Params {
		params[i] = unsafe.Pointer(&op.Params[i])
	}
	g, b := op.Grid, op.Block
	return failure("cuLaunchKernel", f.Launch(g[0], g[1], g[2], b[0], b[1], b[2], op.Shared, s.stream, params))
}

// Wait returns at once: Run waits for the end, whatever becomes of its context.
func (s *sequence) Wait(context.Context) error { return nil }

// Close frees the stream.
func (s *sequence) Close() error {
	return s.device.do(func() error { return failure("cuStreamDestroy", s.stream.Destroy()) })
}
