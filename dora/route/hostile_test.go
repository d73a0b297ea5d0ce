package route

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// frameOf is a zstd frame with a window of 2^(10+log) bytes of four zeros as they are. (RFC 8878, section 3.1.1)
func frameOf(log byte) []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, log << 3, 1 | 4<<3, 0, 0, 0, 0, 0, 0}
}

// frameOfSize is a zstd frame of a single segment that holds four zeros and says that it has another size.
func frameOfSize(size uint64) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, size), 1|4<<3, 0, 0, 0, 0, 0, 0)
}

// bzip2Zeros is what 45,899,235 zeros are in bzip2.
const bzip2Zeros = "425a68393141592653590e09e2df015f8e4000c0000008200030804d4642a025a90a80971772453850900e09e2df"

func TestReader_RefusesWhatAsksForTooMuch(t *testing.T) {
	defer memory.Limit(16 << 20)()
	raw, ends := smallLog(t)
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	var bomb bytes.Buffer
	w, err := zstd.NewWriter(&bomb, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	require.NoError(t, err)
	for range 1 << 10 {
		_, err := w.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	zeros, err := hex.DecodeString(bzip2Zeros)
	require.NoError(t, err)
	const budget = "rlog.zst: reading logs with such a zstd window needs 32 MiB of memory, " +
		"more than the 16 MiB that it may take (--memory)"
	for _, c := range []struct {
		name, file string
		log        []byte
		events     int
		want       string
	}{
		{"a window of 2 GiB", "rlog.zst", frameOf(21), 0, "rlog.zst is damaged at byte 0 of the log: " +
			"it needs a zstd window of 2 GiB, more than 128 MiB: compress it again, without --long and --ultra"},
		{"a window beyond the budget", "rlog.zst", frameOf(12), 0, budget},
		{"a window within the budget", "rlog.zst", frameOf(11), 0, "the file ends within a message"},
		{"a window beyond the budget in a later frame", "rlog.zst", append(z.EncodeAll(raw, nil), frameOf(12)...), len(ends),
			budget},
		{"a size beyond the budget in a later frame", "rlog.zst", append(z.EncodeAll(raw, nil), frameOfSize(4<<20)...),
			len(ends), budget},
		{"a window of 2 GiB in a later frame", "rlog.zst", append(z.EncodeAll(raw, nil), frameOf(21)...), len(ends),
			fmt.Sprintf("rlog.zst is damaged at byte %d of the log: it needs a zstd window of 2 GiB, more than 128 MiB: "+
				"compress it again, without --long and --ultra", len(raw))},
		{"a size of 1 TiB", "rlog.zst", frameOfSize(1 << 40), 0, "it needs a zstd window of 1 TiB"},
		{"a size that is beyond the budget", "rlog.zst", frameOfSize(4 << 20), 0, budget},
		{"a size that is too large", "rlog.zst", frameOfSize(1 << 20), 0, "frame size does not match size on stream"},
		{"a size that is too small", "rlog.zst", frameOfSize(3), 0, "frame size exceeded"},
		{"1 GiB of zeros", "rlog.zst", bomb.Bytes(), 0, "at byte 0 of the log: an empty message"},
		{"1 GiB of zeros in bzip2", "rlog.bz2", bytes.Repeat(zeros, 24), 0, "at byte 0 of the log: an empty message"},
		{"1 GiB of zeros after messages", "rlog.zst", slices.Concat(z.EncodeAll(raw, nil), bomb.Bytes()), len(ends),
			"an empty message"},
		{"a message of 16 MB that is not there", "rlog", []byte{0, 0, 0, 0, 0, 0, 0x1f, 0}, 0,
			"the file ends within a message"},
		{"512 segments that are not there", "rlog", []byte{0xff, 1, 0, 0, 1, 0, 0, 0}, 0,
			"the file ends within a message"},
		{"2^32 segments", "rlog", []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0}, 0, "a message of 4294967296 segments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var times []uint64
			var err error
			took := hostile.Allocated(func() { times, _, err = events(t, c.file, c.log) })
			assert.ErrorContains(t, err, c.want)
			assert.Len(t, times, c.events)
			assert.Less(t, took, int64(8<<20), "bytes of memory")
		})
	}
}

// TestReader_EndsWithALogThatIsTooLong, as a bomb of whole messages is.
func TestReader_EndsWithALogThatIsTooLong(t *testing.T) {
	raw, ends := smallLog(t)
	r, err := newReader(bytes.NewReader(raw), "rlog")
	require.NoError(t, err)
	r.stats.Bytes = maxSize - int64(ends[1])
	var e Event
	require.NoError(t, r.Next(&e))
	require.NoError(t, r.Next(&e))
	require.ErrorContains(t, r.Next(&e), "it goes on beyond 4 GiB, more than a segment's log has")
}

