package collectives

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/dlopen"
	"github.com/spark-compile/spark-compile/runtime"
)

// mpi is a group over a library of MPI (MPI standard 3.1), which is opened at run time. All of its calls are made on one thread of the operating system.
// A rank that dies is mpirun's to notice: it ends the job.
type mpi struct {
	place
	library *mpiLibrary
	calls   chan func()
	ended   bool

	mu     sync.Mutex
	failed error
}

// mpiLibrary has the functions that are used, and the handles, which are addresses in Open MPI and numbers in MPICH.
type mpiLibrary struct {
	name         string
	world, bytes uintptr
	entries      map[string]uintptr
}

var mpiFunctions = strings.Fields("MPI_Init_thread MPI_Initialized MPI_Comm_rank MPI_Comm_size MPI_Get_library_version MPI_Bcast MPI_Gatherv MPI_Gather MPI_Abort MPI_Finalize")

// Handles of MPICH's ABI (mpi.h of MPICH 3 and 4).
const (
	mpichWorld = 0x44000000
	mpichByte  = 0x4c00010d
)

// mpiPaths are where the library may be, the likeliest first.
func mpiPaths(getenv func(string) string) (paths []string) {
	if path := getenv(MPIVariable); path != "" {
		return []string{path}
	}
	names := []string{"libmpi.so.40", "libmpi.so.12"}
	if mpirun, err := exec.LookPath("mpirun"); err == nil {
		if real, err := filepath.EvalSymlinks(mpirun); err == nil {
			mpirun = real
		}
		for _, name := range names {
			paths = append(paths, filepath.Join(filepath.Dir(filepath.Dir(mpirun)), "lib", name))
		}
	}
	// Open MPI tells its processes where it was started from.
	if prefix := getenv("OPAL_PREFIX"); prefix != "" {
		paths = append(paths, filepath.Join(prefix, "lib", names[0]))
	}
	return append(paths, names...)
}

