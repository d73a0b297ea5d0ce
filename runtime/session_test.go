package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// accumulate is next_h = h + x; y = next_h + next_h, over four words.
const accumulate = `.version 8.8
.target sm_80
.address_size 64
.visible .entry accumulate(.param .u64 x, .param .u64 h, .param .u64 y, .param .u64 n)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<10>;
	mov.u32 %r0, %tid.x;
	ld.param.u64 %rd0, [x];
	ld.param.u64 %rd1, [h];
	ld.param.u64 %rd2, [y];
	ld.param.u64 %rd3, [n];
	cvta.to.global.u64 %rd0, %rd0;
	cvta.to.global.u64 %rd1, %rd1;
	cvta.to.global.u64 %rd2, %rd2;
	cvta.to.global.u64 %rd3, %rd3;
	mad.wide.s32 %rd4, %r0, 4, %rd0;
	mad.wide.s32 %rd5, %r0, 4, %rd1;
	mad.wide.s32 %rd6, %r0, 4, %rd2;
	mad.wide.s32 %rd7, %r0, 4, %rd3;
	ld.global.u32 %r1, [%rd4];
	ld.global.u32 %r2, [%rd5];
	add.s32 %r3, %r1, %r2;
	st.global.u32 [%rd7], %r3;
	add.s32 %r4, %r3, %r3;
	st.global.u32 [%rd6], %r4;
	ret;
}
`

// accumulator is a program over accumulate; without state h is a plain input.
func accumulator(state bool) *runtime.Program {
	p := &runtime.Program{Format: runtime.FormatVersion, Model: "acc.onnx", Precision: "file", Weights: []byte{1}}
	v := runtime.Variant{Target: "sm_80", PTX: accumulate, Kernels: []runtime.KernelInfo{{Name: "accumulate", Family: "loop", Launches: 1}}}
	l := runtime.Launch{Kernel: "accumulate", Grid: [3]int{1, 1, 1}, Block: [3]int{4, 1, 1}}
	for i, name := range []string{"x", "state_h", "y", "next_state_h"} {
		port, kind := runtime.Port{Name: name, DType: "i32", Shape: []int{4}}, runtime.InputBuffer
		access := runtime.Access{Buffer: i, Bytes: 16}
		if i < 2 {
			p.Inputs, l.Reads = append(p.Inputs, port), append(l.Reads, access)
		} else {
			kind = runtime.OutputBuffer
			p.Outputs, l.Writes = append(p.Outputs, port), append(l.Writes, access)
		}
		v.Buffers = append(v.Buffers, runtime.Buffer{Name: name, Kind: kind, Bytes: 16})
		l.Params = append(l.Params, runtime.Param{Buffer: i, Bytes: 8})
	}
	launches := []runtime.Launch{l}
	if state {
		p.States = []runtime.State{{Input: "state_h", Output: "next_state_h"}}
		v.Buffers[1].Kind, v.Buffers[3].Kind, v.ArenaBytes = runtime.StateBuffer, runtime.ArenaBuffer, 256
		next, old := runtime.Access{Buffer: 3, Bytes: 16}, runtime.Access{Buffer: 1, Bytes: 16}
		launches = append(launches, runtime.Launch{Copy: &runtime.Copy{Src: next, Dst: old, Bytes: 16},
			Reads: []runtime.Access{next}, Writes: []runtime.Access{old}, After: []int{0}})
	}
	v.Entries = []runtime.Entry{{Name: "run", Launches: launches}}
	p.Variants = []runtime.Variant{v}
	return p
}

