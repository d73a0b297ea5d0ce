package runtime_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// delayed is accumulator's program, whose state comes back so many runs later; entry echo copies x to y and touches no state.
func delayed(delay int) *runtime.Program {
	p := accumulator(true)
	v := &p.Variants[0]
	p.States[0].Delay = delay
	v.Buffers[3].Kind, v.ArenaBytes = runtime.StateBuffer, 0
	v.Entries[0].Launches = v.Entries[0].Launches[:1]
	x, y := runtime.Access{Buffer: 0, Bytes: 16}, runtime.Access{Buffer: 2, Bytes: 16}
	v.Entries = append(v.Entries, runtime.Entry{Name: "echo", Launches: []runtime.Launch{
		{Copy: &runtime.Copy{Src: x, Dst: y, Bytes: 16}, Reads: []runtime.Access{x}, Writes: []runtime.Access{y}}}})
	return p
}

// TestAStateComesBackAfterItsDelay: h(t) = h(t − delay) + t, checked and on a device with memory of its own, with entries between that touch no
// state: where the last run wrote it is still what Float64s gives then.
func TestAStateComesBackAfterItsDelay(t *testing.T) {
	for _, delay := range []int{2, 3, 4} {
		for _, opt := range []emu.Options{{Check: true}, {Discrete: true}} {
			t.Run(fmt.Sprintf("%d, discrete %v", delay, opt.Discrete), func(t *testing.T) {
				p := delayed(delay)
				opt.Memory = p.Memory(&p.Variants[0])
				d, err := emu.Open(opt)
				require.NoError(t, err)
				s := session(t, load(t, p, d), runtime.SessionOptions{})
				want := make([]int32, delay) // of the runs before
				state := func() int32 {
					got, err := s.Float64s()
					require.NoError(t, err)
					return int32(got["next_state_h"][1])
				}
				for run := range int32(3*delay + 2) {
					copy(words(s.Input("x")), []int32{run, run, run, run})
					before := d.Traffic()
					require.NoError(t, s.Run(t.Context()))
					want = append(want, want[run]+run)
					if moved := d.Traffic(); opt.Discrete {
						require.EqualValues(t, 16, moved.ToDevice-before.ToDevice, "x alone")
						require.EqualValues(t, 16, moved.ToHost-before.ToHost, "y alone")
						require.Zero(t, moved.OnDevice)
					}
					require.Equal(t, want[len(want)-1], state())
					if run%3 == 1 && !opt.Discrete {
						require.NoError(t, s.RunEntry(t.Context(), "echo"))
						require.Equal(t, want[len(want)-1], state(), "what echo did not write")
					}
				}
				all, err := s.State("state_h")
				require.NoError(t, err)
				for k := range delay {
					require.Equal(t, want[len(want)-delay+k], words(all)[4*k], "of run %d to come", k)
				}
				require.NoError(t, s.SetState("state_h", make([]byte, 16*delay)))
				copy(words(s.Input("x")), []int32{5, 5, 5, 5})
				require.NoError(t, s.Run(t.Context()))
				require.EqualValues(t, 5, state())
			})
		}
	}
}

func TestDelaysThatCannotBeAreRefused(t *testing.T) {
	for want, spoil := range map[string]func(p *runtime.Program){
		`state "state_h": a delay of -1 runs`:                                           func(p *runtime.Program) { p.States[0].Delay = -1 },
		`state "state_h": a delay of 1000000 runs: want 0 to 4096`:                      func(p *runtime.Program) { p.States[0].Delay = 1e6 },
		`with a delay of 2, it and its new value "next_state_h" need buffers of kind`:   func(p *runtime.Program) { p.Variants[0].Buffers[3].Bytes = 32 },
		`with a delay of 2, it and its new value "y" need buffers of kind state`:        func(p *runtime.Program) { p.States[0].Output = "y" },
		`output "next_state_h" has a buffer of its own, or is the new value of another`: func(p *runtime.Program) { p.States = append(p.States, p.States[0]) },
	} {
		p := delayed(2)
		spoil(p)
		require.ErrorContains(t, p.Validate(), want)
	}
	require.NoError(t, delayed(2).Validate())
}

// TestARingIsInTheMemoryOfAProgram: with a byte less the session does not open.
func TestARingIsInTheMemoryOfAProgram(t *testing.T) {
	p := delayed(4)
	d, err := emu.Open(emu.Options{Memory: p.Memory(&p.Variants[0]) - 1})
	require.NoError(t, err)
	_, err = runtime.Open(t.Context(), p, d, runtime.ModelOptions{})
	require.Error(t, err)
}

// TestPreparedTurnsMakeNoGraphs: runs make none any more, and preparing changes no value, in the midst of runs too.
func TestPreparedTurnsMakeNoGraphs(t *testing.T) {
	for _, done := range []int{0, 1, 4} {
		var values [2][]int32
		for k, prepare := range []bool{false, true} {
			e, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			d := &counting{Device: e}
			s := session(t, load(t, delayed(3), d), runtime.SessionOptions{})
			run := func(x int32) {
				copy(words(s.Input("x")), []int32{x, x, x, x})
				require.NoError(t, s.Run(t.Context()))
				values[k] = append(values[k], words(s.Output("y"))[0], words(s.Output("next_state_h"))[0])
			}
			for i := range done {
				run(int32(i))
			}
			if prepare {
				last := words(s.Output("next_state_h"))[0]
				require.NoError(t, s.Prepare(t.Context(), "run"))
				require.Equal(t, last, words(s.Output("next_state_h"))[0])
				before := d.graphs
				require.Equal(t, 4+1, before, "a turn each, and echo")
				defer func() { require.Equal(t, before, d.graphs) }()
			}
			for i := range 9 {
				run(int32(i + 10))
			}
		}
		require.Equal(t, values[0], values[1])
	}
	s := session(t, load(t, accumulator(true), nil), runtime.SessionOptions{})
	require.NoError(t, s.Prepare(t.Context(), "run"), "nothing to do")
	require.EqualError(t, s.Prepare(t.Context(), "walk"), `acc.onnx: no entry "walk"`)
}
