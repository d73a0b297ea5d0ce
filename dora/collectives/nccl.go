package collectives

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/dlopen"
	"github.com/spark-compile/spark-compile/runtime"
)

// ncclFunctions are those that are used (NCCL 2.23 and newer: ncclCommInitRankScalable takes the id by its address, ncclCommInitRank by value).
var ncclFunctions = strings.Fields("ncclGetVersion ncclGetUniqueId ncclCommInitRankScalable ncclAllGather ncclCommGetAsyncError ncclCommAbort ncclCommDestroy ncclGetErrorString")

// Numbers of NCCL's header.
const (
	ncclUniqueIDBytes = 128
	ncclFloat32       = 7
	ncclSuccess       = 0
	ncclInProgress    = 7
)

// nccl is a library of NCCL.
type nccl struct {
	path    string
	entries map[string]uintptr
	number  int // 23203 is 2.32.3
}

// openNCCL opens it.
func openNCCL(path string) (*nccl, error) {
	if path == "" {
		path = "libnccl.so.2"
	}
	handle, err := dlopen.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be opened (%w): install NCCL, or name the library in %s", path, err, NCCLVariable)
	}
	n := &nccl{path: path, entries: map[string]uintptr{}}
	for _, name := range ncclFunctions {
		if n.entries[name], err = handle.Symbol(name); err != nil {
			return nil, fmt.Errorf("%s has no %s: NCCL 2.23 or newer is needed", path, name)
		}
	}
	version := int32(0)
	if err := n.call("ncclGetVersion", uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	n.number = int(version)
	return n, nil
}

// call calls a function of the library. What arguments point to stays where it is.
//
//go:uintptrescapes
func (n *nccl) call(name string, args ...uintptr) error {
	return n.failure(name, int32(dlopen.Call(n.entries[name], args...)))
}

// failure is the error of a result.
func (n *nccl) failure(name string, code int32) error {
	if code == ncclSuccess || code == ncclInProgress {
		return nil
	}
	text := "?"
	if at := dlopen.Call(n.entries["ncclGetErrorString"], uintptr(code)); at != 0 {
		text = cString(at)
	}
	return fmt.Errorf("%s: %s (%d): NCCL_DEBUG=WARN says more", name, text, code)
}

// cString is a text of C's.
func cString(at uintptr) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

func (n *nccl) version() string {
	return fmt.Sprintf("NCCL %d.%d.%d", n.number/10000, n.number/100%100, n.number%100)
}

// unique is an id that one rank makes for all.
func (n *nccl) unique() ([]byte, error) {
	id := make([]byte, ncclUniqueIDBytes)
	return id, n.call("ncclGetUniqueId", uintptr(unsafe.Pointer(&id[0])))
}

// onGPU is a group whose means go between GPUs by NCCL; all else goes the way of the group beneath.
type onGPU struct {
	Group
	library  *nccl
	device   GPU
	own, all hal.Memory // of this rank, and of all ranks concatenated

	mu    sync.Mutex
	comm  uintptr   // 0: it was aborted, or is not there yet
	begun time.Time // when a call last took it
}

// telling is how long the reason of a rank that ended may take to arrive.
const telling = time.Second

var errAborted = errors.New("NCCL's communicator was aborted")

// entering is how long a call that has taken the communicator is given to get into the library, where it may be aborted.
const entering = 100 * time.Millisecond

// taken is the communicator, for a call that follows at once.
func (o *onGPU) taken() (uintptr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.comm == 0 {
		return 0, errAborted
	}
	o.begun = time.Now()
	return o.comm, nil
}

// GPU is a device of NVIDIA's, as hal/cuda has them.
type GPU interface {
	hal.Device
	// Do runs f on a thread that has the device's context current.
	Do(f func() error) error
}

// OnDevice lets means go between GPUs by NCCL, where the device is one and there are several ranks; another group is returned as it is. NCCL gathers all ranks'
// vectors on each, which adds them up in their order: the order in which its own sums are made may change with its version and the network, and a
// mean's bits with it. All ranks call it. Close closes the group beneath too.
func OnDevice(ctx context.Context, g Group, d hal.Device, getenv func(string) string) (Group, error) {
	gpu, ok := d.(GPU)
	if !ok || g.Size() == 1 {
		return g, nil
	}
	n, err := openNCCL(getenv(NCCLVariable))
	have := []byte{1}
	if err != nil {
		have[0] = 0
	}
	all, gathered := g.Gather(ctx, have)
	if gathered != nil {
		return nil, gathered
	}
	for _, one := range all {
		if one[0] == 0 { // without it on one rank none uses it
			return g, nil
		}
	}
	var id []byte
	if g.Rank() == 0 {
		if id, err = n.unique(); err != nil {
			return nil, err
		}
	} else {
		id = make([]byte, ncclUniqueIDBytes)
	}
	if err := g.Broadcast(ctx, id); err != nil {
		return nil, err
	}
	o := &onGPU{Group: g, library: n, device: gpu}
	var comm uintptr
	err = o.wait(ctx, func() error {
		return n.call("ncclCommInitRankScalable", uintptr(unsafe.Pointer(&comm)), uintptr(g.Size()), uintptr(g.Rank()), 1, uintptr(unsafe.Pointer(&id[0])), 0)
	})
	if err != nil {
		return nil, fmt.Errorf("rank %d: %w", g.Rank(), err)
	}
	o.comm = comm
	return o, nil
}

