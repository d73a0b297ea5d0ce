package dataset

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
)

// logged is an event of a log with its message.
type logged struct {
	event   route.Event
	message any
}

func readLog(t *testing.T, path string) (all []logged) {
	t.Helper()
	r, err := route.Open(path)
	require.NoError(t, err)
	defer r.Close()
	for {
		var e route.Event
		err := r.Next(&e)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		m, err := e.Message()
		require.NoError(t, err)
		all = append(all, logged{route.Event{Time: e.Time, Kind: e.Kind, Valid: e.Valid}, m})
	}
}

func writeLog(t *testing.T, path string, all []logged) {
	t.Helper()
	w, err := route.Create(path)
	require.NoError(t, err)
	for _, x := range all {
		require.NoError(t, w.Write(x.event, x.message))
	}
	require.NoError(t, w.Close())
}

// TestOpen_MessagesInAnyOrder gives the samples of the sorted log: what a message says holds from its time on.
func TestOpen_MessagesInAnyOrder(t *testing.T) {
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: 8, Width: 64, Height: 40})
	logs, err := filepath.Glob(filepath.Join(dir, "*", "rlog.zst"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	sorted := readLog(t, logs[0])
	require.True(t, slices.IsSortedFunc(sorted, func(a, b logged) int { return int(a.event.Time) - int(b.event.Time) }))
	samples := func() (out []*Sample) {
		var seen []string
		inputs := slices.Concat(takes(t, "policy"), takes(t, "vision"))
		width := inputs[slices.IndexFunc(inputs, func(in Input) bool { return in.Name == "features_buffer" })].Type.Shape[2]
		opt := Options{Inputs: inputs, Vision: takes(t, "vision"), Features: sums(width, &seen)}
		opt.Warn = func(text string) { t.Error(text) }
		set, err := Open(t.Context(), dir, opt)
		require.NoError(t, err)
		defer set.Close()
		for i := range set.Len() {
			s, err := set.Sample(t.Context(), i)
			require.NoError(t, err)
			for k, x := range s.Truth["plan"] { // a NaN equals nothing
				if x != x {
					s.Truth["plan"][k] = -1
				}
			}
			out = append(out, s)
		}
		return out
	}
	want := samples()
	require.Len(t, want, 39)
	random := rand.New(rand.NewPCG(1, 2))
	for name, order := range map[string]func(all []logged){
		"reversed": slices.Reverse[[]logged],
		"by kind": func(all []logged) {
			slices.SortStableFunc(all, func(a, b logged) int { return int(a.event.Kind) - int(b.event.Kind) })
		},
		"shuffled": func(all []logged) {
			random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		},
		"halves changed": func(all []logged) { copy(all, slices.Concat(all[len(all)/2:], all[:len(all)/2])) },
	} {
		t.Run(name, func(t *testing.T) {
			all := slices.Clone(sorted)
			order(all)
			writeLog(t, logs[0], all)
			assert.Equal(t, want, samples())
		})
	}
}

// TestOpen_AnEmptyLogHidesNoGoodOne: of the same segment or of another. It is reported.
func TestOpen_AnEmptyLogHidesNoGoodOne(t *testing.T) {
	dir := routesOf(t, Synthesis{Routes: 3, Seconds: 4, Width: 64, Height: 40})
	logs, err := filepath.Glob(filepath.Join(dir, "*", "rlog.zst"))
	require.NoError(t, err)
	require.Len(t, logs, 3)
	unpacked(t, filepath.Dir(logs[0]))
	writeLog(t, logs[0], nil) // a frame of no bytes
	writeLog(t, logs[1], nil)
	st, err := os.Stat(logs[0])
	require.NoError(t, err)
	var warned []string
	opt := Options{Inputs: takes(t, "vision"), Warn: func(text string) { warned = append(warned, text) }}
	set, err := Open(t.Context(), dir, opt)
	require.NoError(t, err)
	defer set.Close()
	assert.Equal(t, 2*19, set.Len())
	require.Len(t, warned, 2, "%d bytes", st.Size())
	assert.Equal(t, logs[0]+" is left out: the log has no message", warned[0])
	assert.Contains(t, warned[1], "is left out: its log knows no frame of the road camera")
}

// TestReadTimeline_SaysWhereAMessageIsDamaged, though it is decoded before it counts.
func TestReadTimeline_SaysWhereAMessageIsDamaged(t *testing.T) {
	n := &now{timeline: timeline{Events: map[string]int{}}}
	wrong := errors.New("damaged")
	assert.ErrorIs(t, n.take(&message{Kind: route.KindCarState, err: wrong}), wrong)
	assert.NoError(t, n.take(&message{Kind: route.KindCarControl, err: wrong}), "nothing of it is taken")
	assert.NoError(t, n.take(&message{Kind: route.KindCAN}))
}
