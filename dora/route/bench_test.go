package route

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill sets every field of a message's value at random, with lists of the given lengths.
func fill(r *rand.Rand, v reflect.Value, floats, structs, bytes int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(r, v.Field(i), floats, structs, bytes)
			}
		}
	case reflect.Slice:
		n := map[reflect.Kind]int{reflect.Float32: floats, reflect.Struct: structs, reflect.Uint8: bytes}[v.Type().Elem().Kind()]
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i), floats, structs, bytes)
		}
	case reflect.String:
		v.SetString("text-" + string(rune('a'+r.IntN(26))))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Float32:
		v.SetFloat(float64(float32(r.NormFloat64())))
	case reflect.Int8, reflect.Int32:
		v.SetInt(r.Int64() >> (64 - v.Type().Bits()))
	default:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	}
}

// message makes a message of a kind at random.
func message(r *rand.Rand, kind Kind, floats, structs, bytes int) any {
	v := reflect.New(kind.row().typ)
	fill(r, v.Elem(), floats, structs, bytes)
	return v.Interface()
}

// drive writes what a device logs in some seconds, of the kinds that are read: at their rates, and about as large. The values are noise but change
// no more often than real ones, so that the file compresses.
func drive(t testing.TB, path string, seconds int) (raw int64) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	w, err := Create(path)
	require.NoError(t, err)
	rates := []struct {
		kind                   Kind
		hz                     int
		floats, structs, bytes int
	}{
		{KindCAN, 100, 0, 60, 8}, {KindSendCAN, 100, 0, 6, 8}, {KindCarState, 100, 0, 0, 0}, {KindCarControl, 100, 0, 0, 0},
		{KindControlsState, 100, 0, 0, 0}, {KindSelfdriveState, 100, 0, 0, 0}, {KindModelV2, 20, 33, 4, 0},
		{KindRoadCameraState, 20, 9, 0, 0}, {KindWideRoadCameraState, 20, 9, 0, 0}, {KindDriverCameraState, 20, 9, 0, 0},
		{KindRoadEncodeIdx, 20, 0, 0, 0}, {KindWideRoadEncodeIdx, 20, 0, 0, 0}, {KindDriverEncodeIdx, 20, 0, 0, 0}, {KindQRoadEncodeIdx, 20, 0, 0, 0},
		{KindOldDriverMonitoringState, 20, 0, 0, 0}, {KindCameraOdometry, 20, 3, 0, 0}, {KindDrivingModelData, 20, 5, 0, 0},
		{KindLiveCalibration, 4, 3, 0, 0}, {KindLiveDelay, 4, 0, 0, 0}, {KindDeviceState, 2, 0, 0, 0},
	}
	messages := map[Kind]any{}
	for tick := range 100 * seconds {
		for _, k := range rates {
			if tick%(100/k.hz) != 0 {
				continue
			}
			if messages[k.kind] == nil || r.IntN(4) == 0 {
				messages[k.kind] = message(r, k.kind, k.floats, k.structs, k.bytes)
				if m, ok := messages[k.kind].(*ModelV2); ok {
					m.trim()
				}
			}
			require.NoError(t, w.Write(Event{Time: uint64(tick) * 1e7, Kind: k.kind, Valid: true}, messages[k.kind]))
		}
	}
	require.NoError(t, w.Close())
	reader, err := Open(path)
	require.NoError(t, err)
	defer reader.Close()
	var e Event
	for err == nil {
		err = reader.Next(&e)
	}
	require.ErrorIs(t, err, io.EOF)
	return reader.Stats().Bytes
}

// trim leaves of a model's message what openpilot publishes: 7.5 kB.
func (m *ModelV2) trim() {
	for _, x := range []*XYZT{&m.Orientation, &m.Velocity, &m.OrientationRate, &m.Acceleration} {
		x.XStd, x.YStd, x.ZStd = nil, nil, nil
	}
	m.RoadEdges, m.Leads = m.RoadEdges[:2], m.Leads[:3]
	for _, lines := range [][]XYZT{m.LaneLines, m.RoadEdges} {
		for i := range lines {
			lines[i].XStd, lines[i].YStd, lines[i].ZStd = nil, nil, nil
		}
	}
	for i := range m.Leads {
		l := &m.Leads[i]
		for _, x := range []*[]float32{&l.T, &l.X, &l.Y, &l.XStd, &l.YStd, &l.V, &l.VStd, &l.A, &l.AStd} {
			*x = (*x)[:6]
		}
	}
	m.LaneLineProbs, m.LaneLineStds, m.RoadEdgeStds = m.LaneLineProbs[:4], m.LaneLineStds[:4], m.RoadEdgeStds[:2]
	d := &m.Meta.DisengagePredictions
	m.Meta.DesirePrediction, m.Meta.DesireState = m.Meta.DesirePrediction[:32], m.Meta.DesireState[:8]
	for _, x := range []*[]float32{&d.T, &d.BrakeDisengageProbs, &d.GasDisengageProbs, &d.SteerOverrideProbs, &d.Brake3MetersPerSecond, &d.Brake4MetersPerSecond, &d.Brake5MetersPerSecond, &d.GasPressProbs, &d.BrakePressProbs} {
		*x = (*x)[:5]
	}
}

// BenchmarkRead reads a log and decodes every message of it, or only steps over the messages; MB/s are of the decompressed log.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name, file string
		decode     bool
	}{{"plain/decode", "rlog", true}, {"plain/step", "rlog", false}, {"zst/decode", "rlog.zst", true}, {"zst/step", "rlog.zst", false}} {
		b.Run(c.name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), c.file)
			b.SetBytes(drive(b, path, 10))
			log, err := os.ReadFile(path)
			require.NoError(b, err)
			into := map[Kind]any{}
			b.ReportAllocs()
			for b.Loop() {
				r, err := newReader(bytes.NewReader(log), path)
				require.NoError(b, err)
				var e Event
				for err = r.Next(&e); err == nil; err = r.Next(&e) {
					if !c.decode {
						continue
					}
					if into[e.Kind] == nil {
						into[e.Kind] = reflect.New(e.Kind.row().typ).Interface()
					}
					require.NoError(b, e.Decode(into[e.Kind]))
				}
				require.ErrorIs(b, err, io.EOF)
				require.NoError(b, r.Close())
			}
		})
	}
}

// BenchmarkDecode decodes one message again and again.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		kind                   Kind
		floats, structs, bytes int
	}{{KindCAN, 0, 60, 8}, {KindCarState, 0, 0, 0}, {KindModelV2, 33, 4, 0}, {KindRoadEncodeIdx, 0, 0, 0}} {
		b.Run(c.kind.String(), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "rlog")
			w, err := Create(path)
			require.NoError(b, err)
			require.NoError(b, w.Write(Event{Kind: c.kind}, message(rand.New(rand.NewPCG(1, 2)), c.kind, c.floats, c.structs, c.bytes)))
			require.NoError(b, w.Close())
			log, err := os.ReadFile(path)
			require.NoError(b, err)
			b.SetBytes(int64(len(log)))
			into := reflect.New(c.kind.row().typ).Interface()
			r, err := newReader(bytes.NewReader(log), path)
			require.NoError(b, err)
			var e Event
			require.NoError(b, r.Next(&e))
			for b.Loop() {
				require.NoError(b, e.Decode(into))
			}
		})
	}
}
