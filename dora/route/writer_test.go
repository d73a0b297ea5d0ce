package route

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written writes a message of every kind at random, and returns them as readAll shows them.
func written(t *testing.T, path string) (want []string) {
	t.Helper()
	w, err := Create(path)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range members() {
		e := Event{Time: r.Uint64(), Kind: m.kind, Valid: r.IntN(2) == 1}
		value := message(r, m.kind, r.IntN(40), r.IntN(4), r.IntN(9))
		require.NoError(t, w.Write(e, value))
		want = append(want, shown(t, e, value))
	}
	assert.NoFileExists(t, path, "before Close")
	require.NoError(t, w.Close())
	return want
}

func TestRoute_RoundTrip(t *testing.T) {
	for _, name := range []string{"rlog", "qlog.zst", dongle + "_" + log2 + "--4--rlog.zst"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			want := written(t, path)
			assert.Equal(t, want, readAll(t, path))

			first, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.Remove(path))
			written(t, path)
			again, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, first, again, "the same bytes")
		})
	}
}

func TestALogIsWrittenWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "rlog")
	w, err := Create(path)
	require.NoError(t, err)
	assert.ErrorContains(t, w.Close(), "create it first")
	assert.NoFileExists(t, path)
}
