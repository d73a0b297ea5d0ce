package route

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"capnproto.org/go/capnp/v3"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// smallLog frames a message of each kind, some in several segments, and says where each ends.
func smallLog(t testing.TB) (raw []byte, ends []int) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	for _, kind := range []Kind{KindInitData, KindSentinel, KindCarState, KindCAN, KindLiveCalibration, KindModelV2, KindSelfdriveState} {
		var arena capnp.Arena = capnp.SingleSegment(nil)
		if kind == KindLiveCalibration {
			arena = capnp.MultiSegment([][]byte{make([]byte, 0, 8), make([]byte, 0, 48), make([]byte, 0, 400)})
		}
		m, _, err := capnp.NewMessage(arena)
		require.NoError(t, err)
		e := Event{Time: uint64(len(ends)), Kind: kind, Valid: true}
		require.NoError(t, e.write(m, message(r, kind, 1, 1, 3)))
		frame, err := m.Marshal()
		require.NoError(t, err)
		raw = append(raw, frame...)
		ends = append(ends, len(raw))
	}
	return raw, ends
}

// events reads a log to its end, and decodes it.
func events(t testing.TB, name string, log []byte) (times []uint64, stats Stats, end error) {
	t.Helper()
	r, err := newReader(bytes.NewReader(log), name)
	if err != nil {
		return nil, stats, err
	}
	defer func() { require.NoError(t, r.Close()) }()
	var e Event
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		_, err := e.Message()
		require.NoError(t, err)
		times = append(times, e.Time)
	}
	require.Equal(t, err, r.Next(&e), "the end stays")
	return times, r.Stats(), err
}

// whole returns how many events are complete in the first bytes of a log.
func whole(ends []int, n int) int {
	i, exact := slices.BinarySearch(ends, n)
	if exact {
		i++
	}
	return i
}

func TestALogCutAtAnyByteKeepsTheEventsBefore(t *testing.T) {
	raw, ends := smallLog(t)
	for cut := range len(raw) + 1 {
		times, stats, err := events(t, "rlog", raw[:cut])
		n := whole(ends, cut)
		require.Len(t, times, n, cut)
		require.Equal(t, n, stats.Events)
		if cut > 0 && (n > 0 && ends[n-1] == cut) {
			require.Equal(t, io.EOF, err, cut)
			continue
		}
		var damage *Damage
		require.ErrorAs(t, err, &damage, cut)
		require.Equal(t, stats.Bytes, damage.Offset)
	}
}