// openMPI opens a library and tells Open MPI from MPICH by its symbols.
func openMPI(paths []string) (*mpiLibrary, error) {
	var errs []error
	for _, path := range paths {
		if filepath.IsAbs(path) {
			if _, err := os.Stat(path); err != nil {
				continue
			}
		}
		handle, err := dlopen.OpenGlobal(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l := &mpiLibrary{name: path, world: mpichWorld, bytes: mpichByte, entries: map[string]uintptr{}}
		for _, name := range mpiFunctions {
			if l.entries[name], err = handle.Symbol(name); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		if world, err := handle.Symbol("ompi_mpi_comm_world"); err == nil {
			l.world = world
			if l.bytes, err = handle.Symbol("ompi_mpi_byte"); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		return l, nil
	}
	return nil, errors.Join(errs...)
}

// call calls a function of the library. What arguments point to stays where it is.
//
//go:uintptrescapes
func (l *mpiLibrary) call(name string, args ...uintptr) error {
	if code := int32(dlopen.Call(l.entries[name], args...)); code != 0 {
		return fmt.Errorf("%s: error %d of %s", name, code, l.name)
	}
	return nil
}

// version is the first line of what the library says of itself: "Open MPI v4.1.4, package: …" or "MPICH Version: 4.0.2".
func (l *mpiLibrary) version() string {
	text, size := make([]byte, 8192), int32(0)
	if l.call("MPI_Get_library_version", uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&size))) != nil {
		return "MPI"
	}
	line, _, _ := bytes.Cut(text[:max(0, min(int(size), len(text)))], []byte("\n"))
	name, _, _ := strings.Cut(string(bytes.Trim(line, "\x00")), ",")
	return strings.Join(strings.Fields(strings.NewReplacer("Version:", "", " v", " ").Replace(name)), " ")
}

// joinMPI initialises the library.
func joinMPI(ctx context.Context, p place, getenv func(string) string) (Group, error) {
	l, err := openMPI(mpiPaths(getenv))
	if errors.Is(err, dlopen.ErrUnsupported) {
		return nil, fmt.Errorf("%s started this process as rank %d of %d: set MASTER_ADDR to the first rank's machine: %w", p.launcher, p.rank, p.size, err)
	}
	if err != nil || l == nil {
		return nil, fmt.Errorf("%s started this process as rank %d of %d, but its library cannot be opened (%w): name libmpi.so in %s, or set MASTER_ADDR to the first rank's machine to do without", p.launcher, p.rank, p.size, errors.Join(err, errNoMPI), MPIVariable)
	}
	m := &mpi{place: p, library: l, calls: make(chan func())}
	go func() {
		goruntime.LockOSThread()
		for f := range m.calls {
			f()
		}
	}()
	err = m.do(ctx, func() error {
		var provided, rank, size int32
		const threadSingle = 0
		if err := l.call("MPI_Init_thread", 0, 0, threadSingle, uintptr(unsafe.Pointer(&provided))); err != nil {
			return err
		}
		if err := errors.Join(l.call("MPI_Comm_rank", l.world, uintptr(unsafe.Pointer(&rank))), l.call("MPI_Comm_size", l.world, uintptr(unsafe.Pointer(&size)))); err != nil {
			return err
		}
		if int(rank) != p.rank || int(size) != p.size {
			return fmt.Errorf("%s says that this is rank %d of %d, %s that it is rank %d of %d: the library is not that of mpirun: name that in %s", l.name, rank, size, p.launcher, p.rank, p.size, MPIVariable)
		}
		l.name = l.version()
		return nil
	})
	return m, err
}

var errNoMPI = errors.New("libmpi.so.40 or libmpi.so.12")

// do makes calls on the library's thread. If the context ends first, the group is unusable and its thread is
// abandoned: what it reads and writes is not the caller's.
func (m *mpi) do(ctx context.Context, f func() error) error {
	m.mu.Lock()
	failed := m.failed
	m.mu.Unlock()
	if failed != nil {
		return failed
	}
	done := make(chan error, 1)
	select {
	case m.calls <- func() { done <- f() }:
	case <-ctx.Done():
		return m.fail(ctx.Err())
	}
	select {
	case err := <-done:
		if err != nil {
			return m.fail(err)
		}
		return nil
	case <-ctx.Done():
		return m.fail(ctx.Err())
	}
}

func (m *mpi) fail(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = fmt.Errorf("%s: %w", m.name(), err)
	}
	return m.failed
}

func (m *mpi) Rank() int      { return m.rank }
func (m *mpi) Size() int      { return m.size }
func (m *mpi) Engine() string { return m.library.name }

// mostOfCall is what one call may move: counts are 32-bit.
const mostOfCall = 1 << 30

// broadcast is that of bytes, on the library's thread.
func (m *mpi) broadcast(x []byte) error {
	for part := range slices.Chunk(x, mostOfCall) {
		if err := m.library.call("MPI_Bcast", uintptr(unsafe.Pointer(&part[0])), uintptr(len(part)), m.library.bytes, 0, m.library.world); err != nil {
			return err
		}
	}
	return nil
}

// gather gives the first rank what all have, which may be of different lengths; the others nil.
func (m *mpi) gather(x []byte) ([][]byte, error) {
	l := m.library
	own := binary.LittleEndian.AppendUint64(nil, uint64(len(x)))
	sizes := make([]byte, 8*m.size)
	if err := l.call("MPI_Gather", uintptr(unsafe.Pointer(&own[0])), 8, l.bytes, uintptr(unsafe.Pointer(&sizes[0])), 8, l.bytes, 0, l.world); err != nil {
		return nil, err
	}
	if err := m.broadcast(sizes); err != nil {
		return nil, err
	}
	counts, offsets, all := make([]int32, m.size), make([]int32, m.size), 0
	for k := range m.size {
		n := binary.LittleEndian.Uint64(sizes[8*k:])
		if n > mostOfCall || all > mostOfCall {
			return nil, fmt.Errorf("rank %d has %d bytes: too many for a call of MPI", k, n)
		}
		counts[k], offsets[k] = int32(n), int32(all)
		all += int(n)
	}
	into := make([]byte, max(all, 1))
	from := append(x, 0) // so that there is an address
	err := l.call("MPI_Gatherv", uintptr(unsafe.Pointer(&from[0])), uintptr(len(x)), l.bytes, uintptr(unsafe.Pointer(&into[0])),
		uintptr(unsafe.Pointer(&counts[0])), uintptr(unsafe.Pointer(&offsets[0])), l.bytes, 0, l.world)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, m.size)
	for k := range out {
		out[k] = into[offsets[k] : offsets[k]+counts[k] : offsets[k]+counts[k]]
	}
	return out, nil
}

