package calibrate

import (
	"bytes"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestBufferPool_SharesNothing: tensors of all sizes that are made and given back in any order never share a byte while they are in use, and
// nothing is lost: in the end all memory is free in one piece a slab.
func TestBufferPool_SharesNothing(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	r := &BufferPool{}
	type marked struct {
		*ir.Tensor
		by byte
	}
	var used []marked
	most := 0
	for step := range 2000 {
		if len(used) > 0 && rng.Intn(100) < 25+len(used) {
			i := rng.Intn(len(used))
			require.Equal(t, len(used[i].Data), bytes.Count(used[i].Data, []byte{used[i].by}))
			r.Give([]*ir.Tensor{used[i].Tensor})
			used = slices.Delete(used, i, i+1)
			continue
		}
		m := marked{r.Tensor(ir.T(ir.Int8, 1+rng.Intn(1<<(8+rng.Intn(17))))), byte(step)}
		for i := range m.Data {
			m.Data[i] = m.by
		}
		used, most = append(used, m), max(most, len(used))
	}
	require.Greater(t, most, 10)
	for _, m := range used {
		r.Give([]*ir.Tensor{m.Tensor})
	}
	require.Greater(t, len(r.slabs), 1)
	for _, s := range r.slabs {
		require.Equal(t, []span{{0, len(s.data)}}, s.free)
	}
	require.Empty(t, r.taken)
}

// TestBufferPool_ZerosAreZeros, whatever its memory held before.
func TestBufferPool_ZerosAreZeros(t *testing.T) {
	r := &BufferPool{}
	used := r.matrix(512, 1024)
	for i := range used.a {
		used.a[i] = 7
	}
	r.giveMatrices(used, nil, newMatrix(512, 1024))
	zeros := r.zeros(256, 1024)
	require.Same(t, &used.a[0], &zeros.a[0])
	require.Equal(t, make([]float32, 256*1024), zeros.a)
	require.Equal(t, make([]float32, 6), (*BufferPool)(nil).zeros(2, 3).a)
}

// TestBufferPool_IsUsedAgain: memory that is given back is that of the next tensor, until many regions have not wanted it.
func TestBufferPool_IsUsedAgain(t *testing.T) {
	r, large := &BufferPool{}, ir.T(ir.Float32, 1<<20)
	a, b := r.Tensor(large), r.Tensor(large)
	r.Give([]*ir.Tensor{a, a, ir.NewArray(large).Tensor()}) // each once, and only what is the room's
	require.Same(t, &a.Data[0], &r.Tensor(large).Data[0])
	require.NotSame(t, &a.Data[0], &r.Tensor(large).Data[0])
	for range 2 * mostIdle {
		r.next()
	}
	require.Len(t, r.slabs, 1, "it is in use")
	r.Give([]*ir.Tensor{a, b})
	clear(r.taken)
	r.slabs[0].free = []span{{0, len(r.slabs[0].data)}}
	for range mostIdle {
		r.next()
	}
	require.Len(t, r.slabs, 1)
	r.next()
	require.Empty(t, r.slabs)
	require.Len(t, (*BufferPool)(nil).Tensor(large).Data, 4<<20)
	require.Len(t, r.Tensor(ir.T(ir.Float32, 2, 1<<24)).Data, 2<<26, "more than a slab")
}
