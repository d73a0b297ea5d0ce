//go:build cgo && linux

// Command libsparkcompile is the C library, for C programs and for the Python package:
//
//	go build -buildmode=c-shared -o libsparkcompile.so ./cmd/libsparkcompile
//
// sparkcompile.h says what its functions do; package library does it.
//
//	main.go   opening, describing, running, closing
//	step.go   steps of openpilot's loops
//	sim.go    closed loops by the batch
//	tools.go  the commands, and counts for tests
package main

/*
#include <stdlib.h>
#define SPARKCOMPILE_NO_PROTOTYPES
#include "sparkcompile.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"

	"github.com/spark-compile/spark-compile/cmd/internal/library"
)

func main() {}

// open is what a handle stands for.
type open struct {
	model *library.Model

	mu       sync.Mutex
	pins     runtime.Pinner   // memory of the session that C knows
	pinned   map[[2]int]bool  // by side and index
	owned    []unsafe.Pointer // C's memory, which Close frees
	ports    [2]*C.sparkcompile_port
	sizes    [2][]int
	took     time.Duration // by the last run
	arrays   [2][][]byte
	values   *C.double // of the last step
	capacity int
	count    int
	layout   string
	text     *C.char
	layoutID uint64
}

// of is what a handle stands for. A handle that is none, or was deleted, is a closed model.
func of(h C.sparkcompile_handle) (o *open, err error) {
	defer func() {
		if recover() != nil {
			err = library.ErrClosed
		}
	}()
	o, ok := cgo.Handle(h).Value().(*open)
	if !ok {
		return nil, library.ErrClosed
	}
	return o, nil
}

// answer runs a function for C: its error becomes a text and a code.
func answer(text **C.char, run func() error) C.int32_t {
	if text != nil {
		*text = nil
	}
	err := library.Caught(run)
	if err != nil && text != nil {
		*text = C.CString(err.Error())
	}
	return C.int32_t(library.CodeOf(err))
}

// onGoroutine runs a function on a goroutine of its own. The goroutine of a call from C is tied to its thread, so
// each time that it waits for another goroutine, threads switch: on the CPU device at every launch of a large
// model.
func onGoroutine(run func() error) error {
	done := make(chan error, 1)
	go func() { done <- library.Caught(run) }()
	return <-done
}

// long is from what time on a run is worth the two thread switches of onGoroutine.
const long = 500 * time.Microsecond

// run runs a model for C.
func (o *open) run(run func() error) error {
	begin := time.Now()
	var err error
	if o.took >= long {
		err = onGoroutine(run)
	} else {
		err = run()
	}
	o.took = time.Since(begin)
	return err
}

//export sparkcompile_abi
func sparkcompile_abi() C.int32_t { return C.SPARKCOMPILE_ABI }

//export sparkcompile_free
func sparkcompile_free(p unsafe.Pointer) { C.free(p) }

//export sparkcompile_open
func sparkcompile_open(paths **C.char, count C.size_t, options *C.sparkcompile_options, handle *C.sparkcompile_handle, text **C.char) C.int32_t {
	return answer(text, func() error {
		if handle == nil {
			return errors.New("handle is NULL: give a place for it")
		}
		*handle = 0
		environment()
		opt := library.Options{Paths: texts(paths, count)}
		if options != nil {
			if options.size < C.sizeof_sparkcompile_options {
				return fmt.Errorf("options.size is %d: want sizeof(sparkcompile_options), %d", options.size, C.sizeof_sparkcompile_options)
			}
			opt.Kind, opt.Check = library.Kind(options.kind), options.check != 0
			opt.Device, opt.Target, opt.Cache = C.GoString(options.device), C.GoString(options.target), C.GoString(options.cache)
			opt.Flags = texts(options.flags, options.flag_count)
		}
		opt.Build = build()
		var m *library.Model
		err := onGoroutine(func() (err error) {
			m, err = library.Open(context.Background(), opt)
			return err
		})
		if err != nil {
			return err
		}
		o := &open{model: m, pinned: map[[2]int]bool{}}
		watch(o)
		o.describePorts()
		*handle = C.sparkcompile_handle(cgo.NewHandle(o))
		return nil
	})
}

//export sparkcompile_close
func sparkcompile_close(handle C.sparkcompile_handle, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		err = o.model.Close()
		if errors.Is(err, library.ErrBusy) || errors.Is(err, library.ErrClosed) || !o.model.Closed() {
			return err
		}
		cgo.Handle(handle).Delete()
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, p := range o.owned {
			C.free(p)
		}
		C.free(unsafe.Pointer(o.values))
		C.free(unsafe.Pointer(o.text))
		o.owned, o.values, o.text = nil, nil, nil
		o.pins.Unpin()
		return err
	})
}

// describePorts writes the ports into C's memory.
func (o *open) describePorts() {
	d, err := o.model.Describe()
	if err != nil {
		panic(err) // nobody else has the model yet
	}
	for i, list := range [][]library.Port{d.Inputs, d.Outputs} {
		at := (*C.sparkcompile_port)(o.alloc(len(list) * C.sizeof_sparkcompile_port))
		ports := unsafe.Slice(at, len(list))
		for k, q := range list {
			shape := (*C.int64_t)(o.alloc(len(q.Shape) * C.sizeof_int64_t))
			for j, n := range q.Shape {
				unsafe.Slice(shape, len(q.Shape))[j] = C.int64_t(n)
			}
			ports[k] = C.sparkcompile_port{name: o.text8(q.Name), dtype: o.text8(q.DType), shape: shape, rank: C.size_t(len(q.Shape)), bytes: C.size_t(q.Bytes)}
			if q.State {
				ports[k].state = 1
			}
		}
		o.ports[i], o.arrays[i] = at, make([][]byte, len(list))
	}
	o.sizes[0], o.sizes[1] = o.model.Sizes()
}

func (o *open) alloc(n int) unsafe.Pointer {
	p := C.calloc(1, C.size_t(max(n, 1)))
	o.owned = append(o.owned, p)
	return p
}

func (o *open) text8(s string) *C.char {
	p := C.CString(s)
	o.owned = append(o.owned, unsafe.Pointer(p))
	return p
}

//export sparkcompile_ports
func sparkcompile_ports(handle C.sparkcompile_handle, outputs C.int32_t, ports **C.sparkcompile_port, count *C.size_t, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if ports == nil || count == nil {
			return errors.New("ports or count is NULL: give places for them")
		}
		*ports, *count = o.ports[side(outputs)], C.size_t(len(o.sizes[side(outputs)]))
		return nil
	})
}

func side(outputs C.int32_t) int {
	if outputs != 0 {
		return 1
	}
	return 0
}

//export sparkcompile_describe
func sparkcompile_describe(handle C.sparkcompile_handle, text **C.char, failure **C.char) C.int32_t {
	return answer(failure, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if text == nil {
			return errors.New("json is NULL: give a place for it")
		}
		*text = nil
		d, err := o.model.Describe()
		if err != nil {
			return err
		}
		raw, err := json.Marshal(d)
		if err == nil {
			*text = C.CString(string(raw))
		}
		return err
	})
}

//export sparkcompile_run
func sparkcompile_run(handle C.sparkcompile_handle, inputs, outputs *unsafe.Pointer, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if !o.mu.TryLock() {
			return library.ErrBusy
		}
		defer o.mu.Unlock()
		for i, at := range []*unsafe.Pointer{inputs, outputs} {
			if at == nil && len(o.sizes[i]) > 0 {
				return fmt.Errorf("%s is NULL: give an array with a pointer for each port", []string{"inputs", "outputs"}[i])
			}
			for k, p := range unsafe.Slice(at, len(o.sizes[i])) {
				o.arrays[i][k] = nil
				if p != nil {
					o.arrays[i][k] = unsafe.Slice((*byte)(p), o.sizes[i][k])
				}
			}
		}
		return o.run(func() error { return o.model.Run(context.Background(), o.arrays[0], o.arrays[1]) })
	})
}

//export sparkcompile_memory
func sparkcompile_memory(handle C.sparkcompile_handle, outputs C.int32_t, index C.size_t, data *unsafe.Pointer, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if data == nil {
			return errors.New("data is NULL: give a place for it")
		}
		*data = nil
		x, err := o.model.Memory(outputs != 0, int(index))
		if err != nil || len(x) == 0 {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if key := [2]int{side(outputs), int(index)}; !o.pinned[key] {
			o.pins.Pin(&x[0]) // of the CPU device it is Go's
			o.pinned[key] = true
		}
		*data = unsafe.Pointer(&x[0])
		return nil
	})
}

//export sparkcompile_get_state
func sparkcompile_get_state(handle C.sparkcompile_handle, name *C.char, data unsafe.Pointer, bytes *C.size_t, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if bytes == nil {
			return errors.New("bytes is NULL: give the size of data")
		}
		x, err := o.model.State(C.GoString(name))
		if err != nil {
			return err
		}
		capacity := *bytes
		*bytes = C.size_t(len(x))
		if data == nil {
			return nil
		}
		if capacity != *bytes {
			return fmt.Errorf("state %q has %d bytes, data %d", C.GoString(name), len(x), capacity)
		}
		copy(unsafe.Slice((*byte)(data), len(x)), x)
		return nil
	})
}

// mostBytes is more than any memory of a caller's.
const mostBytes = 1 << 40

//export sparkcompile_set_state
func sparkcompile_set_state(handle C.sparkcompile_handle, name *C.char, data unsafe.Pointer, bytes C.size_t, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		if data == nil {
			return errors.New("data is NULL: give the state's bytes")
		}
		if bytes > mostBytes {
			return fmt.Errorf("a state of %d bytes: bytes is the size of data", bytes)
		}
		return o.model.SetState(C.GoString(name), unsafe.Slice((*byte)(data), bytes))
	})
}

//export sparkcompile_reset
func sparkcompile_reset(handle C.sparkcompile_handle, text **C.char) C.int32_t {
	return answer(text, func() error {
		o, err := of(handle)
		if err != nil {
			return err
		}
		return o.model.Reset()
	})
}

func texts(list **C.char, count C.size_t) (out []string) {
	if list == nil {
		return nil
	}
	for _, p := range unsafe.Slice(list, count) {
		out = append(out, C.GoString(p))
	}
	return out
}