// Engine implements Group.
func (o *onGPU) Engine() string { return o.library.version() + " over " + o.Group.Engine() }

// failing is a group that tells of its end.
type failing interface {
	Failed() (<-chan struct{}, func() error)
}

// wait runs calls on the device's thread. Where another rank dies, or the context ends, NCCL would wait for ever: its communicator is aborted.
func (o *onGPU) wait(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- o.device.Do(f) }()
	var failed <-chan struct{}
	why := func() error { return nil }
	if g, ok := o.Group.(failing); ok {
		failed, why = g.Failed()
	}
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		o.abort() // after an error it is of no use
		if failed == nil {
			return err
		}
		select { // the library may know of a rank's end before we know why
		case <-failed:
			return why()
		case <-time.After(telling):
			return err
		}
	case <-failed:
		o.abort()
		return why()
	case <-ctx.Done():
		o.abort()
		return ctx.Err()
	}
}

// abort ends calls that wait in the library, and lets no other begin.
func (o *onGPU) abort() {
	o.mu.Lock()
	comm, begun := o.comm, o.begun
	o.comm = 0
	o.mu.Unlock()
	if comm == 0 {
		return
	}
	time.Sleep(time.Until(begun.Add(entering)))
	_ = o.device.Do(func() error { return o.library.call("ncclCommAbort", comm) })
}

// Mean implements Group.
func (o *onGPU) Mean(ctx context.Context, x []float32) error {
	if _, err := o.taken(); err != nil {
		return err
	}
	bytes := 4 * len(x)
	if o.own == nil || o.own.Size() < bytes {
		if err := o.alloc(bytes); err != nil {
			return err
		}
	}
	if err := o.own.Write(runtime.Bytes(x), 0); err != nil {
		return err
	}
	own, all, got := o.own, o.all, make([]byte, bytes*o.Size())
	err := o.wait(ctx, func() error {
		const stream = 0 // the context's own: what reads the memory waits for it
		comm, err := o.taken()
		if err != nil {
			return err
		}
		if err := o.library.call("ncclAllGather", uintptr(own.Addr()), uintptr(all.Addr()), uintptr(len(x)), ncclFloat32, comm, stream); err != nil {
			return err
		}
		if err := all.Read(got, 0); err != nil {
			return err
		}
		if comm, err = o.taken(); err != nil {
			return err
		}
		result := int32(0)
		if err := o.library.call("ncclCommGetAsyncError", comm, uintptr(unsafe.Pointer(&result))); err != nil {
			return err
		}
		return o.library.failure("ncclAllGather", result)
	})
	if err != nil {
		return err
	}
	vectors := make([][]float32, o.Size())
	for rank := range vectors {
		vectors[rank] = runtime.View[float32](got[rank*bytes : (rank+1)*bytes])
	}
	copy(x, mean(vectors))
	return nil
}

// alloc makes room for vectors.
func (o *onGPU) alloc(bytes int) (err error) {
	if err := o.free(); err != nil {
		return err
	}
	if o.own, err = o.device.Alloc(bytes, hal.DeviceMemory); err != nil {
		return err
	}
	o.all, err = o.device.Alloc(bytes*o.Size(), hal.DeviceMemory)
	return err
}

func (o *onGPU) free() error {
	var errs []error
	for _, m := range []*hal.Memory{&o.own, &o.all} {
		if *m != nil {
			errs = append(errs, (*m).Free())
			*m = nil
		}
	}
	return errors.Join(errs...)
}

// Abort implements Group.
func (o *onGPU) Abort(err error) {
	o.Group.Abort(err)
	o.abort()
}

// Close implements Group.
func (o *onGPU) Close() error {
	var errs []error
	if comm, err := o.taken(); err == nil {
		errs = append(errs, o.device.Do(func() error { return o.library.call("ncclCommDestroy", comm) }))
	}
	return errors.Join(append(errs, o.free(), o.Group.Close())...)
}
