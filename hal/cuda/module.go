//go:build linux && (amd64 || arm64)

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

// JIT options (CUjit_option).
const (
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
	jitLogBytes           = 1 << 13
)

// Load loads the cubin, or the PTX if there is none or the driver refuses it for this GPU.
func (d *Device) Load(ctx context.Context, image hal.Image) (hal.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := &module{device: d, name: image.Name, functions: map[string]uintptr{}, shared: map[string]int{}}
	if len(image.Cubin) > 0 {
		err := d.do(func() error {
			return d.driver.call("cuModuleLoadDataEx", d.driver.moduleLoadDataEx, addr(&m.handle), addr(&image.Cubin[0]), 0, 0, 0)
		})
		goruntime.KeepAlive(image.Cubin)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, hal.ErrBadModule) {
			return nil, err
		}
	}
	if image.PTX == "" {
		return nil, fmt.Errorf("%w: %s has no PTX and its cubin is not for %s", hal.ErrBadModule, image.Name, d.info.Target)
	}
	if err := d.do(func() error { return m.loadPTX(image.PTX) }); err != nil {
		return nil, err
	}
	return m, nil
}

// loadPTX has the driver compile; the compiler's log is in the error.
func (m *module) loadPTX(text string) error {
	d := m.device.driver
	source := append([]byte(text), 0)
	log := make([]byte, jitLogBytes)
	options := []int32{jitErrorLogBuffer, jitErrorLogBufferSize}
	values := []uintptr{addr(&log[0]), jitLogBytes}
	err := d.call("cuModuleLoadDataEx", d.moduleLoadDataEx, addr(&m.handle), addr(&source[0]), uintptr(len(options)), addr(&options[0]), addr(&values[0]))
	goruntime.KeepAlive(source)
	goruntime.KeepAlive(options)
	goruntime.KeepAlive(values)
	if err == nil {
		return nil
	}
	if i := strings.IndexByte(string(log), 0); i > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(log[:i])))
	}
	return err
}

// function finds a kernel and opts in to its shared memory.
func (m *module) function(name string, shared int) (uintptr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.device.driver
	fn, ok := m.functions[name]
	if !ok {
		symbol := append([]byte(name), 0)
		if err := d.call("cuModuleGetFunction", d.moduleGetFunction, addr(&fn), m.handle, addr(&symbol[0])); err != nil {
			return 0, fmt.Errorf("kernel %s: %w", name, err)
		}
		goruntime.KeepAlive(symbol)
		m.functions[name] = fn
	}
	const maxDynamicShared, withoutOptIn = 8, 48 << 10 // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	if shared > withoutOptIn && shared > m.shared[name] {
		if err := d.call("cuFuncSetAttribute", d.funcSetAttribute, fn, maxDynamicShared, uintptr(shared)); err != nil {
			return 0, fmt.Errorf("kernel %s: %d bytes of shared memory: %w", name, shared, err)
		}
		m.shared[name] = shared
	}
	return fn, nil
}

// Close unloads the code.
func (m *module) Close() error {
	return m.device.do(func() error {
		return m.device.driver.call("cuModuleUnload", m.device.driver.moduleUnload, m.handle)
	})
}
