//go:build linux && (amd64 || arm64) && !nodriver

package collectives

import (
	"context"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMPI_AbandonedCallOwnsItsBuffers: where the context ends first, the library goes on, and the caller's numbers are the caller's.
func TestMPI_AbandonedCallOwnsItsBuffers(t *testing.T) {
	memory := func(at uintptr, n int) []byte {
		return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	gather := func(from, n, _, into uintptr) uintptr { copy(memory(into, int(n)), memory(from, int(n))); return 0 }
	library := &mpiLibrary{entries: map[string]uintptr{ // of a rank alone
		"MPI_Gather": purego.NewCallback(gather),
		"MPI_Gatherv": purego.NewCallback(func(from, n, kind, into uintptr) uintptr {
			begun <- struct{}{}
			<-goOn
			return gather(from, n, kind, into)
		}),
		"MPI_Bcast": purego.NewCallback(func(uintptr) uintptr { return 0 }),
	}}
	x := make([]float32, 2)
	for name, call := range map[string]func(m *mpi, ctx context.Context) error{
		"mean": func(m *mpi, ctx context.Context) error { return m.Mean(ctx, x) },
		"gather": func(m *mpi, ctx context.Context) error {
			_, err := m.Gather(ctx, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 8))
			return err
		},
	} {
		m := &mpi{place: place{size: 1}, library: library, calls: make(chan func())}
		go func() {
			for f := range m.calls {
				f()
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		x[0], x[1] = 1, 2
		require.ErrorIs(t, call(m, ctx), context.Canceled, name)
		x[0], x[1] = 3, 4
		goOn <- struct{}{}
		over := make(chan struct{})
		m.calls <- func() { close(over) }
		<-over
		assert.Equal(t, []float32{3, 4}, x, name)
		close(m.calls)
	}
}
