package route

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, name := range []string{"rlog", "rlog.zst"} {
		path := filepath.Join(t.TempDir(), name)
		w, err := Create(path)
		require.NoError(t, err)
		require.NoError(t, w.Write(Event{Time: 5, Kind: KindCarState, Valid: true}, CarState{VEgo: 3, LeftBlinker: true, CruiseState: CruiseState{Speed: 2}}))
		require.NoError(t, w.Write(Event{Time: 6, Kind: KindCAN}, CANFrames{{Address: 5, Data: []byte("ab")}, {Src: 128}}))
		require.NoError(t, w.Write(Event{Time: 7, Kind: KindModelV2}, &ModelV2{LaneLines: []XYZT{{X: []float32{1, 2}}, {}}, Meta: Meta{DesireState: []float32{5}}}))
		require.NoError(t, w.Close())
		r, err := Open(path)
		require.NoError(t, err)
		var e Event
		for range 3 {
			require.NoError(t, r.Next(&e))
			m, err := e.Message()
			require.NoError(t, err)
			t.Logf("%d %v %v %+v", e.Time, e.Kind, e.Valid, m)
		}
		require.ErrorIs(t, r.Next(&e), io.EOF)
	}
}
