package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// counting counts the graphs that a device makes.
type counting struct {
	*emu.Device
	graphs int
}

func (d *counting) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	d.graphs++
	return d.Device.Capture(ctx, ops)
}

// numbers are four words that begin at a multiple of 16 bytes, or so many bytes after it.
func numbers(after int, x ...int32) []byte {
	b := make([]byte, 64)
	at := (16-int(uintptr(unsafe.Pointer(&b[0]))%16))%16 + after
	return b[at : at+copy(b[at:], runtime.Bytes(x)) : at+16]
}

// TestAnInputIsReadWhereTheHostHasIt: in every turn of a state with a delay, checked, each time in another place, and back in the session's own.
func TestAnInputIsReadWhereTheHostHasIt(t *testing.T) {
	for _, opt := range []emu.Options{{Check: true}, {}, {Discrete: true}} {
		t.Run(fmt.Sprintf("checked %v, discrete %v", opt.Check, opt.Discrete), func(t *testing.T) {
			e, err := emu.Open(opt)
			require.NoError(t, err)
			d := &counting{Device: e}
			p := delayed(2)
			p.Variants[0].Entries[0].Name, p.Variants[0].Entries[1].Name = "run", "echo"
			s := session(t, load(t, p, d), runtime.SessionOptions{})
			var sum [2]int32
			step := func(x int32, entry string) {
				require.NoError(t, s.RunEntry(t.Context(), entry))
				if entry == "run" {
					sum[0], sum[1] = sum[1], sum[0]+x
					require.Equal(t, sum[1], words(s.Output("next_state_h"))[2], "%d", x)
				} else {
					require.Equal(t, x, words(s.Output("y"))[2])
				}
			}
			for x := range int32(12) {
				data := numbers(0, 0, 0, x, 0)
				switch x {
				case 5, 11:
					require.NoError(t, s.Set("x", data), "which ends the loan")
				case 8:
					copy(s.Input("x"), data)
				default:
					here, err := s.BindHostMemory("x", data)
					require.NoError(t, err)
					require.Equal(t, !opt.Discrete, here)
				}
				before := e.Traffic()
				step(x, "run")
				if x%4 == 2 {
					step(x, "echo") // which copies, and is made anew
				}
				if moved := e.Traffic(); !opt.Discrete {
					require.Equal(t, before.ToDevice, moved.ToDevice)
				}
				if x == 4 && !opt.Discrete {
					runtime.View[int32](data)[2] = 100 // bound memory is read in each run
					step(100, "run")
				}
			}
			want := 3 + 1 // a turn of the state each; echo
			if !opt.Discrete {
				want += 3 // echo, when x lies elsewhere
			}
			require.Equal(t, want, d.graphs)

			here, err := s.BindHostMemory("x", numbers(4, 0, 0, 7, 0))
			require.NoError(t, err)
			require.False(t, here, "it does not begin at a multiple of 16 bytes")
			step(7, "run")
			_, err = s.BindHostMemory("x", numbers(0, 0, 0, 9, 0))
			require.NoError(t, err)
			_, err = s.BindHostMemory("x", nil)
			require.NoError(t, err)
			step(map[bool]int32{false: 7, true: 9}[opt.Discrete], "run") // what was copied there last
		})
	}
}

func TestHostMemory_RefusesBinding(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	p := accumulator(true)
	m := load(t, p, d)
	s := session(t, m, runtime.SessionOptions{})
	good := numbers(0, 1, 2, 3, 4)
	for name, want := range map[string]string{"y": `no input "y": the model has x, state_h`, "z": `no input "z"`} {
		_, err := s.BindHostMemory(name, good)
		require.ErrorContains(t, err, want)
	}
	_, err = s.BindHostMemory("x", good[:8])
	require.EqualError(t, err, `input "x" has 16 bytes, got 8`)
	here, err := s.BindHostMemory("state_h", good)
	require.NoError(t, err)
	require.False(t, here, "a state is written by runs: it is set")
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int32{1, 2, 3, 4}, words(s.Output("next_state_h")))

	at, err := s.At("x")
	require.NoError(t, err)
	other := session(t, m, runtime.SessionOptions{Inputs: map[string]runtime.Binding{"x": at}})
	here, err = s.BindHostMemory("x", good)
	require.NoError(t, err)
	require.False(t, here, "another session reads it where it was")
	require.NoError(t, other.Run(t.Context()))
	require.Equal(t, []int32{1, 2, 3, 4}, words(other.Output("next_state_h")))
	_, err = other.BindHostMemory("x", good)
	require.ErrorContains(t, err, `input "x" is bound to input "x" of acc.onnx: no other memory can be`)
}

