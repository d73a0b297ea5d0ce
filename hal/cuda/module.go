package cuda

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/hal"
)

// module is loaded code.
type module struct {
	device *Device
	handle uintptr
	name   string

	mu        sync.Mutex
	functions map[string]uintptr
	shared    map[string]int // dynamic shared memory opted in to
}

// Load loads the cubin, or the PTX if there is none or the driver cannot load it.
func (d *Device) Load(ctx context.Context, image hal.Image) (hal.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := &module{device: d, name: image.Name, functions: map[string]uintptr{}, shared: map[string]int{}}
	if d.info.Switches.NoHints {
		if image.PTX == "" {
			return nil, fmt.Errorf("%s has no PTX, and hints cannot be taken out of a cubin", image.Name)
		}
		image = withoutHints(image)
	}
	if len(image.Cubin) > 0 {
		err := d.do(func() error { return m.loadCubin(image.Cubin) })
		if err == nil {
			return m, nil
		}
		if hopeless(err) {
			return nil, err
		}
		if image.PTX == "" {
			return nil, fmt.Errorf("%s has no PTX, and its cubin cannot be loaded on %s: %w", image.Name, d.info.Target, err)
		}
	}
	if image.PTX == "" {
		return nil, fmt.Errorf("%w: %s has neither PTX nor a cubin", hal.ErrBadModule, image.Name)
	}
	load := m.loadPTX
	if d.cache.dir != "" {
		load = m.loadCached
	}
	if err := d.do(func() error { return load(image.PTX) }); err != nil {
		return nil, err
	}
	return m, nil
}

// Eviction priorities of createpolicy (PTX ISA, createpolicy).
const (
	evictFirst  = "createpolicy.fractional.L2::evict_first"
	evictNormal = "createpolicy.fractional.L2::evict_normal"
)

// withoutHints replaces eviction priorities by the normal one. What has none stays as it is, cubin included.
func withoutHints(image hal.Image) hal.Image {
	if strings.Contains(image.PTX, evictFirst) {
		image.PTX, image.Cubin = strings.ReplaceAll(image.PTX, evictFirst, evictNormal), nil
	}
	return image
}

// hopeless reports whether another form of the code would fail alike.
func hopeless(err error) bool {
	return errors.Is(err, hal.ErrDeviceLost) || errors.Is(err, hal.ErrOutOfMemory)
}

func (m *module) loadCubin(cubin []byte) error {
	err := m.device.call("cuModuleLoadDataEx", addr(&m.handle), addr(&cubin[0]), 0, 0, 0)
	goruntime.KeepAlive(cubin)
	return err
}

// loadPTX has the driver compile; the compiler's log is in the error.
func (m *module) loadPTX(text string) error {
	source := append([]byte(text), 0)
	log := newJITLog()
	err := m.device.call("cuModuleLoadDataEx", addr(&m.handle), addr(&source[0]), uintptr(len(log.options)), addr(&log.options[0]), addr(&log.values[0]))
	goruntime.KeepAlive(source)
	goruntime.KeepAlive(log)
	if err == nil {
		return nil
	}
	return log.explain(err)
}

// Attributes of a kernel (CUfunction_attribute).
const (
	attributeMaxDynamicShared = 8
	attributeSharedCarveout   = 9
)

// function finds a kernel, opts in to its shared memory, and requests the largest carve-out of L1. An SM has to drain
// before a kernel with another carve-out begins, so different carve-outs would end the overlap of neighbours.
func (m *module) function(name string, shared int) (uintptr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn, ok := m.functions[name]
	if !ok {
		symbol := append([]byte(name), 0)
		if err := m.device.call("cuModuleGetFunction", addr(&fn), m.handle, addr(&symbol[0])); err != nil {
			return 0, fmt.Errorf("kernel %s: %w", name, err)
		}
		goruntime.KeepAlive(symbol)
		if !m.device.info.Switches.NoCarveout {
			const all = 100                                                                                  // percent
			if err := m.device.call("cuFuncSetAttribute", fn, attributeSharedCarveout, all); hopeless(err) { // a hint: others are ignored
				return 0, fmt.Errorf("kernel %s: %w", name, err)
			}
		}
		m.functions[name] = fn
	}
	const withoutOptIn = 48 << 10
	if shared > withoutOptIn && shared > m.shared[name] {
		if err := m.device.call("cuFuncSetAttribute", fn, attributeMaxDynamicShared, uintptr(shared)); err != nil {
			return 0, fmt.Errorf("kernel %s: %d bytes of shared memory: %w", name, shared, err)
		}
		m.shared[name] = shared
	}
	return fn, nil
}

// Close unloads the code.
func (m *module) Close() error {
	return m.device.do(func() error {
		return m.device.call("cuModuleUnload", m.handle)
	})
}
