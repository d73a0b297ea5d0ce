package runtime_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// inPlace is the accumulator whose kernel writes the new value over the old one, which is of a kind.
func inPlace(kind runtime.BufferKind) *runtime.Program {
	p := accumulator(true)
	v := &p.Variants[0]
	e := &v.Entries[0]
	e.Launches = e.Launches[:1]
	l := &e.Launches[0]
	l.Params[3].Buffer, l.Writes[1].Buffer = 1, 1
	v.Buffers[1].Kind = kind
	if kind == runtime.VariableBuffer {
		p.Weights = append(make([]byte, 256), runtime.Bytes([]int32{10, 20, 30, 40})...)
		v.Buffers[1].Offset = 256
	}
	return p
}

func TestAStateIsUpdatedInPlace(t *testing.T) {
	m := load(t, inPlace(runtime.StateBuffer), nil)
	require.Equal(t, 1, m.Variant.Launches(), "no copy")
	s := session(t, m, runtime.SessionOptions{})
	for run := int32(1); run <= 3; run++ {
		copy(words(s.Input("x")), []int32{1, 2, 3, 4})
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, []int32{run, 2 * run, 3 * run, 4 * run}, words(s.Output("next_state_h")))
	}
}

func TestVariablesBeginWithTheirWeightsAndAreASessionsOwn(t *testing.T) {
	p := inPlace(runtime.VariableBuffer)
	p.Weights = append(p.Weights, 7) // a constant's
	before := bytes.Clone(p.Weights)
	m := load(t, p, nil)
	first, second := session(t, m, runtime.SessionOptions{}), session(t, m, runtime.SessionOptions{})
	copy(words(first.Input("x")), []int32{1, 1, 1, 1})
	require.NoError(t, first.Run(t.Context()))
	require.NoError(t, first.Run(t.Context()))
	for s, want := range map[*runtime.Session][]int32{first: {12, 22, 32, 42}, second: {10, 20, 30, 40}} {
		got, err := s.State("state_h")
		require.NoError(t, err)
		require.Equal(t, want, words(got))
	}
	require.Equal(t, before, p.Weights)

	var saved bytes.Buffer
	require.NoError(t, first.Save(&saved))
	require.Equal(t, before[:256], saved.Bytes()[:256])
	require.Equal(t, before[272:], saved.Bytes()[272:])
	again := inPlace(runtime.VariableBuffer)
	again.Weights = saved.Bytes()
	third := session(t, load(t, again, nil), runtime.SessionOptions{})
	require.NoError(t, third.SetState("state_h", runtime.Bytes([]int32{0, 0, 0, 5})))
	got, err := third.State("state_h")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0, 0, 5}, words(got))
	fourth := session(t, load(t, again, nil), runtime.SessionOptions{})
	require.NoError(t, fourth.Run(t.Context()))
	require.Equal(t, []int32{12, 22, 32, 42}, words(fourth.Output("next_state_h")), "x is zero: what was saved")
	_, err = fourth.State("y")
	require.EqualError(t, err, `no state "y"`)
}

func TestABoundStateIsSharedAndNotInitialised(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m := load(t, inPlace(runtime.VariableBuffer), d)
	owner := session(t, m, runtime.SessionOptions{})
	at, ok := owner.Memory(true, "next_state_h")
	require.True(t, ok)
	require.NoError(t, owner.SetState("state_h", runtime.Bytes([]int32{1, 2, 3, 4})))
	guest := session(t, m, runtime.SessionOptions{Inputs: map[string]runtime.Binding{"state_h": at}})
	copy(words(guest.Input("x")), []int32{1, 0, 0, 0})
	require.NoError(t, guest.Run(t.Context()))
	require.Equal(t, []int32{2, 2, 3, 4}, words(owner.Output("next_state_h")))
}

// early reads its buffer before griddepcontrol.wait.
const early = `.version 8.8
.target sm_90
.address_size 64
.visible .entry early(.param .u64 x, .param .u64 y)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd0, [x];
	ld.param.u64 %rd1, [y];
	cvta.to.global.u64 %rd0, %rd0;
	cvta.to.global.u64 %rd1, %rd1;
	ld.global.u32 %r0, [%rd0];
	griddepcontrol.wait;
	st.global.u32 [%rd1], %r0;
	ret;
}
`

// TestOnlyConstantsAreReadBeforeTheWait: a state or variable may be what the launch before writes.
func TestOnlyConstantsAreReadBeforeTheWait(t *testing.T) {
	for _, kind := range []runtime.BufferKind{runtime.ConstantBuffer, runtime.VariableBuffer, runtime.StateBuffer, runtime.ArenaBuffer} {
		d, err := emu.Open(emu.Options{Check: true})
		require.NoError(t, err)
		x, y := runtime.Access{Buffer: 0, Bytes: 4}, runtime.Access{Buffer: 1, Bytes: 4}
		p := &runtime.Program{Format: runtime.FormatVersion, Model: "early.onnx", Weights: []byte{1, 2, 3, 4},
			Outputs: []runtime.Port{{Name: "y", DType: "i32", Shape: []int{1}}},
			Variants: []runtime.Variant{{Target: "sm_90", PTX: early, ArenaBytes: 256,
				Buffers: []runtime.Buffer{{Name: "x", Kind: kind, Bytes: 4}, {Name: "y", Kind: runtime.OutputBuffer, Bytes: 4}},
				Entries: []runtime.Entry{{Name: "run", Launches: []runtime.Launch{{Kernel: "early", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Dependent: true,
					Params: []runtime.Param{{Buffer: 0, Bytes: 8}, {Buffer: 1, Bytes: 8}}, Reads: []runtime.Access{x}, Writes: []runtime.Access{y}}}}}}}}
		err = session(t, load(t, p, d), runtime.SessionOptions{}).Run(t.Context())
		if kind == runtime.ConstantBuffer {
			require.NoError(t, err)
			continue
		}
		var v *emu.Violation
		require.ErrorAs(t, err, &v, kind)
		require.Equal(t, emu.DependentEarly, v.Rule)
	}
}