func TestAZstandardLogCutAtAnyByteKeepsTheEventsBefore(t *testing.T) {
	raw, ends := smallLog(t)
	var file bytes.Buffer
	z, err := zstd.NewWriter(&file, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	var blocks []int // where the block that ends an event ends in the file
	from := 0
	for _, end := range ends {
		_, err := z.Write(raw[from:end])
		require.NoError(t, errors.Join(err, z.Flush()))
		blocks, from = append(blocks, file.Len()), end
	}
	require.NoError(t, z.Close())
	for cut := range file.Len() + 1 {
		times, _, err := events(t, "rlog.zst", file.Bytes()[:cut])
		require.Len(t, times, whole(blocks, cut), cut)
		if cut == file.Len() {
			require.Equal(t, io.EOF, err)
			break
		}
		var damage *Damage
		require.ErrorAs(t, err, &damage, cut)
	}
}

// skippable is a skippable frame of zstd.
func skippable(kind byte, content string) []byte {
	header := binary.LittleEndian.AppendUint32([]byte{0x50 | kind, 0x2a, 0x4d, 0x18}, uint32(len(content)))
	return append(header, content...)
}

// TestReader_SkipsSkippableFrames before, between and after frames, as pzstd and seekable files have them.
func TestReader_SkipsSkippableFrames(t *testing.T) {
	raw, ends := smallLog(t)
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	var file []byte
	var skipped, whole []int // where frames end, of which each of the second kind has an event
	from := 0
	for i, end := range ends {
		file = append(file, skippable(byte(i), "size of the frame")...)
		skipped = append(skipped, len(file))
		file = z.EncodeAll(raw[from:end], file)
		whole, from = append(whole, len(file)), end
	}
	file = append(file, skippable(0xe, "seek table")...)
	for _, name := range []string{"rlog.zst", "rlog"} {
		times, _, err := events(t, name, file)
		assert.Equal(t, io.EOF, err)
		assert.Len(t, times, len(ends))
	}
	for cut := 1; cut < len(file); cut++ {
		times, _, err := events(t, "rlog.zst", file[:cut])
		n, exact := slices.BinarySearch(whole, cut)
		if exact {
			n++
		}
		require.Len(t, times, n, cut)
		if exact || slices.Contains(skipped, cut) {
			require.Equal(t, io.EOF, err, cut)
			continue
		}
		var damage *Damage
		require.ErrorAs(t, err, &damage, cut)
	}
	_, _, err = events(t, "rlog.zst", skippable(0, "alone"))
	assert.Equal(t, io.EOF, err)
}

// bzip2ed compresses with Python's bz2, at a block size of 100 kB.
func bzip2ed(t *testing.T, raw []byte) []byte {
	t.Helper()
	interpreter, err := toolchain.FindPython()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-c", "import bz2, sys; sys.stdout.buffer.write(bz2.compress(sys.stdin.buffer.read(), 1))")
	cmd.Stdin = bytes.NewReader(raw)
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

func TestABzip2LogCutAtAnyByteKeepsTheEventsBefore(t *testing.T) {
	raw, ends := smallLog(t)
	file := bzip2ed(t, raw)
	for cut := range len(file) + 1 {
		times, _, err := events(t, "rlog.bz2", file[:cut])
		if cut == len(file) {
			require.Equal(t, io.EOF, err)
			require.Len(t, times, len(ends))
			break
		}
		var damage *Damage
		require.ErrorAs(t, err, &damage, cut)
	}

	// Of several blocks, those that are whole.
	path := filepath.Join(t.TempDir(), "rlog")
	drive(t, path, 1)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	file = bzip2ed(t, raw)
	all, _, err := events(t, "rlog.bz2", file)
	require.Equal(t, io.EOF, err)
	kept, stats, err := events(t, "rlog.bz2", file[:len(file)/2])
	var damage *Damage
	require.ErrorAs(t, err, &damage)
	require.Equal(t, all[:len(kept)], kept)
	decoded, err := io.ReadAll(bzip2.NewReader(bytes.NewReader(file[:len(file)/2])))
	require.Error(t, err)
	require.NotEmpty(t, decoded)
	assert.Less(t, int64(len(decoded))-stats.Bytes, int64(10_000), "all but a message that is cut")
}

func TestDamageIsSaidWithItsPlaceAndReason(t *testing.T) {
	raw, ends := smallLog(t)
	good := raw[:ends[2]]
	words := func(words ...uint32) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	for _, c := range []struct {
		name, file string
		log        []byte
		offset     int
		reason     string
	}{
		{"a log of no bytes", "rlog", nil, 0, "the file is empty"},
		{"zeros at the end", "rlog", append(slices.Clone(good), make([]byte, 4096)...), len(good), "an empty message"},
		{"half a header", "rlog", append(slices.Clone(good), 0, 0, 0, 0), len(good), "the file ends within a message"},
		{"too many segments", "rlog", append(slices.Clone(good), words(512, 1)...), len(good), "a message of 513 segments"},
		{"a segment that is too long", "rlog", append(slices.Clone(good), words(0, 1<<30, 0)...), len(good), "a message of 8589934600 bytes"},
		{"what is no zstd", "rlog.zst", good, 0, "its first bytes are not those of a .zst file"},
		{"zeros in place of bzip2", "rlog.bz2", make([]byte, 100), 0, "its first bytes are not those of a .bz2 file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			times, _, err := events(t, c.file, c.log)
			var damage *Damage
			require.ErrorAs(t, err, &damage)
			assert.Equal(t, &Damage{Path: c.file, Offset: int64(c.offset), Reason: c.reason}, damage)
			if c.offset > 0 {
				assert.Len(t, times, 3)
			}
		})
	}
	assert.EqualError(t, &Damage{"a/rlog", 12, "an empty message"}, "a/rlog is damaged at byte 12 of the log: an empty message")
}

func TestAFlippedBitInZstandardIsDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rlog.zst")
	drive(t, path, 1)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	file[len(file)/2] ^= 16
	_, stats, err := events(t, "rlog.zst", file)
	var damage *Damage
	require.ErrorAs(t, err, &damage)
	assert.Greater(t, stats.Events, 100)
}

func TestADiskThatFailsIsNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rlog.zst")
	drive(t, path, 1)
	compressed, err := os.ReadFile(path)
	require.NoError(t, err)
	raw, _ := smallLog(t)
	broken := errors.New("input/output error")
	for name, log := range map[string][]byte{"rlog": raw[:len(raw)/2], "rlog.zst": compressed[:len(compressed)/2]} {
		r, err := newReader(io.MultiReader(bytes.NewReader(log), iotest.ErrReader(broken)), name)
		require.NoError(t, err)
		var e Event
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
		}
		assert.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, "reading "+name)
		assert.NotErrorAs(t, err, new(*Damage))
	}
	_, err = newReader(iotest.ErrReader(broken), "rlog")
	assert.ErrorIs(t, err, broken)
}

func TestFilesThatAreNoLogsAreRefused(t *testing.T) {
	dir := tree(t, "rlog.gz", "rlog.zst"+lfs)
	_, err := Open(filepath.Join(dir, "rlog.gz"))
	assert.ErrorContains(t, err, "rlog.gz: logs end in .zst, .bz2 or no suffix, not in .gz")
	_, err = Open(filepath.Join(dir, "rlog.zst"))
	assert.ErrorIs(t, err, ErrLFS)
	assert.ErrorContains(t, err, "git lfs pull")
	_, err = Open(filepath.Join(dir, "gone"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Create(filepath.Join(dir, "rlog.bz2"))
	assert.ErrorContains(t, err, "logs are written as .zst or without a suffix, not as .bz2")
}

func TestMessagesWithADamagedRootAreSkippedAndCounted(t *testing.T) {
	raw, ends := smallLog(t)
	damaged := slices.Clone(raw)
	damaged[ends[0]+8+2] = 0xff // the root pointer of the second message leads out of it
	copy(damaged[ends[1]+8:], make([]byte, 8))
	damaged = append(damaged, framed(structAt(-1, 0, 0))...) // a root without data
	times, stats, err := events(t, "rlog", damaged)
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, []uint64{0, 3, 4, 5, 6}, times)
	assert.Equal(t, Stats{Events: 5, Malformed: 3, Bytes: int64(len(damaged))}, stats)
}
