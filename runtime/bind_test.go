package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

func opened(t *testing.T, opt emu.Options) *emu.Device {
	t.Helper()
	d, err := emu.Open(opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func at(t *testing.T, s *runtime.Session, name string) runtime.Binding {
	t.Helper()
	b, err := s.At(name)
	require.NoError(t, err)
	return b
}

func bound(name string, b runtime.Binding) map[string]runtime.Binding {
	return map[string]runtime.Binding{name: b}
}

// remembering is accumulator(false) whose input x is the row of a history [1,3,4] at an offset in bytes.
func remembering(offset int) *runtime.Program {
	p := accumulator(false)
	v := &p.Variants[0]
	p.Model, p.Inputs[0].Shape, v.Buffers[0].Bytes = "history.onnx", []int{1, 3, 4}, 48
	l := &v.Entries[0].Launches[0]
	l.Params[0].Offset, l.Reads[0].Offset = offset, offset
	return p
}

func TestBind_TakesOutputOrSlice(t *testing.T) {
	p := accumulator(false)
	p.Outputs[0].Slices = []runtime.Slice{{Name: "tail", Start: 2, Stop: 4}}
	s := session(t, load(t, p, nil), runtime.SessionOptions{})
	require.Equal(t, `output "y" of acc.onnx`, at(t, s, "y").String())
	require.Equal(t, `input "x" of acc.onnx`, at(t, s, "x").String())
	tail := at(t, s, "tail")
	require.Equal(t, `output "tail" of acc.onnx`, tail.String())
	require.Equal(t, at(t, s, "y").Offset+8, tail.Offset)
	_, err := s.At("nothing")
	require.EqualError(t, err, `acc.onnx: no output "nothing": it has y, next_state_h, tail`)
}

func TestABindingThatDoesNotFitNamesBothSides(t *testing.T) {
	d, other := opened(t, emu.Options{}), opened(t, emu.Options{})
	p := accumulator(false)
	p.Model = "vision.onnx"
	p.Outputs[0].Slices = []runtime.Slice{{Name: "tail", Start: 1, Stop: 4}}
	vision := session(t, load(t, p, d), runtime.SessionOptions{})
	elsewhere := session(t, load(t, accumulator(false), other), runtime.SessionOptions{})
	floats, long, state := accumulator(false), accumulator(false), accumulator(true)
	floats.Inputs[0].DType, long.Inputs[0].Shape = "f32", []int{2, 2}
	gone := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
	closed := at(t, gone, "y")
	require.NoError(t, gone.Close())
	_, err := gone.At("y")
	require.EqualError(t, err, "session is closed")
	y := at(t, vision, "y")
	for want, c := range map[string]struct {
		p   *runtime.Program
		opt runtime.SessionOptions
	}{
		`acc.onnx: input "x", f32[4], is bound to output "y" of vision.onnx, i32[4]: want the same type and shape`:                                         {floats, runtime.SessionOptions{Inputs: bound("x", y)}},
		`acc.onnx: input "x", i32[2,2], is bound to output "y" of vision.onnx, i32[4]: want the same type and shape`:                                       {long, runtime.SessionOptions{Inputs: bound("x", y)}},
		`acc.onnx: input "x", i32[4], is bound to output "tail" of vision.onnx, i32[1,3]: want the same type and shape`:                                    {accumulator(false), runtime.SessionOptions{Inputs: bound("x", at(t, vision, "tail"))}},
		`acc.onnx: output "y" is bound to output "y" of acc.onnx, which is on another device (cpu; this one is cpu): load both models on one device`:       {accumulator(false), runtime.SessionOptions{Outputs: bound("y", at(t, elsewhere, "y"))}},
		`acc.onnx: input "x" of acc.onnx is bound to acc.onnx, which is closed`:                                                                            {accumulator(false), runtime.SessionOptions{Inputs: bound("x", closed)}},
		`acc.onnx: input "x", f32[4], is fed from output "y" of vision.onnx, i32[4]: want the same type, and the same shape or that of a row`:              {floats, runtime.SessionOptions{Feeds: bound("x", y)}},
		`history.onnx: input "x", i32[1,3,4], is fed from output "tail" of vision.onnx, i32[1,3]: want the same type, and the same shape or that of a row`: {remembering(0), runtime.SessionOptions{Feeds: bound("x", at(t, vision, "tail"))}},
		`acc.onnx: input "x" is both bound and fed`:                                                                             {accumulator(false), runtime.SessionOptions{Feeds: bound("x", y), Inputs: bound("x", y)}},
		`acc.onnx: input "state_h" is a state, which the model itself updates: it cannot be fed`:                                {state, runtime.SessionOptions{Feeds: bound("state_h", y)}},
		`acc.onnx: input "x" is fed from memory of the caller's, whose shape is not known: Feeds takes what Session.At returns`: {accumulator(false), runtime.SessionOptions{Feeds: bound("x", runtime.Binding{Memory: y.Memory})}},
		`acc.onnx: no input "q" to bind: the model has x, state_h`:                                                              {accumulator(false), runtime.SessionOptions{Feeds: bound("q", y)}},
		`acc.onnx: input "x" and output "y" are bound to the same memory, and a run writes it`:                                  {accumulator(false), runtime.SessionOptions{Inputs: bound("x", y), Outputs: bound("y", y)}},
		`acc.onnx: what feeds input "x" and output "y" are bound to the same memory, and a run writes it`:                       {accumulator(false), runtime.SessionOptions{Feeds: bound("x", y), Outputs: bound("y", y)}},
	} {
		m := load(t, c.p, d)
		_, err := m.NewSession(t.Context(), c.opt)
		require.EqualError(t, err, want)
	}
	memory, err := other.Alloc(64, hal.HostVisible)
	require.NoError(t, err)
	_, err = load(t, accumulator(false), d).NewSession(t.Context(), runtime.SessionOptions{Inputs: bound("x", runtime.Binding{Memory: memory})})
	require.ErrorContains(t, err, "memory of another device")
	memory, err = d.Alloc(64, hal.HostVisible)
	require.NoError(t, err)
	_, err = load(t, accumulator(false), d).NewSession(t.Context(), runtime.SessionOptions{Inputs: bound("x", runtime.Binding{Memory: memory, Offset: 8})})
	require.ErrorContains(t, err, `input "x": memory of the caller's is at offset 8 of its memory, and kernels need a multiple of 16 bytes`)
	require.NoError(t, vision.Close(), "no refused session keeps what it asked for")
}

func TestBind_LeavesOwnersMemoryOpen(t *testing.T) {
	d := opened(t, emu.Options{Check: true})
	p := accumulator(false)
	p.Model = "vision.onnx"
	vision, err := runtime.Open(t.Context(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	opt := runtime.SessionOptions{Inputs: bound("x", at(t, vision, "y")), Feeds: bound("state_h", at(t, vision, "next_state_h"))}
	require.Equal(t, hal.Device(d), opt.Device())
	require.Nil(t, runtime.SessionOptions{}.Device())
	policy, err := runtime.OpenBound(t.Context(), accumulator(false), d, runtime.ModelOptions{}, opt)
	require.NoError(t, err)

	err = vision.Close()
	require.ErrorIs(t, err, runtime.ErrInUse)
	require.EqualError(t, err, `vision.onnx: in use by input "x" of acc.onnx and input "state_h" of acc.onnx: close that model first`)
	copy(words(vision.Input("x")), []int32{1, 2, 3, 4})
	require.NoError(t, vision.Run(t.Context()), "it is open")
	require.NoError(t, policy.Run(t.Context()))
	require.Equal(t, []int32{6, 12, 18, 24}, words(policy.Output("y")), "2·(2·x + x)")
	require.Nil(t, policy.Input("x"), "another model fills it")
	require.EqualError(t, policy.Set("x", make([]byte, 16)), `input "x" is bound to output "y" of vision.onnx: it is filled on the device`)

	require.NoError(t, policy.Close())
	require.NoError(t, vision.Close())

	m, err := runtime.NewModel(t.Context(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	s, err := m.NewSession(t.Context(), runtime.SessionOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, m.Close(), runtime.ErrInUse)
	require.NoError(t, s.Run(t.Context()))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.NoError(t, m.Close())
}

// TestAHistoryIsFedOnTheDevice, its last row and its first.
func TestAHistoryIsFedOnTheDevice(t *testing.T) {
	for offset, want := range map[int][]int32{32: {1, 2, 3, 4}, 16: {90, 1, 2, 3}, 0: {80, 90, 1, 2}} {
		for _, device := range []emu.Options{{Check: true}, {}, {Discrete: true}} {
			d := opened(t, device)
			vision := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
			policy := session(t, load(t, remembering(offset), d), runtime.SessionOptions{Feeds: bound("x", at(t, vision, "next_state_h"))})
			require.NoError(t, policy.SetState("x", runtime.Bytes([]int32{70, 0, 0, 0, 80, 0, 0, 0, 90, 0, 0, 0})), "70 is pushed out first")
			for round := range int32(4) {
				require.NoError(t, vision.Set("x", runtime.Bytes([]int32{round + 1, 0, 0, 7})))
				require.NoError(t, vision.Run(t.Context()))
				require.NoError(t, policy.Run(t.Context()))
				require.Equal(t, want[round], words(policy.Output("next_state_h"))[0], "round %d, offset %d", round, offset)
			}
			history, err := policy.State("x")
			require.NoError(t, err)
			require.Equal(t, []int32{2, 0, 0, 7, 3, 0, 0, 7, 4, 0, 0, 7}, words(history))
		}
	}
}

// TestAFedInputOfSeveralLaunches: their edges are those that they had, and the copies come before them.
func TestAFedInputOfSeveralLaunches(t *testing.T) {
	d := opened(t, emu.Options{Check: true})
	vision := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
	sum := session(t, load(t, accumulator(true), d), runtime.SessionOptions{Feeds: bound("x", at(t, vision, "y"))})
	copy(words(vision.Input("x")), []int32{1, 2, 3, 4})
	require.NoError(t, vision.Run(t.Context()))
	for range 3 {
		require.NoError(t, sum.Run(t.Context()))
	}
	require.Equal(t, []int32{6, 12, 18, 24}, words(sum.Output("next_state_h")))
}

// TestNoHostCopyBetweenBoundModels counts what moves on a device with memory of its own: what the host fills and reads, and
// nothing of what the models have in common.
func TestNoHostCopyBetweenBoundModels(t *testing.T) {
	d := opened(t, emu.Options{Discrete: true})
	vision := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
	policy := session(t, load(t, accumulator(false), d), runtime.SessionOptions{Inputs: bound("x", at(t, vision, "y"))})
	memory := session(t, load(t, remembering(32), d), runtime.SessionOptions{Feeds: bound("x", at(t, vision, "y"))})
	copy(words(vision.Input("x")), []int32{1, 2, 3, 4})
	copy(words(policy.Input("state_h")), []int32{10, 10, 10, 10})
	moved := func(s *runtime.Session) emu.Traffic {
		was := d.Traffic()
		require.NoError(t, s.Run(t.Context()))
		now := d.Traffic()
		return emu.Traffic{ToDevice: now.ToDevice - was.ToDevice, ToHost: now.ToHost - was.ToHost, OnDevice: now.OnDevice - was.OnDevice}
	}
	require.Equal(t, emu.Traffic{ToDevice: 32, ToHost: 32}, moved(vision), "two inputs and two outputs of 16 bytes")
	require.Equal(t, emu.Traffic{ToDevice: 16, ToHost: 32}, moved(policy), "x is there already")
	require.Equal(t, emu.Traffic{ToDevice: 16, ToHost: 32, OnDevice: 32 + 32 + 16}, moved(memory), "rows move up, by way of other memory, and a new one comes")
	require.Equal(t, []int32{2*2 + 20, 2*4 + 20, 2*6 + 20, 2*8 + 20}, words(policy.Output("y")))
	out, err := policy.Float64s()
	require.NoError(t, err)
	require.Equal(t, []float64{24, 28, 32, 36}, out["y"])

	// An output that is bound to another session's input comes to the host only when asked for.
	last := session(t, load(t, accumulator(false), d), runtime.SessionOptions{Outputs: bound("y", at(t, vision, "x"))})
	require.Equal(t, emu.Traffic{ToDevice: 32, ToHost: 16}, moved(last))
	require.Nil(t, last.Output("y"))
	out, err = last.Float64s()
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0, 0, 0}, out["y"])
}
