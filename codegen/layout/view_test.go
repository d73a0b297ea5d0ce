package layout

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// shape is the extent of every dimension.
func (v View) shape() []int {
	s := make([]int, len(v.Dims))
	for i, d := range v.Dims {
		s[i] = Size(d)
	}
	return s
}

// at is the element offset of a coordinate.
func (v View) at(coord ...int) int {
	off := v.Offset
	for i, x := range coord {
		off += Offset(v.Dims[i], x)
	}
	return off
}

// offsets lists the element offsets of a view in row-major order of its coordinates.
func offsets(v View) []int {
	shape := v.shape()
	total := 1
	for _, d := range shape {
		total *= d
	}
	out := make([]int, total)
	coord := make([]int, len(shape))
	for i := range out {
		x := i
		for d := len(shape) - 1; d >= 0; d-- {
			coord[d] = x % shape[d]
			x /= shape[d]
		}
		out[i] = v.at(coord...)
	}
	return out
}

func TestReshapeKeepsTheOrder(t *testing.T) {
	for _, c := range []struct {
		from, perm, to []int
		ok             bool
	}{
		{[]int{2, 3, 4}, nil, []int{24}, true},
		{[]int{2, 3, 4}, nil, []int{4, 6}, true},
		{[]int{24}, nil, []int{2, 1, 3, 4}, true},
		{[]int{25, 1152}, nil, []int{25, 3, 6, 64}, true},
		{[]int{2, 3, 4}, []int{0, 2, 1}, []int{8, 3}, true},
		{[]int{2, 3, 4}, []int{0, 2, 1}, []int{2, 12}, true},
		{[]int{6, 4}, []int{1, 0}, []int{8, 3}, true},
		{[]int{6, 4}, []int{1, 0}, []int{3, 8}, false}, // 8 cuts the mode of 6
	} {
		v := Dense(c.from)
		if c.perm != nil {
			v = v.Transpose(c.perm)
		}
		want := offsets(v)
		r, ok := v.Reshape(c.to)
		require.Equal(t, c.ok, ok, "%+v", c)
		if ok {
			require.Equal(t, c.to, r.shape())
			require.Equal(t, want, offsets(r), "%+v", c)
		}
	}
}

func TestUntransposeIsTheInverse(t *testing.T) {
	v := Dense([]int{2, 3, 5})
	perm := []int{2, 0, 1}
	require.Equal(t, v, v.Transpose(perm).Untranspose(perm))
	require.Equal(t, []int{5, 2, 3}, v.Transpose(perm).shape())
}

// TestSliceSelects holds Slice against picking from the list of offsets, on dense views and on views of several modes.
func TestSliceSelects(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	done := 0
	for i := 0; i < 2000; i++ {
		v := Dense([]int{4, 6})
		if i%2 == 1 { // one dimension of two modes
			v = Dense([]int{6, 4}).Transpose([]int{1, 0})
			v, _ = v.Reshape([]int{24})
		}
		shape := v.shape()
		starts, sizes, steps := make([]int, len(shape)), make([]int, len(shape)), make([]int, len(shape))
		for d, n := range shape {
			sizes[d] = 1 + rng.Intn(n)
			steps[d] = 1 + rng.Intn(2)
			slack := n - (sizes[d]-1)*steps[d]
			if slack < 1 {
				sizes[d], steps[d], slack = 1, 1, n
			}
			starts[d] = rng.Intn(slack)
		}
		s, ok := v.Slice(starts, sizes, steps)
		if !ok {
			require.Len(t, shape, 1, "a dense slice is affine")
			continue
		}
		done++
		require.Equal(t, sizes, s.shape())
		coord := make([]int, len(shape))
		for j, off := range offsets(s) {
			x := j
			for d := len(shape) - 1; d >= 0; d-- {
				coord[d] = starts[d] + x%sizes[d]*steps[d]
				x /= sizes[d]
			}
			require.Equal(t, v.at(coord...), off, "%v %v %v", starts, sizes, steps)
		}
	}
	require.Greater(t, done, 1000)
}

func TestBroadcastRepeats(t *testing.T) {
	v, ok := Dense([]int{3, 1}).Broadcast([]int{2, 3, 4})
	require.True(t, ok)
	require.Equal(t, 2, v.at(1, 2, 3))
	_, ok = Dense([]int{3}).Broadcast([]int{4})
	require.False(t, ok)
}

func TestRunIsTheContiguousPart(t *testing.T) {
	v, _ := Dense([]int{25, 3, 64}).Reshape([]int{25, 192})
	require.Equal(t, 192, Run(v.Dims[1]))
	require.Equal(t, 1, Run(v.Transpose([]int{1, 0}).Dims[1]))
	require.Equal(t, 64, Run(Concat(Dense([]int{25, 3, 64}).Dims[0], Dense([]int{25, 3, 64}).Dims[2])))
}
