package dataset

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// TestOpen_KeepsTheBudget: a log that expands to more messages than memory has room for ends the opening. It is not left
// out, since what is trained on must not depend on the machine's memory.
func TestOpen_KeepsTheBudget(t *testing.T) {
	dir := routesOf(t, Synthesis{Routes: 2, Seconds: 2, Width: 64, Height: 40})
	logs, err := filepath.Glob(filepath.Join(dir, "*", "rlog.zst"))
	require.NoError(t, err)
	plain := filepath.Join(t.TempDir(), "rlog")
	messages := readLog(t, logs[0])
	at := slices.IndexFunc(messages, func(x logged) bool { return x.event.Kind == route.KindCarState })
	writeLog(t, plain, messages[at:at+1])
	one, err := os.ReadFile(plain)
	require.NoError(t, err)
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
	require.NoError(t, err)
	bomb := z.EncodeAll(slices.Repeat(one, 1<<17), nil)
	require.Less(t, len(bomb), 1<<14)
	require.NoError(t, os.WriteFile(logs[0], bomb, 0o666))

	defer memory.Limit(16 << 20)()
	took := hostile.Allocated(func() {
		_, err = Open(t.Context(), dir, Options{Inputs: takes(t, "vision")})
	})
	require.ErrorIs(t, err, memory.ErrBudget)
	require.ErrorContains(t, err, "rlog.zst: keeping the messages that samples are made of needs")
	require.ErrorContains(t, err, "(--memory)")
	require.Less(t, took, int64(128<<20), "bytes of memory")
}

func TestReadTimeline_OfMoreFramesThanASegmentHas(t *testing.T) {
	log := filepath.Join(t.TempDir(), "rlog")
	all := make([]logged, maxFrames+1)
	for i := range all {
		all[i] = logged{route.Event{Time: uint64(i), Kind: route.KindRoadEncodeIdx},
			&route.EncodeIndex{FrameID: uint32(i), SegmentID: uint32(i), Type: route.FullHEVC}}
	}
	writeLog(t, log, all)
	got, err := readTimeline(t.Context(), log, false)
	require.NoError(t, err)
	require.Len(t, got.Moments, maxFrames)
	require.Equal(t, log+": it has more than 32768 frames of a camera, and a segment has 1200", got.Damage)
}

func TestFiles_OfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o777))
		return filepath.Join(dir, name)
	}
	fifo, zero, large, loop := in("fifo"), in("zero"), in("large"), in("loop")
	require.NoError(t, syscall.Mkfifo(filepath.Join(fifo, "x"), 0o666))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(zero, "x")))
	require.NoError(t, os.WriteFile(filepath.Join(large, "x"), nil, 0o666))
	require.NoError(t, os.Truncate(filepath.Join(large, "x"), 1<<40))
	require.NoError(t, os.Symlink(".", filepath.Join(loop, "x")))
	double := in("0") // each directory has the next one twice
	for at, i := double, 1; i <= 20; i++ {
		next := in(strconv.Itoa(i))
		require.NoError(t, os.Symlink(next, filepath.Join(at, "a")))
		require.NoError(t, os.Symlink(next, filepath.Join(at, "b")))
		at = next
	}
	for path, want := range map[string]string{
		fifo:   fifo + "/x: not a regular file",
		zero:   zero + "/x: not a regular file",
		large:  large + "/x: 1 TiB, and a segment's file has 4 GiB at most",
		loop:   "too many levels of symbolic links",
		double: double + ": more than 65536 files and directories: remove links that lead back",
	} {
		_, err := digests{}.of(t.Context(), path, true)
		require.ErrorContains(t, err, want)
	}
}

func TestArrays_ReadWhatTheyNeed(t *testing.T) {
	dir := t.TempDir()
	writeSample(t, filepath.Join(dir, "good.npz"), 1, 2)
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo.npz"), 0o666))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero.npz")))
	arrays, err := npy.ReadZip(filepath.Join(dir, "good.npz"))
	require.NoError(t, err)
	arrays["unused"] = &npy.Array{DType: "u8", Shape: []int{64 << 20}, Data: make([]byte, 64<<20)}
	require.NoError(t, npy.WriteZip(filepath.Join(dir, "good.npz"), arrays))
	defer memory.Limit(16 << 20)()
	var warned []string
	set := open(t, dir, &warned)
	require.Len(t, warned, 2)
	require.Contains(t, warned[0], "fifo.npz: not a regular file")
	require.Contains(t, warned[1], "zero.npz: not a regular file")
	require.Equal(t, 1, set.Len())
	_, err = set.Sample(t.Context(), 0)
	require.NoError(t, err)
}
