package route

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// FuzzRead reads whatever there may be in a file. It ends with io.EOF or a *Damage, and what was counted adds up.
func FuzzRead(f *testing.F) {
	raw, ends := smallLog(f)
	z, err := zstd.NewWriter(nil)
	require.NoError(f, err)
	f.Add(raw)
	f.Add(raw[:ends[1]])
	f.Add(z.EncodeAll(raw, nil))
	f.Add([]byte(lfsMagic + "v1\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		r, err := newReader(bytes.NewReader(log), "rlog")
		if err == nil {
			defer r.Close()
			var e Event
			var seen int
			for err = r.Next(&e); err == nil; err = r.Next(&e) {
				_, _ = e.Message() // damaged or not
				seen++
			}
			require.Equal(t, seen, r.Stats().Events)
		}
		var damage *Damage
		require.True(t, err == io.EOF || errors.As(err, &damage) || errors.Is(err, ErrLFS), err)
	})
}

// FuzzDecode decodes whatever there may be in the segments of a message whose root is an event: as its own kind, and what it
// holds and what decoding takes are no larger than the limit on reading it allows.
func FuzzDecode(f *testing.F) {
	raw, ends := smallLog(f)
	for i, end := range ends {
		frame := raw[:end]
		if i > 0 {
			frame = raw[ends[i-1]:end]
		}
		if binary.LittleEndian.Uint32(frame) == 0 {
			f.Add(frame[8:], uint16(0))
			f.Add(frame[8:], uint16(2)) // cut in two
		}
	}
	f.Add(framed(append(eventWords(KindModelV2), thinLists()...)...)[8:], uint16(0))
	f.Fuzz(func(t *testing.T, words []byte, cut uint16) {
		words = words[:len(words)&^7]
		segments := [][]byte{words}
		if at := 8 * int(cut); cut > 0 && at < len(words) {
			segments = [][]byte{words[:at:at], words[at:]}
		}
		m, _, err := capnp.NewMessage(capnp.MultiSegment(segments))
		if err != nil {
			return
		}
		var e Event
		if e.open(m, len(words)) != nil || e.Kind.row() == nil {
			return
		}
		var message any
		hostile.Bounded(t, len(words), 2*maxGrowth+4, func() { message, err = e.Message() })
		if err == nil {
			require.LessOrEqual(t, weight(reflect.ValueOf(message).Elem()), 2*len(words))
		}
	})
}

// weight is how many bytes lists of a message have.
func weight(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += weight(v.Field(i))
		}
	case reflect.Slice:
		if size := int(v.Type().Elem().Size()); size <= 4 {
			return size * v.Len()
		}
		for i := range v.Len() {
			n += weight(v.Index(i))
		}
	case reflect.String:
		n = v.Len()
	}
	return n
}

// FuzzRoundTrip reads what was written of a message at random.
func FuzzRoundTrip(f *testing.F) {
	for i := range members() {
		f.Add(uint64(i), uint8(i), uint8(i), uint8(3), uint8(7))
	}
	f.Fuzz(func(t *testing.T, seed uint64, row, floats, structs, size uint8) {
		kind := members()[int(row)%len(members())].kind
		r := rand.New(rand.NewPCG(seed, 0))
		want := message(r, kind, int(floats), int(structs)%8, int(size))
		m, _, err := capnp.NewMessage(capnp.SingleSegment(nil))
		require.NoError(t, err)
		require.NoError(t, (&Event{Time: seed, Kind: kind}).write(m, want))
		log, err := m.Marshal()
		require.NoError(t, err)
		e := first(t, log)
		require.Equal(t, seed, e.Time)
		got, err := e.Message()
		require.NoError(t, err)
		require.Equal(t, shown(t, e, want), shown(t, e, got))
	})
}

// FuzzIdentify names files from whatever paths there may be; a segment's own name names it again.
func FuzzIdentify(f *testing.F) {
	for _, path := range []string{"a/" + dongle + "|" + log1 + "--0/rlog", dongle + "_" + log2 + "--4--rlog.zst", dongle + "/" + log2 + "/7/qlog", "x--3/y", "7/rlog"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		abs := filepath.Join("/data", filepath.FromSlash(path))
		if path == "" || strings.Contains(path, "..") || abs == "/data" {
			return
		}
		s := &search{root: "/data"}
		id, base := s.identify(abs)
		require.NotEmpty(t, id.route)
		require.NotEmpty(t, base)
		name := (&Segment{Route: id.route, Number: id.number}).Name()
		again, _ := s.identify(filepath.Join("/data", name, base))
		require.Equal(t, id, again, name)
	})
}
