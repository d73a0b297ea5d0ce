package route

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// framed frames a message of one segment, given as words.
func framed(words ...uint64) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(words)))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// A struct pointer's word: words from its end to the struct, then the struct's size.
func structAt(offset, words, pointers int) uint64 {
	return uint64(uint32(offset<<2)) | uint64(words)<<32 | uint64(pointers)<<48
}

// A list pointer's word; size is the code of its elements, 7 for structs, of which count is the number of words.
func listAt(offset, size, count int) uint64 {
	return uint64(uint32(offset<<2|1)) | uint64(size)<<32 | uint64(count)<<35
}

// eventWords are the root and the data of an event, before the word of its payload's pointer.
func eventWords(kind Kind) []uint64 { return []uint64{structAt(0, 2, 1), 77, uint64(kind)} }

// first reads the first event of a log.
func first(t *testing.T, log []byte) Event {
	t.Helper()
	r, err := newReader(bytes.NewReader(log), "rlog")
	require.NoError(t, err)
	var e Event
	require.NoError(t, r.Next(&e))
	return e
}

func TestFieldsThatAnOldLogDoesNotHaveAreDefaults(t *testing.T) {
	speed := uint64(math.Float32bits(12.5))
	short := first(t, framed(append(eventWords(KindCarState), structAt(0, 1, 0), speed)...))
	assert.Equal(t, uint64(77), short.Time)
	assert.True(t, short.Valid, "stored inverted")
	got := CarState{VEgo: 3, LeftBlindspot: true, SteeringAngleDeg: 4, CruiseState: CruiseState{Enabled: true, Speed: 5}}
	require.NoError(t, short.Decode(&got))
	assert.Equal(t, CarState{VEgo: 12.5}, got)

	none := first(t, framed(append(eventWords(KindModelV2), 0)...))
	model := ModelV2{FrameID: 3, LaneLines: []XYZT{{X: []float32{1}}}}
	require.NoError(t, none.Decode(&model))
	assert.Zero(t, model.FrameID)
	assert.Empty(t, model.LaneLines)

	onlyTime := first(t, framed(structAt(0, 1, 0), 77))
	assert.Equal(t, KindInitData, onlyTime.Kind)
	assert.True(t, onlyTime.Valid)
}

func TestFieldsOfNewerLogsAreSteppedOver(t *testing.T) {
	speed := uint64(math.Float32bits(12.5))
	words := append(eventWords(KindCarState), structAt(0, 12, 8), speed)
	words = append(words, make([]uint64, 11+2)...)
	words = append(words, structAt(5, 2, 1), 0, 0, 0, 0, 0) // cruiseState, larger too
	words = append(words, uint64(math.Float32bits(30))<<32, 0, 0)
	e := first(t, framed(words...))
	var got CarState
	require.NoError(t, e.Decode(&got))
	assert.Equal(t, CarState{VEgo: 12.5, CruiseState: CruiseState{Speed: 30}}, got)
}

func TestKindsThatAreNotReadAreSkippedAndCounted(t *testing.T) {
	var log []byte
	for _, kind := range []Kind{17, KindSentinel, 148, 60000, KindSentinel} {
		log = append(log, framed(append(eventWords(kind), 0)...)...)
	}
	_, stats, err := events(t, "rlog", log)
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, Stats{Events: 2, Skipped: 3, Bytes: int64(len(log))}, stats)
}

func TestDamageInsideAMessageNamesTheField(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    Kind
		payload []uint64
		want    string
	}{
		{"a payload that is no struct", KindCarState, []uint64{listAt(0, 2, 8), 0}, "carState at 77 ns: not a struct"},
		{"a payload outside the message", KindCarState, []uint64{structAt(50, 1, 0)}, "skipped"},
		{"a struct outside the message", KindCarState, []uint64{structAt(0, 0, 3), 0, 0, structAt(50, 1, 0)}, "carState at 77 ns: cruiseState: read pointer: struct pointer: invalid address"},
		{"a far pointer to no segment", KindCarState, []uint64{structAt(0, 0, 3), 0, 0, 2 | 9<<32}, "carState at 77 ns: cruiseState: read pointer: far pointer: segment 9 out of bounds in arena"},
		{"text without its zero", KindInitData, []uint64{structAt(0, 0, 4), 0, 0, 0, listAt(0, 2, 4), 0x61616161}, "initData at 77 ns: version: not a text: no zero byte at its end"},
		{"text that is a struct", KindInitData, []uint64{structAt(0, 0, 4), 0, 0, 0, structAt(0, 1, 0), 0}, "initData at 77 ns: version: not a list of bytes"},
		{"floats of two bytes", KindCameraOdometry, []uint64{structAt(0, 0, 1), listAt(0, 3, 4), 0}, "cameraOdometry at 77 ns: trans: not a list of Float32"},
		{"floats that are bits", KindCameraOdometry, []uint64{structAt(0, 0, 1), listAt(0, 1, 4), 0}, "cameraOdometry at 77 ns: trans: not a list of Float32"},
		{"floats that are a struct", KindCameraOdometry, []uint64{structAt(0, 0, 1), structAt(0, 1, 0), 0}, "cameraOdometry at 77 ns: trans: not a list"},
		{"structs of no size", KindCAN, []uint64{listAt(0, 7, 0), structAt(2, 0, 0)}, "can at 77 ns: not a list of structs"},
		{"structs that are bits", KindCAN, []uint64{listAt(0, 1, 4), 0}, "can at 77 ns: not a list of structs"},
		{"a struct within a list", KindCAN, []uint64{listAt(0, 7, 2), structAt(1, 1, 1), 0, structAt(50, 1, 0)}, "can at 77 ns: 0: dat: read pointer: struct pointer: invalid address"},
		{"a list that is not all there", KindCAN, []uint64{listAt(0, 7, 2), structAt(2, 1, 1), 0, 0}, "skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := append(framed(append(eventWords(c.kind), c.payload...)...), framed(append(eventWords(KindSentinel), 0)...)...)
			r, err := newReader(bytes.NewReader(log), "rlog")
			require.NoError(t, err)
			var e Event
			require.NoError(t, r.Next(&e))
			if c.want == "skipped" {
				assert.Equal(t, KindSentinel, e.Kind)
				return
			}
			_, err = e.Message()
			assert.ErrorContains(t, err, c.want)
			require.NoError(t, r.Next(&e), "the log is read on")
		})
	}
}

