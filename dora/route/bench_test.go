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

// drive writes what a device logs in some seconds: the kinds that are read at their rates and sizes, and others so that it is 56 MB
// a minute. The values are noise that changes every now and then, so that the file compresses.
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
	text := make([]uint64, 64*610)
	for i := range text {
		text[i] = r.Uint64() >> r.IntN(64)
	}
	messages := map[Kind]any{}
	for tick := range 100 * seconds {
		for _, k := range rates {
			if tick%(100/k.hz) != 0 {
				continue
			}
			if messages[k.kind] == nil || r.IntN(2) == 0 {
				messages[k.kind] = message(r, k.kind, k.floats, k.structs, k.bytes)
				if m, ok := messages[k.kind].(*ModelV2); ok {
					m.trim()
				}
			}
			require.NoError(t, w.Write(Event{Time: uint64(tick) * 1e7, Kind: k.kind, Valid: true}, messages[k.kind]))
		}
		words := append(eventWords(17), listAt(0, 2, 4880))
		_, err := w.out.Write(framed(append(words, text[r.IntN(len(text)-610):][:610]...)...))
		require.NoError(t, err)
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

// BenchmarkRead reads a log and decodes all messages, those that a data set needs (all but CAN), or none. MB/s are of the
// decompressed log.
func BenchmarkRead(b *testing.B) {
	for _, file := range []string{"rlog", "rlog.zst"} {
		for _, decode := range []string{"all", "needed", "none"} {
			b.Run(file+"/"+decode, func(b *testing.B) {
				path := filepath.Join(b.TempDir(), file)
				b.SetBytes(drive(b, path, 10))
				into := map[Kind]any{}
				for b.Loop() {
					r, err := Open(path)
					require.NoError(b, err)
					var e Event
					for err = r.Next(&e); err == nil; err = r.Next(&e) {
						can := e.Kind == KindCAN || e.Kind == KindSendCAN
						if decode == "none" || decode == "needed" && can {
							continue
						}
						if into[e.Kind] == nil {
							into[e.Kind] = reflect.New(e.Kind.row().typ).Interface()
						}
						if err := e.Decode(into[e.Kind]); err != nil {
							b.Fatal(err)
						}
					}
					require.ErrorIs(b, err, io.EOF)
					require.NoError(b, r.Close())
				}
			})
		}
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
				if err := e.Decode(into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
