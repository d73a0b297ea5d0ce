package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
)

// withGap writes a segment without a frame: where the camera has dropped it it is in no file, where the log has lost it the camera's has it.
func withGap(t *testing.T, from, count, missing int, dropped bool) (dir string) {
	t.Helper()
	dir = t.TempDir()
	segment := filepath.Join(dir, "00000000--0123456789--0")
	require.NoError(t, os.MkdirAll(filepath.Join(segment, "fcamera"), 0o755))
	road, wide := (&Synthesis{Width: 96, Height: 60}).eyes()
	w, err := route.Create(filepath.Join(segment, "rlog.zst"))
	require.NoError(t, err)
	l := &scribe{w: w}
	l.begin(0)
	inFile := 0
	for i := range count {
		if i != missing {
			l.frame(from+i, uint32(i), uint32(inFile), 0)
		}
		if i == missing && dropped {
			continue
		}
		arrays := map[string]*npy.Array{"road": road.Draw(from + i).Array(), "wide": wide.Draw(from + i).Array()}
		require.NoError(t, npy.WriteZip(filepath.Join(segment, "fcamera", fmt.Sprintf("%06d.npz", inFile)), arrays))
		inFile++
	}
	l.end()
	require.NoError(t, errorsOf(l.err, w.Close()))
	return dir
}

// laneChanging is where on the drive a lane change has been going on for eight frames, and goes on for eight more.
func laneChanging(t *testing.T) int {
	t.Helper()
	held := 0
	for f := 200; f < 1<<16; f++ {
		if d := openpilot.At(f).Desire; d == 3 || d == 4 {
			held++
		} else {
			held = 0
		}
		if held == 16 {
			return f - 8
		}
	}
	t.Fatal("there is no lane change")
	return 0
}

// TestAMissingFrameInTheMiddle leaves histories as modeld would have them: features from before the gap are there
// after it, and a lane change that goes on does not begin again.
func TestAMissingFrameInTheMiddle(t *testing.T) {
	ctx := context.Background()
	const missing, count = 120, 180
	from := laneChanging(t) - missing
	inputs := takes(t, "policy")
	var width int
	desire := ""
	for _, in := range inputs {
		switch in.Name {
		case "features_buffer":
			width = in.Type.Shape[2]
		case "desire", "desire_pulse":
			desire = in.Name
		}
	}
	for name, dropped := range map[string]bool{"dropped by the camera": true, "lost by the log": false} {
		t.Run(name, func(t *testing.T) {
			var computed []string
			set, err := Open(ctx, withGap(t, from, count, missing, dropped), Options{Inputs: inputs, Vision: takes(t, "vision"), Features: sums(width, &computed), Warn: func(text string) { t.Error(text) }})
			require.NoError(t, err)
			defer set.Close()
			samples := map[string]map[string][]float64{}
			for i := range set.Len() {
				s, err := set.Sample(ctx, i)
				require.NoError(t, err)
				x := map[string][]float64{}
				for _, in := range inputs {
					tensor, err := ir.NewTensor(in.Type, s.Inputs[in.Name])
					require.NoError(t, err)
					x[in.Name] = tensor.Floats()
				}
				samples[s.Key[len(s.Key)-3:]] = x
			}
			newest := func(key string) []float64 {
				x := samples[key]["features_buffer"]
				require.NotNil(t, x, "%s of %v", key, set.Len())
				return x[len(x)-width:]
			}
			// The frames in the file are multiples of four; after a frame that the camera dropped they are called
			// one more.
			following := map[bool]string{true: "121", false: "128"}[dropped]
			history := samples[following]["features_buffer"]
			require.NotNil(t, history)
			rows := len(history) / width
			for row := range rows {
				assert.NotEqual(t, make([]float64, width), history[row*width:(row+1)*width], "row %d", row)
			}
			if dropped {
				assert.Equal(t, newest("116"), history[(rows-2)*width:(rows-1)*width])
				assert.Contains(t, samples, "125")
			} else {
				assert.Equal(t, newest("116"), history[(rows-2)*width:(rows-1)*width], "120 is lost, and 124 has no picture before it")
				assert.Equal(t, newest("116"), history[(rows-3)*width:(rows-2)*width])
				assert.NotContains(t, samples, "124")
			}
			x := samples[following][desire]
			assert.Equal(t, make([]float64, 8), x[len(x)-8:], "no lane change begins here")
			var sum float64
			for _, v := range x {
				sum += v
			}
			assert.Equal(t, 1.0, sum, "one lane change began in the last five seconds")
		})
	}
}

// TestAnIndexThatDisagreesWithItselfIsMadeAgain, instead of a panic.
func TestAnIndexThatDisagreesWithItselfIsMadeAgain(t *testing.T) {
	ctx := context.Background()
	dir, cache := routesOf(t, Synthesis{Routes: 1, Seconds: 4, Width: 64, Height: 40}), t.TempDir()
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { t.Error(text) }}
	set, err := Open(ctx, dir, opt)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(cache, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	good, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for name, change := range map[string]func(x *index){
		"more pictures than moments": func(x *index) { x.Wanted = x.Wanted[:x.Kept-1] },
		"none":                       func(x *index) { x.Kept = -1 },
		"moments that are not there": func(x *index) { x.Wanted[3] = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			var x index
			require.NoError(t, json.Unmarshal(good, &x))
			change(&x)
			data, err := json.Marshal(x)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(files[0], data, 0o644))
			again, err := Open(ctx, dir, opt)
			require.NoError(t, err)
			assert.Equal(t, set.Fingerprint(), again.Fingerprint())
		})
	}
}

// TestDataset_RemovesLeftovers when nobody has written to it for a day.
func TestDataset_RemovesLeftovers(t *testing.T) {
	dir, cache := routesOf(t, Synthesis{Routes: 1, Seconds: 2, Width: 64, Height: 40}), t.TempDir()
	old, new := filepath.Join(cache, "a.planes.partial123"), filepath.Join(cache, "b.planes.partial456")
	for _, path := range []string{old, new} {
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	before := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(old, before, before))
	_, err := Open(context.Background(), dir, Options{Inputs: takes(t, "vision"), Cache: cache})
	require.NoError(t, err)
	assert.NoFileExists(t, old)
	assert.FileExists(t, new)
}

// TestACacheThatCannotBeWrittenIsNoDamage of a segment, which would be left out: it is an error with the cache's name.
func TestACacheThatCannotBeWrittenIsNoDamage(t *testing.T) {
	dir, cache := routesOf(t, Synthesis{Routes: 2, Seconds: 2, Width: 64, Height: 40}), t.TempDir()
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { t.Error(text) }}
	_, err := Open(context.Background(), dir, opt)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(cache, "*.planes"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(files[0]))
	require.NoError(t, os.MkdirAll(filepath.Join(files[0], "in the way"), 0o755))
	_, err = Open(context.Background(), dir, opt)
	assert.ErrorContains(t, err, "cannot be kept in "+cache)
	assert.ErrorContains(t, err, "make room there, or give another directory for the cache")
	left, err := filepath.Glob(filepath.Join(cache, "*"+partial+"*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
