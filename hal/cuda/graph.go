package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/spark-compile/spark-compile/hal"
)

// graph is an instantiated CUDA graph and the stream it runs on.
type graph struct {
	device *Device
	stream uintptr
	exec   uintptr
	events [2]uintptr // begin and end of a timed run, made by the first one

	captured uintptr          // what exec was made of, while ops may vary; else 0
	varying  map[int]*varying // by op

	running bool   // a run was begun whose end nobody has seen
	on      *graph // on whose stream it ran last, before a timed run; nil: on its own

	enqueue time.Duration // that the host takes to launch it, as the last timed run has seen
	// Programmatic edges that the launch list wants, and those that the captured graph has; -1 of a driver that
	// cannot say.
	wanted, programmatic int
}

// Programmatic returns how many edges of dependent launch the launch list wants, and how many the captured graph has:
// -1 if the driver is too old to say (CUDA 12.3). Where it has fewer, kernels begin later than they could.
func (g *graph) Programmatic() (wanted, captured int) { return g.wanted, g.programmatic }

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	_           uint32
	stream      uintptr
	attributes  uintptr
	count       uint32
	_           uint32
}

// launchAttribute is CUlaunchAttribute: a 4-byte id, padding to 8, a 64-byte value.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [64]byte
}

const (
	attributeProgrammaticSerialization = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
	attributePriority                  = 8 // CU_LAUNCH_ATTRIBUTE_PRIORITY
	captureThreadLocal                 = 1 // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	streamNonBlocking                  = 1
)

// Capture records the ops as a graph whose edges are those of After.
func (d *Device) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := &graph{device: d}
	err := d.do(func() error {
		if err := d.call("cuStreamCreate", addr(&g.stream), streamNonBlocking); err != nil {
			return err
		}
		functions, err := d.resolve(ops)
		if err != nil {
			return err
		}
		err = g.capture(ops, functions, !d.info.Switches.NoPDL)
		if refusesAttribute(err) && g.wanted > 0 {
			err = g.capture(ops, functions, false)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// resolve finds all kernels before capture begins, since attributes must not be set during it.
func (d *Device) resolve(ops []hal.Op) ([]uintptr, error) {
	out := make([]uintptr, len(ops))
	for i, op := range ops {
		if op.Kernel == "" {
			continue
		}
		m, ok := op.Module.(*module)
		if !ok || m.device != d {
			return nil, fmt.Errorf("kernel %s: its module is of another device", op.Kernel)
		}
		var err error
		if out[i], err = m.function(op.Kernel, op.Shared); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// refusesAttribute reports whether a launch failed as it does where the driver does not know an attribute of it.
func refusesAttribute(err error) bool {
	const invalidValue, notSupported = 1, 801 // CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
	failed := (*hal.Error)(nil)
	return errors.As(err, &failed) && failed.Call == "cuLaunchKernelEx" && (failed.Code == invalidValue || failed.Code == notSupported)
}

// capture records the ops, with dependent launches or without.
func (g *graph) capture(ops []hal.Op, functions []uintptr, dependent bool) error {
	c, err := newCapture(g, ops, dependent)
	if err != nil {
		return err
	}
	if err := g.device.call("cuStreamBeginCapture", g.stream, captureThreadLocal); err != nil {
		return err
	}
	var failed error
	for i := range ops {
		if failed = c.record(i, functions[i]); failed != nil {
			failed = fmt.Errorf("op %d (%s): %w", i, ops[i].Kernel, failed)
			break
		}
	}
	var captured uintptr
	err = g.device.call("cuStreamEndCapture", g.stream, addr(&captured))
	if err = errors.Join(failed, err); err == nil {
		err = c.confirm(captured)
	}
	if err == nil {
		err = g.device.call("cuGraphInstantiate", addr(&g.exec), captured, 0)
	}
	if err == nil { // or the first run would
		err = g.device.call("cuGraphUpload", g.exec, g.stream)
	}
	if err == nil {
		if g.varying = c.varies(functions); len(g.varying) > 0 {
			g.captured = captured
			return nil
		}
	}
	if captured != 0 {
		err = errors.Join(err, g.device.call("cuGraphDestroy", captured))
	}
	return err
}

// launch records one op after the nodes that the stream currently depends on.
func (g *graph) launch(op *hal.Op, fn uintptr, dependent bool) error {
	if op.Kernel == "" {
		return g.device.call("cuMemcpyDtoDAsync", uintptr(op.Dst.Addr())+uintptr(op.DstOffset), uintptr(op.Src.Addr())+uintptr(op.SrcOffset), uintptr(op.Bytes), g.stream)
	}
	cfg := launchConfig{shared: uint32(op.Shared), stream: g.stream}
	for i := range 3 {
		cfg.grid[i], cfg.block[i] = uint32(op.Grid[i]), uint32(op.Block[i])
	}
	p := pointersTo(op.Params)
	attributes := make([]launchAttribute, 0, 2)
	set := func(id uint32, value int32) {
		a := launchAttribute{id: id}
		binary.NativeEndian.PutUint32(a.value[:], uint32(value))
		attributes = append(attributes, a)
	}
	if dependent {
		set(attributeProgrammaticSerialization, 1)
	}
	if op.Priority != 0 {
		set(attributePriority, int32(op.Priority))
	}
	if len(attributes) > 0 {
		cfg.attributes, cfg.count = addr(&attributes[0]), uint32(len(attributes))
	}
	err := g.device.call("cuLaunchKernelEx", addr(&cfg), fn, addr(&p.at[0]), 0)
	goruntime.KeepAlive(p)
	goruntime.KeepAlive(attributes)
	goruntime.KeepAlive(&cfg)
	return err
}

// Run launches the graph and waits for its end, or that of ctx.
func (g *graph) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return g.device.do(func() error {
		if err := g.begin(ctx); err != nil {
			return err
		}
		return g.wait(ctx)
	})
}

// begin launches the graph, after the run before has ended.
func (g *graph) begin(ctx context.Context) error {
	if err := g.Wait(ctx); err != nil {
		return err
	}
	if err := g.device.call("cuGraphLaunch", g.exec, g.stream); err != nil {
		return err
	}
	g.running = true
	return nil
}

// Close frees graph, events and stream.
func (g *graph) Close() error {
	return g.device.do(func() error {
		if err := g.settled(); err != nil {
			return err
		}
		return errors.Join(g.destroy("cuGraphExecDestroy", &g.exec), g.destroy("cuGraphDestroy", &g.captured), g.destroy("cuEventDestroy", &g.events[0]),
			g.destroy("cuEventDestroy", &g.events[1]), g.destroy("cuStreamDestroy", &g.stream))
	})
}

// destroy frees a handle's object, once.
func (g *graph) destroy(call string, handle *uintptr) error {
	h := *handle
	if *handle = 0; h == 0 {
		return nil
	}
	return g.device.call(call, h)
}