func TestAMessageCannotAskForMoreThanItHolds(t *testing.T) {
	const lines, points = 1000, 1000
	words := append(eventWords(KindModelV2), structAt(0, 0, 5), 0, 0, 0, 0, listAt(0, 7, 7*lines), structAt(lines, 0, 7))
	at := len(words)
	for i := range 7 * lines { // all lead to the same floats
		words = append(words, listAt(7*lines-1-i, 4, points))
	}
	words = append(words, make([]uint64, points/2)...)
	require.Equal(t, at+7*lines+points/2, len(words))
	e := first(t, framed(words...))
	var got ModelV2
	assert.ErrorContains(t, e.Decode(&got), "read traversal limit reached")

	words = append(eventWords(KindCAN), listAt(0, 7, 2*maxStructs+2), structAt(maxStructs+1, 1, 1))
	e = first(t, framed(append(words, make([]uint64, 2*maxStructs+2)...)...))
	assert.ErrorContains(t, e.Decode(&CANFrames{}), "can at 77 ns: a list of 16385 structs, more than 16384")
	assert.ErrorContains(t, (&Event{Kind: KindCAN}).write(mustMessage(t), make(CANFrames, maxStructs+1)), "16385 structs in a list")
}

func mustMessage(t *testing.T) *capnp.Message {
	m, _, err := capnp.NewMessage(capnp.SingleSegment(nil))
	require.NoError(t, err)
	return m
}

func TestAMessageIsDecodedIntoItsTypeOnly(t *testing.T) {
	e := first(t, framed(append(eventWords(KindCarState), 0)...))
	for _, into := range []any{nil, CarState{}, &FrameData{}, (*CarState)(nil)} {
		assert.ErrorContains(t, e.Decode(into), "carState is to be decoded into a *route.CarState, not a ")
	}
	assert.ErrorContains(t, (&Event{}).Decode(&InitData{}), "an event that no Reader has read has no message")
	e.Kind = 17
	assert.ErrorContains(t, e.Decode(&CarState{}), "kind 17 has no type")
	_, err := e.Message()
	assert.Error(t, err)
	w, err := Create("rlog")
	require.NoError(t, err)
	assert.ErrorContains(t, w.Write(Event{Kind: KindCarState}, FrameData{}), "writing rlog: carState: its message is a route.CarState, not a route.FrameData")
	assert.ErrorContains(t, w.Write(Event{Kind: 17}, FrameData{}), "writing rlog: kind 17: it has no type")
	assert.Error(t, w.Write(Event{Kind: KindCarState}, nil))
}

func TestMessagesAreAsLargeAsADevices(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		size  int
		value any
	}{{KindCarState, 184, CarState{}}, {KindSentinel, 48, Sentinel{}}, {KindInitData, 232, InitData{}}, {KindCAN, 48 + 60*24, slices.Repeat(CANFrames{{Data: make([]byte, 8)}}, 60)}} {
		m := mustMessage(t)
		require.NoError(t, (&Event{Kind: c.kind}).write(m, c.value))
		raw, err := m.Marshal()
		require.NoError(t, err)
		assert.Len(t, raw, c.size, c.kind)
	}
}

func TestMemoryIsUsedAgain(t *testing.T) {
	long := first(t, framed(append(eventWords(KindCameraOdometry), structAt(0, 0, 1), listAt(0, 4, 4), 0, 0)...))
	var got CameraOdometry
	require.NoError(t, long.Decode(&got))
	before := &got.Trans[0]
	require.NoError(t, long.Decode(&got))
	assert.Same(t, before, &got.Trans[0])
	assert.Less(t, testing.AllocsPerRun(100, func() { _ = long.Decode(&got) }), 1.0)
}
