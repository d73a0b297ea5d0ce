package dataset

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestARouteGoesOnInItsNextSegment: the first samples of a segment have pictures, features, pulses and curvatures of the one before it, and the path of the last ones goes on; not
// where the segment before is missing.
func TestARouteGoesOnInItsNextSegment(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	const second, frames = segmentFrames, segmentFrames + 240
	seed := uint64(0) // a lane change goes on from one segment to the next
	for ; ; seed++ {
		at := int(rand.New(rand.NewPCG(seed, 1)).Uint32N(1<<16)) + second
		if d := openpilot.At(at).Desire; (d == 3 || d == 4) && openpilot.At(at-3).Desire == d && openpilot.At(at+3).Desire == d {
			break
		}
	}
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: frames / openpilot.Rate, Seed: seed, Width: 32, Height: 20})
	inputs := takes(t, "policy")
	shapes := map[string]ir.Type{}
	for _, in := range inputs {
		shapes[in.Name] = in.Type
	}
	rows, width := shapes["features_buffer"].Shape[1], shapes["features_buffer"].Shape[2]
	open := func() *routes {
		var computed []string
		set, err := Open(ctx, dir, Options{Inputs: inputs, Vision: takes(t, "vision"), Features: sums(width, &computed), Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		return set.(*routes)
	}
	set := open()
	require.Len(t, set.segments, 2)
	require.Equal(t, frames/4-1, set.Len(), "none is lost between them")
	from := onDrive(t, set.segments[0])
	floats := func(set *routes, i int, name string) []float64 {
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		tensor, err := ir.NewTensor(shapes[name], s.Inputs[name])
		require.NoError(t, err)
		return tensor.Floats()
	}
	newest := func(i int) []float64 { x := floats(set, i, "features_buffer"); return x[len(x)-width:] }
	for _, frame := range []int{second, second + 4, second + 40} {
		i := frame/4 - 1
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(s.Key, fmt.Sprintf("--1/%d", frame)), s.Key)
		history := floats(set, i, "features_buffer")
		for row := range rows {
			assert.Equal(t, newest(i-(rows-1-row)), history[row*width:(row+1)*width], "frame %d, row %d", frame, row)
		}
		p := set.at[i]
		for row, got := range p.curvatures(25, false) {
			_, want := openpilot.Motion(from + frame - 1 - 4*(24-row))
			assert.Equal(t, float64(float32(want)), got)
		}
		full := p.desires(100, true)
		for row := range 100 {
			level := func(f int) int { // as the log has it, a frame later; of turns it says nothing
				if d := openpilot.At(from + f - 1).Desire; d == 3 || d == 4 {
					return d
				}
				return 0
			}
			f := frame - 99 + row
			want := make([]float64, 8)
			if now := level(f); now != level(f-1) && now != 0 {
				want[now] = 1
			}
			assert.Equal(t, want, full[8*row:8*row+8], "frame %d", f)
		}
	}
	s, err := set.Sample(ctx, second/4-2) // one sample before the second segment
	require.NoError(t, err)
	assert.False(t, math.IsNaN(float64(s.Truth["plan"][15*32])), "the path goes on")
	speed, _ := openpilot.Motion(from + second - 4 + 200)
	assert.InDelta(t, speed, math.Hypot(float64(s.Truth["plan"][15*32+3]), float64(s.Truth["plan"][15*32+4])), 0.05)

	first, err := filepath.Glob(filepath.Join(dir, "*--0"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(first[0]))
	alone := open()
	assert.Equal(t, 240/4-1, alone.Len())
	history := floats(alone, 0, "features_buffer")
	assert.Equal(t, make([]float64, (rows-1)*width), history[:(rows-1)*width])
	assert.NotEqual(t, make([]float64, width), history[(rows-1)*width:])
	assert.NotEqual(t, set.Fingerprint(), alone.Fingerprint())
}

// TestSegmentsOfAnyLengthGoOn: after one whose number of frames is no multiple of four, features are those of
// frames up to 150 ms before.
func TestSegmentsOfAnyLengthGoOn(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	road, wide := (&Synthesis{Width: 32, Height: 20}).eyes()
	at := 0
	for n, frames := range []int{50, 60} {
		segment := filepath.Join(dir, fmt.Sprintf("00000000--0123456789--%d", n))
		require.NoError(t, os.MkdirAll(filepath.Join(segment, "fcamera"), 0o755))
		w, err := route.Create(filepath.Join(segment, "rlog.zst"))
		require.NoError(t, err)
		l := &scribe{w: w}
		l.begin(n)
		for i := range frames {
			l.frame(at, uint32(at), uint32(i), int32(n))
			arrays := map[string]*npy.Array{"road": road.Draw(at).Array(), "wide": wide.Draw(at).Array()}
			require.NoError(t, npy.WriteZip(filepath.Join(segment, "fcamera", fmt.Sprintf("%06d.npz", i)), arrays))
			at++
		}
		require.NoError(t, errorsOf(l.err, w.Close()))
	}
	inputs := takes(t, "policy")
	in := inputs[slices.IndexFunc(inputs, func(in Input) bool { return in.Name == "features_buffer" })].Type
	width := in.Shape[2]
	var computed []string
	set, err := Open(ctx, dir, Options{Inputs: inputs, Vision: takes(t, "vision"), Features: sums(width, &computed), Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	defer set.Close()
	features := map[string][]float64{}
	for i := range set.Len() {
		s, err := set.Sample(ctx, i)
		require.NoError(t, err)
		tensor, err := ir.NewTensor(in, s.Inputs["features_buffer"])
		require.NoError(t, err)
		_, frame, _ := strings.Cut(s.Key, "/")
		features[frame] = tensor.Floats()
	}
	row := func(frame string, back int) []float64 {
		x := features[frame]
		require.NotNil(t, x, frame)
		return x[len(x)-(back+1)*width : len(x)-back*width]
	}
	require.NotContains(t, features, "50", "the picture of four frames before it is not kept")
	require.NotEqual(t, row("44", 0), row("48", 0))
	for k, want := range []string{"54", "44", "44", "40", "36"} { // of 54, 50 without a picture before it, 46, 42, 38
		assert.Equal(t, row(want, 0), row("54", k), "%d rows before", k)
	}
}