func load(t *testing.T, p *runtime.Program, d hal.Device) *runtime.Model {
	t.Helper()
	if d == nil {
		var err error
		d, err = emu.Open(emu.Options{Check: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
	}
	require.NoError(t, p.Validate())
	m, err := runtime.NewModel(t.Context(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func session(t *testing.T, m *runtime.Model, opt runtime.SessionOptions) *runtime.Session {
	t.Helper()
	s, err := m.NewSession(t.Context(), opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func words(b []byte) []int32 { return runtime.View[int32](b) }

func TestStateIsCarriedFromRunToRunAndCanBeSet(t *testing.T) {
	m := load(t, accumulator(true), nil)
	require.Equal(t, 2, m.Variant.Launches(), "the kernel and the copy of the state")
	s := session(t, m, runtime.SessionOptions{})
	copy(words(s.Input("x")), []int32{1, 2, 3, 4})
	for range 3 {
		require.NoError(t, s.Run(t.Context()))
	}
	require.Equal(t, []int32{3, 6, 9, 12}, words(s.Output("next_state_h")))
	require.Equal(t, []int32{6, 12, 18, 24}, words(s.Output("y")))

	require.NoError(t, s.SetState("state_h", runtime.Bytes([]int32{100, 0, 0, 0})))
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, []int32{101, 2, 3, 4}, words(s.Output("next_state_h")))

	held, err := s.State("state_h")
	require.NoError(t, err)
	require.Equal(t, []int32{101, 2, 3, 4}, words(held))

	require.EqualError(t, s.SetState("x", make([]byte, 16)), `no state "x"`)
	require.EqualError(t, s.SetState("state_h", make([]byte, 15)), `state "state_h" has 16 bytes, got 15`)
	require.Nil(t, s.Input("y"))
	require.Nil(t, s.Output("x"))
}

func TestASessionIsFilledAndReadByName(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), accumulator(true), d, runtime.ModelOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Set("x", runtime.Bytes([]int32{1, 2, 3, 4})))
	require.NoError(t, s.Set("state_h", runtime.Bytes([]int32{10, 20, 30, 40})))
	require.NoError(t, s.Run(t.Context()))
	got, err := s.Float64s()
	require.NoError(t, err)
	require.Equal(t, map[string][]float64{"next_state_h": {11, 22, 33, 44}, "y": {22, 44, 66, 88}}, got)

	require.EqualError(t, s.Set("q", nil), `no input "q": the model has x, state_h`)
	require.EqualError(t, s.Set("x", make([]byte, 15)), `input "x" has 16 bytes, got 15`)
	require.EqualError(t, s.Set("state_h", make([]byte, 15)), `state "state_h" has 16 bytes, got 15`)

	require.NoError(t, s.Close())
	require.EqualError(t, s.Set("x", make([]byte, 16)), "session is closed")
	_, err = s.Float64s()
	require.EqualError(t, err, "session is closed")
	require.NoError(t, d.Close())
}

func TestAnOutputFeedsAnotherModelOnTheDevice(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	vision, policy := load(t, accumulator(false), d), load(t, accumulator(false), d)
	first := session(t, vision, runtime.SessionOptions{})
	at, ok := first.Memory(true, "y")
	require.True(t, ok)
	_, ok = first.Memory(false, "y")
	require.False(t, ok)

	// One output in the middle of somebody's memory, too.
	out, err := d.Alloc(64, hal.HostVisible)
	require.NoError(t, err)
	defer out.Free()
	second := session(t, policy, runtime.SessionOptions{Inputs: map[string]runtime.Binding{"x": at},
		Outputs: map[string]runtime.Binding{"y": {Memory: out, Offset: 32}}})
	copy(words(second.Input("state_h")), []int32{10, 20, 30, 40})
	for round := int32(1); round <= 2; round++ {
		copy(words(first.Input("x")), []int32{round, 0, 0, 0})
		require.NoError(t, first.Run(t.Context()))
		require.NoError(t, second.Run(t.Context()))
		want := []int32{2 * (2*round + 10), 40, 60, 80}
		require.Equal(t, want, words(second.Output("y")))
		require.Equal(t, want, words(out.Bytes()[32:48]))
		require.Equal(t, make([]byte, 32), out.Bytes()[:32], "nothing beside the binding is written")
	}
}

func TestWrongBindingsAreRefused(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	m := load(t, accumulator(true), d)
	small, err := d.Alloc(20, hal.DeviceMemory)
	require.NoError(t, err)
	bind := func(name string, b runtime.Binding) map[string]runtime.Binding {
		return map[string]runtime.Binding{name: b}
	}
	for _, c := range []struct {
		want string
		opt  runtime.SessionOptions
	}{
		{`acc.onnx: no input "y" to bind: the model has x, state_h`, runtime.SessionOptions{Inputs: bind("y", runtime.Binding{Memory: small})}},
		{`acc.onnx: no output "x" to bind: the model has y, next_state_h`, runtime.SessionOptions{Outputs: bind("x", runtime.Binding{Memory: small})}},
		{`acc.onnx: input "x" is bound to nil memory`, runtime.SessionOptions{Inputs: bind("x", runtime.Binding{})}},
		{`acc.onnx: input "x": needs 16 bytes at offset 5, but the bound memory has 20`, runtime.SessionOptions{Inputs: bind("x", runtime.Binding{Memory: small, Offset: 5})}},
		{`acc.onnx: input "x": needs 16 bytes at offset -1, but the bound memory has 20`, runtime.SessionOptions{Inputs: bind("x", runtime.Binding{Memory: small, Offset: -1})}},
		{`acc.onnx: input "x": needs 16 bytes at offset 9223372036854775807, but the bound memory has 20`, runtime.SessionOptions{Inputs: bind("x", runtime.Binding{Memory: small, Offset: 1<<63 - 1})}},
		{`acc.onnx: output "next_state_h" is the new value of state "state_h": bind that input instead`, runtime.SessionOptions{Outputs: bind("next_state_h", runtime.Binding{Memory: small})}},
	} {
		_, err := m.NewSession(t.Context(), c.opt)
		require.EqualError(t, err, c.want)
	}
}

func TestSessionsOfOneModelRunSideBySide(t *testing.T) {
	m := load(t, accumulator(true), nil)
	var group sync.WaitGroup
	for i := range int32(4) {
		group.Go(func() {
			s, err := m.NewSession(t.Context(), runtime.SessionOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			copy(words(s.Input("x")), []int32{i, i, i, i})
			for range 20 {
				if err := s.Run(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if got := words(s.Output("next_state_h"))[3]; got != 20*i {
				t.Errorf("session %d: %d", i, got)
			}
		})
	}
	group.Wait()
}

func TestAClosedSessionSaysSo(t *testing.T) {
	s, err := load(t, accumulator(true), nil).NewSession(t.Context(), runtime.SessionOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice does no harm")
	require.EqualError(t, s.Run(t.Context()), "session is closed")
	require.EqualError(t, s.SetState("state_h", make([]byte, 16)), "session is closed")
	_, err = s.Replay(t.Context(), hal.Timing{})
	require.EqualError(t, err, "session is closed")
}

// unmapped is a device that shares its memory with the host until it is freed, as a GPU's driver does.
type unmapped struct{ hal.Device }

type unmappedMemory struct{ hal.Memory }

func (d unmapped) Alloc(n int, k hal.MemoryKind) (hal.Memory, error) {
	m, err := d.Device.Alloc(n, k)
	return unmappedMemory{m}, err
}

func (d unmapped) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	inner := func(m hal.Memory) hal.Memory {
		if u, ok := m.(unmappedMemory); ok {
			return u.Memory
		}
		return m
	}
	for i := range ops {
		ops[i].Dst, ops[i].Src = inner(ops[i].Dst), inner(ops[i].Src)
	}
	return d.Device.Capture(ctx, ops)
}

func (m unmappedMemory) Free() error {
	for i := range m.Bytes() {
		m.Bytes()[i] = 0xdd
	}
	return m.Memory.Free()
}

func TestOutputsCanBeReadAfterClose(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), accumulator(true), unmapped{inner}, runtime.ModelOptions{})
	require.NoError(t, err)
	copy(s.Input("x"), []byte{0, 0, 0x80, 0x3f})
	require.NoError(t, s.Run(t.Context()))
	y := s.Output("y")
	before := slices.Clone(y)
	require.NotEqual(t, make([]byte, len(y)), before)
	require.NoError(t, s.Close())
	require.Equal(t, before, y)
}

func TestACancelledRunReturns(t *testing.T) {
	s := session(t, load(t, accumulator(true), nil), runtime.SessionOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Run(ctx), context.Canceled)
}

// hanging is a device whose runs go on when their context has ended, until they are let go.
type hanging struct {
	hal.Device
	running bool
	end     error // of an abandoned run, for whoever asks for it
}

type hangingGraph struct {
	hal.Graph
	d *hanging
}

func (d *hanging) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := d.Device.Capture(ctx, ops)
	return hangingGraph{g, d}, err
}

func (g hangingGraph) Run(ctx context.Context) error {
	g.d.running = true
	<-ctx.Done()
	return errors.Join(ctx.Err(), hal.ErrBusy)
}

func (g hangingGraph) Wait(ctx context.Context) error {
	if !g.d.running {
		err := g.d.end
		g.d.end = nil
		return err
	}
	<-ctx.Done()
	return errors.Join(ctx.Err(), hal.ErrBusy)
}

// TestSession_KeepsBuffersDuringRun: the host copy of an input is not sent over one that a kernel reads, nor is memory freed.
func TestSession_KeepsBuffersDuringRun(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	f := &faulty{Device: inner}
	d := &hanging{Device: f}
	s, err := runtime.Open(t.Context(), accumulator(true), d, runtime.ModelOptions{})
	require.NoError(t, err)
	open := f.open
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Run(soon), hal.ErrBusy)
	written := f.calls
	require.ErrorIs(t, s.Run(soon), context.DeadlineExceeded)
	require.Equal(t, written, f.calls, "nothing was written")
	value, err := s.State("state_h")
	require.ErrorIs(t, err, hal.ErrBusy)
	require.Nil(t, value)
	_, err = s.Float64s()
	require.ErrorIs(t, err, hal.ErrBusy)
	require.ErrorIs(t, s.SetState("state_h", make([]byte, 16)), hal.ErrBusy)
	require.Equal(t, written, f.calls, "no state was read or written")
	err = s.Close()
	require.ErrorIs(t, err, hal.ErrBusy)
	require.ErrorContains(t, err, "acc.onnx: ")
	require.ErrorContains(t, err, "; close it later")
	require.Equal(t, open, f.open, "nothing was freed")
	_, err = s.BindHostMemory("x", make([]byte, 16))
	require.ErrorIs(t, err, hal.ErrBusy)
	d.running, d.end = false, errFault
	_, err = s.BindHostMemory("x", make([]byte, 16))
	require.ErrorIs(t, err, errFault, "what the run has met is not swallowed")
	_, err = s.BindHostMemory("x", make([]byte, 16))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Zero(t, f.open)
}

// late is a device whose runs, where their context has ended, are made when somebody waits for them.
type late struct{ hal.Device }

type lateGraph struct {
	hal.Graph
	left *bool
}

func (d late) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := d.Device.Capture(ctx, ops)
	return lateGraph{g, new(bool)}, err
}

func (g lateGraph) Run(ctx context.Context) error {
	*g.left = true
	return g.Wait(ctx)
}

func (g lateGraph) Wait(ctx context.Context) error {
	if ctx.Err() != nil && *g.left {
		return errors.Join(ctx.Err(), hal.ErrBusy)
	}
	if !*g.left {
		return nil
	}
	*g.left = false
	return g.Graph.Run(ctx)
}

// TestARunWaitsForThoseThatShareItsMemory: what a run of another session reads, or is still to write, is left alone until that run ends.
func TestARunWaitsForThoseThatShareItsMemory(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	d := late{inner}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	vision := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
	policy := session(t, load(t, accumulator(true), d), runtime.SessionOptions{Inputs: bound("x", at(t, vision, "y"))})
	words(vision.Input("x"))[0] = 1
	require.NoError(t, vision.Run(t.Context()))
	require.ErrorIs(t, policy.Run(gone), hal.ErrBusy)
	require.ErrorIs(t, vision.Wait(gone), hal.ErrBusy)
	require.NoError(t, vision.Wait(t.Context()), "its inputs may be filled")
	words(vision.Input("x"))[0] = 10
	require.ErrorIs(t, policy.Run(gone), hal.ErrBusy)
	require.NoError(t, vision.Run(t.Context()))
	have, err := policy.State("state_h")
	require.NoError(t, err)
	require.Equal(t, []int32{4, 0, 0, 0}, words(have), "both runs of policy have seen the 2 of vision's first one")

	words(vision.Input("x"))[0] = 3
	require.ErrorIs(t, vision.Run(gone), hal.ErrBusy)
	require.NoError(t, policy.Run(t.Context()))
	have, err = policy.State("state_h")
	require.NoError(t, err)
	require.Equal(t, []int32{10, 0, 0, 0}, words(have), "and its third one the 6 of vision's third")
}

// faulty fails its n-th call and counts what is not given back.
type faulty struct {
	hal.Device
	calls, failAt, open int
}

var errFault = errors.New("out of luck")

func (f *faulty) fault() error {
	if f.calls++; f.calls == f.failAt {
		return errFault
	}
	return nil
}

type faultyMemory struct {
	hal.Memory
	f *faulty
}

func (m faultyMemory) Free() error { m.f.open--; return m.Memory.Free() }

func (m faultyMemory) Write(b []byte, offset int) error {
	if err := m.f.fault(); err != nil {
		return err
	}
	return m.Memory.Write(b, offset)
}

// closer counts a module or a graph.
type closer struct {
	hal.Graph
	hal.Module
	f *faulty
}

func (c closer) Close() error               { c.f.open--; return nil }
func (c closer) Wait(context.Context) error { return nil }

func (f *faulty) Alloc(n int, k hal.MemoryKind) (hal.Memory, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	m, err := f.Device.Alloc(n, k)
	f.open++
	return faultyMemory{m, f}, err
}

func (f *faulty) Load(context.Context, hal.Image) (hal.Module, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	f.open++
	return closer{f: f}, nil
}

func (f *faulty) Capture(context.Context, []hal.Op) (hal.Graph, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	f.open++
	return closer{f: f}, nil
}

// TestEveryFailureGivesEverythingBack fails each call of a device in turn.
func TestEveryFailureGivesEverythingBack(t *testing.T) {
	p := accumulator(true)
	v := &p.Variants[0]
	v.Buffers = append(v.Buffers, runtime.Buffer{Name: "counter", Kind: runtime.StateBuffer, Bytes: 4})
	inner, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	failures := 0
	for at := 1; ; at++ {
		f := &faulty{Device: inner, failAt: at}
		err := func() error {
			s, err := runtime.Open(t.Context(), p, f, runtime.ModelOptions{})
			if err != nil {
				return err
			}
			return s.Close()
		}()
		require.Zero(t, f.open, "call %d", at)
		if f.calls < at {
			require.NoError(t, err)
			break
		}
		require.ErrorIs(t, err, errFault, "call %d", at)
		require.ErrorContains(t, err, "acc.onnx: ")
		failures++
	}
	require.Greater(t, failures, 8)
}

func TestFiveHundredCyclesLeakNothing(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	f := &faulty{Device: d}
	p := accumulator(true)
	for i := range 500 {
		m, err := runtime.NewModel(t.Context(), p, f, runtime.ModelOptions{})
		require.NoError(t, err)
		s, err := m.NewSession(t.Context(), runtime.SessionOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
		require.Zero(t, f.open, fmt.Sprint("cycle ", i))
	}
}

// gated is a device whose runs begin and wait.
type gated struct {
	hal.Device
	begun, end chan struct{}
}

type gatedGraph struct {
	hal.Graph
	d *gated
}

func (d *gated) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := d.Device.Capture(ctx, ops)
	return &gatedGraph{g, d}, err
}

func (g *gatedGraph) Run(ctx context.Context) error {
	g.d.begun <- struct{}{}
	<-g.d.end
	return g.Graph.Run(ctx)
}

func TestSession_ConcurrentRunIsAnError(t *testing.T) {
	cpu, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	d := &gated{cpu, make(chan struct{}), make(chan struct{})}
	s := session(t, load(t, accumulator(false), d), runtime.SessionOptions{})
	first := make(chan error)
	go func() { first <- s.Run(context.Background()) }()
	<-d.begun
	require.ErrorIs(t, s.Run(t.Context()), runtime.ErrConcurrent)
	_, err = s.Replay(t.Context(), hal.Timing{})
	require.ErrorIs(t, err, runtime.ErrConcurrent)
	require.ErrorContains(t, err, "acc.onnx")
	close(d.end)
	require.NoError(t, <-first)
	go func() { <-d.begun }()
	require.NoError(t, s.Run(t.Context()), "it is free again")
}