// agreed lets the first rank compute something of what all have, and gives it, or its error, to all. Size is that of the result; -1: the first rank tells.
func (m *mpi) agreed(own []byte, compute func(all [][]byte) ([]byte, error)) ([]byte, error) {
	all, err := m.gather(own)
	if err != nil {
		return nil, err
	}
	var out []byte
	head := make([]byte, 16) // length of the result, and of an error
	var wrong error
	if m.rank == 0 {
		if out, wrong = compute(all); wrong != nil {
			out = []byte(wrong.Error())
			binary.LittleEndian.PutUint64(head[8:], 1)
		}
		binary.LittleEndian.PutUint64(head, uint64(len(out)))
	}
	if err := m.broadcast(head); err != nil {
		return nil, err
	}
	if m.rank != 0 {
		out = make([]byte, binary.LittleEndian.Uint64(head))
	}
	if err := m.broadcast(out); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(head[8:]) != 0 {
		return nil, errors.New(string(out))
	}
	return out, nil
}

// Mean implements Group: the first rank computes it, since the order in which MPI_Allreduce adds is the library's.
func (m *mpi) Mean(ctx context.Context, x []float32) error {
	own, out := slices.Clone(runtime.Bytes(x)), []byte(nil)
	err := m.do(ctx, func() (err error) {
		out, err = m.agreed(own, func(all [][]byte) ([]byte, error) {
			vectors, err := vectorsOf(all)
			if err != nil {
				return nil, err
			}
			return runtime.Bytes(mean(vectors)), nil
		})
		return err
	})
	if err == nil {
		copy(runtime.Bytes(x), out)
	}
	return err
}

// Broadcast implements Group.
func (m *mpi) Broadcast(ctx context.Context, x []byte) error {
	own := slices.Clone(x)
	err := m.do(ctx, func() error {
		size := binary.LittleEndian.AppendUint64(nil, uint64(len(own)))
		_, err := m.agreed(size, func(all [][]byte) ([]byte, error) {
			for rank, data := range all {
				if !bytes.Equal(data, size) {
					return nil, fmt.Errorf("rank %d waits for a broadcast of %d bytes, rank 0 has %d", rank, binary.LittleEndian.Uint64(data), len(own))
				}
			}
			return nil, nil
		})
		if err != nil || len(own) == 0 {
			return err
		}
		return m.broadcast(own)
	})
	if err == nil {
		copy(x, own)
	}
	return err
}

// Gather implements Group.
func (m *mpi) Gather(ctx context.Context, x []byte) (all [][]byte, err error) {
	own := slices.Clone(x)
	var gathered [][]byte
	err = m.do(ctx, func() error {
		out, err := m.agreed(own, func(all [][]byte) ([]byte, error) { return joined(all), nil })
		if err == nil {
			gathered, err = parted(out, m.size)
		}
		return err
	})
	if err == nil {
		all = gathered
	}
	return all, err
}

// Abort says why on standard error, which mpirun passes on, and lets MPI end the job.
func (m *mpi) Abort(err error) {
	fmt.Fprintf(os.Stderr, "%s ends the job: %v\n", m.name(), err)
	const code = 1
	_ = m.library.call("MPI_Abort", m.library.world, code)
}

// Close ends the library's use, but not after a failure: it would wait for ranks that are gone.
func (m *mpi) Close() error {
	if m.ended {
		return nil
	}
	m.ended = true
	if m.failed != nil {
		return nil
	}
	err := m.do(context.Background(), func() error { return m.library.call("MPI_Finalize") })
	close(m.calls)
	return err
}