// thinLists is a ModelV2 with as many lane lines and leads as there may be, each of one pointer that is null.
func thinLists() []uint64 {
	const list = 1 + maxStructs
	words := append([]uint64{structAt(0, 0, 13)}, make([]uint64, 13+2*list)...)
	words[1+4], words[1+12] = listAt(13-1-4, 7, maxStructs), listAt(list, 7, maxStructs)
	words[1+13], words[1+13+list] = maxStructs<<2|1<<48, maxStructs<<2|1<<48
	return words
}

// TestDecode_OfWhatMultiplies: pointers that lead to one list again and again, back to where they are, or to lists of
// many elements and no bytes.
func TestDecode_OfWhatMultiplies(t *testing.T) {
	lines := func(n int, list ...uint64) []uint64 { // n lane lines, whose 7 lists are one
		words := []uint64{structAt(0, 0, 5), 0, 0, 0, 0, listAt(0, 7, 7*n), uint64(n)<<2 | 7<<48}
		for i := range 7 * n {
			words = append(words, list[0]+uint64(7*n-1-i)<<2)
		}
		return append(words, list[1:]...)
	}
	floats := append([]uint64{listAt(0, 4, 1<<14)}, make([]uint64, 1<<13)...)
	loop := []uint64{structAt(0, 0, 1), structAt(-2, 0, 1)}
	const limit = "read traversal limit reached"
	for _, c := range []struct {
		name  string
		kind  Kind
		words []uint64
		want  string
	}{
		{"one list in many places", KindModelV2, lines(100, floats...), limit},
		{"structs with fewer bytes than in Go", KindModelV2, thinLists(),
			"laneLines: a list of structs of 0 data bytes and 1 pointers, too few for a route.XYZT"},
		{"2^29 empty structs", KindModelV2,
			[]uint64{structAt(0, 0, 5), 0, 0, 0, 0, listAt(0, 7, 0), (1<<29 - 1) << 2}, limit},
		{"2^29 floats without bytes", KindLiveCalibration,
			[]uint64{structAt(0, 0, 5), 0, 0, 0, 0, listAt(0, 0, 1<<29-1)}, limit},
		{"2^29 bytes without bytes", KindInitData, []uint64{structAt(0, 0, 3), 0, 0, listAt(0, 0, 1<<29-1)}, limit},
		{"a struct that is in itself", KindCarState, loop, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := first(t, framed(append(eventWords(c.kind), c.words...)...))
			var err error
			hostile.Bounded(t, 8*len(c.words), 2*maxGrowth, func() { _, err = e.Message() })
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestEvent_DecodesWithinTheBudget(t *testing.T) {
	raw, _ := smallLog(t)
	e := first(t, raw)
	defer memory.Limit(1000)()
	_, err := e.Message()
	require.ErrorIs(t, err, memory.ErrBudget)
	require.ErrorContains(t, err, "initData at 0 ns: decoding it needs")
}

// TestFind_LeavesOutWhatIsNoFile: what cannot be read, or not to its end, is named.
func TestFind_LeavesOutWhatIsNoFile(t *testing.T) {
	dir := tree(t, "0/rlog", "1/rlog", "2/rlog", "3/x")
	raw, _ := smallLog(t)
	for path, replace := range map[string]func(path string) error{
		"0/rlog": func(path string) error { return os.WriteFile(path, raw, 0o666) },
		"1/rlog": func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"2/rlog": func(path string) error { return os.Symlink("/dev/zero", path) },
		"3/fcamera.hevc": func(path string) error {
			if err := os.WriteFile(path, nil, 0o666); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
	} {
		path = filepath.Join(dir, path)
		_ = os.Remove(path)
		require.NoError(t, replace(path))
	}
	found, err := Find(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, found.Segments, 1)
	var problems []string
	for _, p := range found.Problems {
		problems = append(problems, filepath.Base(filepath.Dir(p.Path))+" "+p.Err.Error())
	}
	require.Equal(t, []string{"1 not a regular file", "2 not a regular file",
		"3 1 TiB, and a segment's file has 4 GiB at most"}, problems)
}

// TestOpen_OfWhatIsNoFile ends.
func TestOpen_OfWhatIsNoFile(t *testing.T) {
	_, err := Open(t.TempDir())
	require.ErrorContains(t, err, "is a directory")
	r, err := Open("/dev/zero")
	require.NoError(t, err)
	defer r.Close()
	require.ErrorContains(t, r.Next(&Event{}), "/dev/zero is damaged at byte 0 of the log: an empty message")
}
