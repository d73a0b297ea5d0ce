package route

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// peer runs testdata/peer.py with testdata/log.capnp and returns the messages that it prints. It skips the test where there is no pycapnp.
func peer(t *testing.T, args ...string) []string {
	t.Helper()
	interpreter, err := toolchain.FindPython()
	if err != nil {
		t.Skip(err)
	}
	if _, err := toolchain.PythonPackageVersion(t.Context(), interpreter, "capnp"); err != nil {
		t.Skip("no pycapnp: ", err)
	}
	args = slices.Insert(args, 1, filepath.Join("testdata", "log.capnp"))
	cmd := exec.CommandContext(t.Context(), interpreter, append([]string{filepath.Join("testdata", "peer.py")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// shown is a message as peer.py prints it.
func shown(t *testing.T, e Event, message any) string {
	t.Helper()
	line, err := json.Marshal(map[string]any{"time": e.Time, "kind": e.Kind.String(), "valid": e.Valid, "message": plain(reflect.ValueOf(message).Elem())})
	require.NoError(t, err)
	return string(line)
}

func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Float32:
		return math.Float32bits(float32(v.Float()))
	case reflect.Struct:
		fields := map[string]any{}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fields[strings.Fields(f.Tag.Get("capnp"))[0]] = plain(v.Field(i))
			}
		}
		return fields
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return hex.EncodeToString(v.Bytes())
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	}
	return v.Interface()
}

// readAll reads a log as peer.py shows it.
func readAll(t *testing.T, path string) (lines []string) {
	t.Helper()
	r, err := Open(path)
	require.NoError(t, err)
	defer r.Close()
	var e Event
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		m, err := e.Message()
		require.NoError(t, err)
		lines = append(lines, shown(t, e, m))
	}
	require.ErrorIs(t, err, io.EOF)
	return lines
}

func TestLogsOfPycapnpAreReadFieldByField(t *testing.T) {
	for _, segments := range []string{"one", "small", "tiny"} { // tiny: a segment for each object
		t.Run("messages in "+segments+" segments", func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "rlog")
			want := peer(t, "write", log, "1", segments)
			require.Len(t, want, 6*len(members()))
			got := readAll(t, log)
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, want[i], got[i], i)
			}
			raw, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Equal(t, segments == "one", raw[0] == 0, "segments of the first message, minus 1")
		})
	}
}

// scattered frames an event whose objects lie in many small segments, with the far pointers that this takes: double ones to segments that are full.
func scattered(t *testing.T, r *rand.Rand, e Event, message any) []byte {
	t.Helper()
	segments := [][]byte{make([]byte, 0, 8)}
	for size := 8; size < 1<<16; size += 8 * (1 + r.IntN(size/8)) {
		for range 1 + r.IntN(3) {
			segments = append(segments, make([]byte, 0, size))
		}
	}
	m, _, err := capnp.NewMessage(capnp.MultiSegment(segments))
	require.NoError(t, err)
	require.NoError(t, e.write(m, message))
	raw, err := m.Marshal()
	require.NoError(t, err)
	return raw
}

func TestFarPointersAreFollowed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "rlog")
	r := rand.New(rand.NewPCG(3, 4))
	var raw []byte
	var want []string
	for range 10 {
		for _, m := range members() {
			e := Event{Time: r.Uint64(), Kind: m.kind}
			value := message(r, m.kind, r.IntN(5), r.IntN(4), r.IntN(9))
			raw = append(raw, scattered(t, r, e, value)...)
			want = append(want, shown(t, e, value))
		}
	}
	require.NoError(t, os.WriteFile(log, raw, 0o644))
	assert.Equal(t, want, readAll(t, log))
	assert.Equal(t, want, peer(t, "read", log))
}

func TestPycapnpReadsWhatIsWritten(t *testing.T) {
	log := filepath.Join(t.TempDir(), "rlog")
	w, err := Create(log)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	var want []string
	for range 5 {
		for _, m := range members() {
			e := Event{Time: r.Uint64(), Kind: m.kind, Valid: r.IntN(2) == 1}
			value := message(r, m.kind, r.IntN(5), r.IntN(4), r.IntN(9))
			require.NoError(t, w.Write(e, value))
			want = append(want, shown(t, e, value))
		}
	}
	require.NoError(t, w.Close())
	got := peer(t, "read", log)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i])
	}
	assert.Equal(t, want, readAll(t, log))
}