// TestAFrameMayBeShorterThanItsInput: kernels read as much as there is, and reading on is a violation.
func TestAFrameMayBeShorterThanItsInput(t *testing.T) {
	p := accumulator(true)
	p.Loop = &runtime.Loop{Frames: []string{"x"}}
	s := session(t, load(t, p, nil), runtime.SessionOptions{})
	here, err := s.BindHostMemory("x", numbers(0, 1, 2, 3, 4))
	require.NoError(t, err)
	require.True(t, here)
	require.NoError(t, s.Run(t.Context()))
	here, err = s.BindHostMemory("x", numbers(0, 1, 2, 3))
	require.NoError(t, err)
	require.True(t, here)
	var v *emu.Violation
	require.ErrorAs(t, s.Run(t.Context()), &v, "accumulate reads all four words")
	_, err = s.BindHostMemory("x", make([]byte, 17))
	require.EqualError(t, err, `input "x" has 16 bytes, got 17`)
}

// pages is a device whose session memory the host does not see, but that reads the host's own: its inputs are sent unless host memory is bound.
type pages struct{ *emu.Device }

func (d pages) Map(b []byte) (hal.Memory, error) {
	m, err := d.Alloc(len(b), hal.DeviceMemory)
	if err != nil {
		return nil, err
	}
	return m, m.Write(b, 0)
}

// TestHostMemory_SkipsCopies: what was set before would overwrite it.
func TestHostMemory_SkipsCopies(t *testing.T) {
	e, err := emu.Open(emu.Options{Discrete: true})
	require.NoError(t, err)
	s := session(t, load(t, accumulator(false), pages{e}), runtime.SessionOptions{})
	require.NoError(t, s.Set("x", numbers(0, 9, 9, 9, 9)))
	here, err := s.BindHostMemory("x", numbers(0, 1, 2, 3, 4))
	require.NoError(t, err)
	require.True(t, here)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int32{1, 2, 3, 4}, words(s.Output("next_state_h")))
	_, err = s.BindHostMemory("x", nil)
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int32{9, 9, 9, 9}, words(s.Output("next_state_h")))
}

// failing is a device whose graphs refuse an update, once.
type failing struct {
	*emu.Device
	at int // which one
}

type failingGraph struct {
	hal.Graph
	d *failing
}

func (d *failing) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := d.Device.Capture(ctx, ops)
	return &failingGraph{g, d}, err
}

func (g *failingGraph) Update(i int, op hal.Op) error {
	if g.d.at--; g.d.at == 0 {
		return &hal.Error{Call: "update", Text: "not now"}
	}
	return g.Graph.(hal.Updater).Update(i, op)
}

// TestAHalfMovedGraphIsMovedAgain: of two launches that read an input the first was pointed at the bound memory when the second failed.
func TestAHalfMovedGraphIsMovedAgain(t *testing.T) {
	p := accumulator(false)
	v := &p.Variants[0]
	second := v.Entries[0].Launches[0]
	second.Params, second.Writes = append([]runtime.Param{}, second.Params...), nil
	for i, from := range []int{2, 3} {
		name := []string{"z", "next_z"}[i]
		v.Buffers = append(v.Buffers, runtime.Buffer{Name: name, Kind: runtime.OutputBuffer, Bytes: 16})
		p.Outputs = append(p.Outputs, runtime.Port{Name: name, DType: "i32", Shape: []int{4}})
		second.Params[from].Buffer = 4 + i
		second.Writes = append(second.Writes, runtime.Access{Buffer: 4 + i, Bytes: 16})
	}
	v.Entries[0].Launches = append(v.Entries[0].Launches, second)
	e, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	d := &failing{e, 2}
	s := session(t, load(t, p, d), runtime.SessionOptions{})
	require.NoError(t, s.Set("x", numbers(0, 1, 1, 1, 1)))
	_, err = s.BindHostMemory("x", numbers(0, 7, 7, 7, 7))
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(t.Context()), "moving inputs: update: not now")
	_, err = s.BindHostMemory("x", nil)
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int32{1, 1, 1, 1}, words(s.Output("next_state_h")))
	require.Equal(t, []int32{1, 1, 1, 1}, words(s.Output("next_z")))
}
