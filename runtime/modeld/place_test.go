package modeld_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// offset is a picture whose data begin so many bytes after a multiple of 16, as those of a slice may.
func offset(p modeld.Picture, bytes int) modeld.Picture {
	p.Data = append(make([]byte, bytes, len(p.Data)+64), p.Data...)[bytes:]
	return p
}

// counting counts the graphs that a device makes.
type counting struct {
	*emu.Device
	graphs int
}

func (d *counting) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	d.graphs++
	return d.Device.Capture(ctx, ops)
}

// TestAStepMovesFramesInAndOutputsOutAlone: on a device with memory of its own a step sends the pictures and its few numbers, and fetches the models'
// outputs; one that shares the host's memory copies no picture: it reads each where the camera has put it. All give the same bits.
func TestAStepMovesFramesInAndOutputsOutAlone(t *testing.T) {
	fulltest.Long(t)
	p := step(t, "vision", "policy")
	sent, fetched := 0, 0
	for _, b := range p.Variants[0].Buffers {
		switch b.Kind {
		case runtime.InputBuffer:
			sent += b.Bytes
		case runtime.OutputBuffer:
			require.Contains(t, []string{"vision_outputs", "policy_outputs"}, b.Name)
			fetched += b.Bytes
		}
	}
	camera := modeld.Intrinsics{Focal: 100, Width: 128, Height: 64}
	in := modeld.Inputs{VEgo: 10, Calibration: &modeld.Calibration{Road: camera, WideCamera: camera}}
	ids := []uint32{1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15}
	var first []map[string][]float64
	for name, c := range map[string]struct {
		opt            emu.Options
		copies         bool
		offset, places int
	}{
		"discrete":     {opt: emu.Options{Discrete: true}},
		"in place":     {places: 2},
		"copied":       {copies: true},
		"not aligned":  {offset: 4},
		"half aligned": {offset: 8},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := emu.Open(c.opt)
			require.NoError(t, err)
			d := &counting{Device: e}
			m, err := modeld.NewDriving(t.Context(), p, d, modeld.Options{CopyFrames: c.copies})
			require.NoError(t, err)
			defer m.Close()
			graphs := d.graphs
			var raw []map[string][]float64
			for _, id := range ids {
				before := d.Traffic()
				out, err := m.Step(t.Context(), modeld.Frame{Road: offset(picture(128, 64, int(id)), c.offset), Wide: offset(picture(128, 64, int(id)+1), c.offset), ID: id}, in)
				require.NoError(t, err)
				require.Equal(t, c.places, out.Stats.InPlace)
				raw = append(raw, out.Raw)
				if id < 4 {
					require.Equal(t, graphs, d.graphs, "the first steps make no graphs: opening did")
				}
				moved := d.Traffic()
				require.LessOrEqual(t, moved.OnDevice-before.OnDevice, int64(96), "the pulses of three steps: no picture, no features")
				in, back := moved.ToDevice-before.ToDevice, moved.ToHost-before.ToHost
				switch {
				case out.Ran:
					require.EqualValues(t, fetched, back)
				default:
					require.Zero(t, back)
				}
				switch {
				case !c.opt.Discrete:
					require.Zero(t, in)
				case out.Ran:
					require.EqualValues(t, sent, in)
				default:
					require.LessOrEqual(t, in, int64(sent), "a missed frame needs fewer numbers")
				}
			}
			if first == nil {
				first = raw
			}
			require.Equal(t, first, raw)
		})
	}
}

// TestAPictureInPlaceIsCheckedToItsLastRow: a kernel with checks on reads nothing outside the pictures that a step binds, whose last rows are not
// padded.
func TestAPictureInPlaceIsCheckedToItsLastRow(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m, err := modeld.NewMonitoring(t.Context(), step(t, "dmonitoring_luma"), d, modeld.Options{})
	require.NoError(t, err)
	defer m.Close()
	wide := picture(64, 64, 0)
	wide.Stride, wide.Data = 96, make([]byte, 96*(64+31)+64)
	for i := range wide.Data {
		wide.Data[i] = byte(i * 3)
	}
	out, err := m.Step(t.Context(), modeld.DriverFrame{Picture: wide}, modeld.MonitoringInputs{Camera: modeld.Intrinsics{Focal: 30, Width: 64, Height: 64}})
	require.NoError(t, err)
	require.Equal(t, 1, out.Stats.InPlace)
}
