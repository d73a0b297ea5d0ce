package teacher

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/hostile"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// counted are options of a teacher with a cache, and the warnings that it gives.
func counted(dir string) (Options, *[]string) {
	warnings := &[]string{}
	return Options{Precision: "fp32", Batch: 2, CacheDir: dir, Warn: func(s string) { *warnings = append(*warnings, s) }}, warnings
}

// files are the segments of a directory.
func files(t testing.TB, dir string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, "*.values"))
	require.NoError(t, err)
	return out
}

// TestTeacherCache_RoundTrip: bit for bit, by the same teacher and by the next one, whose other keys and inputs are computed.
func TestTeacherCache_RoundTrip(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 5)
	opt, warnings := counted(filepath.Join(t.TempDir(), "new", "cache"))
	first := open(t, file, opt)
	want := values(t, first, keys, inputs)
	assert.Equal(t, want, values(t, first, keys, inputs))
	assert.Equal(t, [2]int{5, 5}, [2]int{first.Stats().Inferences, first.Stats().Hits})
	require.NoError(t, first.Close())

	next := open(t, file, opt)
	assert.Equal(t, want, values(t, next, keys, inputs))
	assert.Equal(t, [2]int{0, 5}, [2]int{next.Stats().Inferences, next.Stats().Hits})
	assert.Equal(t, want[:1], values(t, next, []string{"another key"}, inputs[:1]))
	assert.Equal(t, want[1:2], values(t, next, keys[:1], inputs[1:2]), "a key with other inputs")
	assert.Equal(t, 2, next.Stats().Inferences)
	mixed := values(t, next, []string{keys[4], "new", keys[0]}, []map[string][]byte{inputs[4], inputs[3], inputs[0]})
	assert.Equal(t, []map[string][]float32{want[4], want[3], want[0]}, mixed)

	opt.Precision = "fp16"
	other := open(t, file, opt)
	assert.NotEqual(t, want, values(t, other, keys, inputs), "another program")
	assert.Equal(t, 5, other.Stats().Inferences)
	assert.Empty(t, *warnings)
}

// numbersOf are those of an entry of a test.
func numbersOf(i int) entry {
	e := entry{id: entryID{byte(i), byte(i >> 8)}, numbers: make([]float32, 200)}
	for k := range e.numbers {
		e.numbers[k] = float32(math.Sin(float64(300*i + k)))
	}
	return e
}

// cached opens a cache, and has it keep some entries that it lacks. It returns how many it had.
func cached(t testing.TB, dir string, bound int64, entries ...int) (c *cache, had int) {
	t.Helper()
	c = openCache(dir, bound, "program", func(s string) { t.Error(s) })
	t.Cleanup(func() { require.NoError(t, c.close()) })
	for _, i := range entries {
		e := numbersOf(i)
		x, _ := c.get(e.id, len(e.numbers))
		if x == nil {
			c.put([]entry{e})
			continue
		}
		require.Equal(t, e.numbers, x)
		had++
	}
	return c, had
}

// TestDamagedEntriesAreNotThere: of changed bytes, cut files and rubbish, none gives other numbers. What is written afterwards lasts.
func TestDamagedEntriesAreNotThere(t *testing.T) {
	change := func(at func(size int) int) func(data []byte) []byte {
		return func(data []byte) []byte {
			data[at(len(data))] ^= 0x10
			return data
		}
	}
	const row = headerBytes + 4*200
	for what, c := range map[string]struct {
		change func(data []byte) []byte
		left   int // of four
	}{
		"a number":           {change(func(int) int { return headerBytes + 100 }), 3},
		"the last number":    {change(func(n int) int { return n - 1 }), 3},
		"the first magic":    {change(func(int) int { return 0 }), 0},
		"a length":           {change(func(int) int { return row + 40 }), 1},
		"what it is":         {change(func(int) int { return 2*row + 8 }), 2},
		"cut in numbers":     {func(d []byte) []byte { return d[:len(d)-5] }, 3},
		"cut in a header":    {func(d []byte) []byte { return d[:2*row+20] }, 2},
		"empty":              {func(d []byte) []byte { return nil }, 0},
		"rubbish at the end": {func(d []byte) []byte { return append(d, make([]byte, 1000)...) }, 4},
	} {
		dir := t.TempDir()
		_, had := cached(t, dir, 1<<20, 1, 2, 3, 4)
		require.Zero(t, had)
		segment := files(t, dir)[0]
		data, err := os.ReadFile(segment)
		require.NoError(t, err)
		require.Len(t, data, 4*row)
		require.NoError(t, os.WriteFile(segment, c.change(data), 0o666))
		for _, left := range []int{c.left, 4} {
			_, had := cached(t, dir, 1<<20, 1, 2, 3, 4)
			assert.Equal(t, left, had, what)
		}
	}
}

// TestDamageWhileTheFileIsOpenIsSeen: the bytes of an entry are checked whenever it is read.
func TestDamageWhileTheFileIsOpenIsSeen(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 2)
	dir := t.TempDir()
	opt, _ := counted(dir)
	teacher := open(t, file, opt)
	want := values(t, teacher, keys, inputs)
	f, err := os.OpenFile(files(t, dir)[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1, 2, 3}, headerBytes+40)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Equal(t, want, values(t, teacher, keys, inputs))
	assert.Equal(t, 1, teacher.Stats().Damaged)
	assert.Equal(t, want, values(t, teacher, keys, inputs))
	assert.Equal(t, 3, teacher.Stats().Inferences)
}

// TestTheCacheIsBounded: at every moment, by the oldest going first. What is there are the numbers that were kept.
func TestTheCacheIsBounded(t *testing.T) {
	for _, bound := range []int64{1, 900, 5000, 20_000} {
		dir := t.TempDir()
		one, _ := cached(t, dir, bound)
		other, _ := cached(t, dir, bound)
		rng, hits := rand.New(rand.NewPCG(1, 2)), 0
		for range 500 {
			c := []*cache{one, other}[rng.IntN(2)]
			e := numbersOf(rng.IntN(40))
			c.refresh()
			if x, damaged := c.get(e.id, len(e.numbers)); x != nil {
				require.Equal(t, e.numbers, x)
				hits++
			} else {
				require.False(t, damaged)
				c.put([]entry{e})
				x, _ := c.get(e.id, len(e.numbers))
				require.Equal(t, bound > 860, x != nil)
			}
			require.LessOrEqual(t, size(t, dir), bound)
		}
		assert.Equal(t, bound > 900, hits > 20, "%d bytes: %d hits", bound, hits)
	}
}

func size(t testing.TB, dir string) (sum int64) {
	t.Helper()
	for _, f := range files(t, dir) {
		info, err := os.Stat(f)
		require.NoError(t, err)
		sum += info.Size()
	}
	return sum
}

// TestAFullDiskIsOneWarning: and no error; results are computed.
func TestAFullDiskIsOneWarning(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 2)
	opt, warnings := counted("")
	teacher := open(t, file, opt)
	want := values(t, teacher, keys, inputs)
	for what, spoil := range map[string]func(t *testing.T, dir string){
		"a file in its place":    func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(dir, nil, 0o666)) },
		"nothing can be written": func(t *testing.T, dir string) { require.NoError(t, os.MkdirAll(filepath.Join(dir, lockName), 0o777)) },
		"the device is full": func(t *testing.T, dir string) {
			if _, err := os.Stat("/dev/full"); err != nil {
				t.Skip(err)
			}
			require.NoError(t, os.MkdirAll(dir, 0o777))
			require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, fmt.Sprintf(segmentPattern, 1))))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			spoil(t, dir)
			*warnings = nil
			teacher.cache = openCache(dir, 1<<20, "program", opt.Warn)
			before := teacher.Stats().Inferences
			for range 2 {
				assert.Equal(t, want, values(t, teacher, keys, inputs))
			}
			assert.Equal(t, 4, teacher.Stats().Inferences-before)
			require.Len(t, *warnings, 1)
			assert.Contains(t, (*warnings)[0], dir)
			assert.Contains(t, (*warnings)[0], "make room there or give another directory")
		})
	}
}

// TestProcessesShareADirectory: several at a time, each of which needs all samples in an order of its own. All get the same bits, the
// bound holds, and what one has computed another one finds.
func TestProcessesShareADirectory(t *testing.T) {
	const env = "SPARK_TEACHER_PROCESS"
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 16)
	if dir := os.Getenv(env); dir != "" {
		opt, warnings := counted(dir)
		opt.CacheBytes = 100_000
		teacher := open(t, file, opt)
		rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
		for range 10 {
			for _, i := range rng.Perm(len(keys)) {
				got := values(t, teacher, keys[i:i+1], inputs[i:i+1])
				fmt.Printf("sum %d %x\n", i, got[0]["outputs"])
			}
		}
		fmt.Println("hits", teacher.Stats().Hits, teacher.Stats().Damaged)
		require.Empty(t, *warnings)
		return
	}
	dir := t.TempDir()
	var processes []*exec.Cmd
	var outputs []*strings.Builder
	for range 3 {
		cmd := exec.CommandContext(context.Background(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		out := &strings.Builder{}
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env+"="+dir), out, out
		require.NoError(t, cmd.Start())
		processes, outputs = append(processes, cmd), append(outputs, out)
	}
	for i, cmd := range processes {
		require.NoError(t, cmd.Wait(), outputs[i].String())
	}
	sums := map[string]bool{}
	for _, out := range outputs {
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.HasPrefix(line, "sum ") {
				sums[line] = true
			}
		}
		assert.Contains(t, out.String(), "hits 1", "most samples were there")
		assert.Contains(t, out.String(), " 0\n", "none was damaged")
	}
	assert.Len(t, sums, len(keys), "one result for each sample")
	assert.LessOrEqual(t, size(t, dir), int64(100_000))
	last := open(t, file, Options{Precision: "fp32", Batch: 2, CacheDir: dir, CacheBytes: 100_000})
	_ = values(t, last, keys, inputs)
	assert.Equal(t, len(keys), last.Stats().Hits)
}

// TestOtherFilesStay: names that only look like those of segments are left alone.
func TestOtherFilesStay(t *testing.T) {
	dir := t.TempDir()
	names := []string{"1.values", "00000001.values.bak", "notes.txt", "x00000001.values"}
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o666))
	}
	for i := range 30 {
		cached(t, dir, 5000, i)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, "mine", string(data))
	}
	require.Greater(t, len(files(t, dir)), 2)
}

// TestWritersTakeTurns: of many that write at a time, none spoils what another has written, and all of it is found in the end.
func TestWritersTakeTurns(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	const writers, entries = 4, 100
	for w := range writers {
		c, _ := cached(t, dir, 1<<20)
		all.Go(func() {
			for i := range entries {
				e := numbersOf(writers*i + w)
				c.refresh()
				if x, damaged := c.get(e.id, len(e.numbers)); !assert.False(t, damaged) || x != nil {
					return
				}
				c.put([]entry{e})
			}
		})
	}
	all.Wait()
	var list []int
	for i := range writers * entries {
		list = append(list, i)
	}
	_, had := cached(t, dir, 1<<20, list...)
	assert.Equal(t, len(list), had)
}

// FIFOs and devices in place of the cache's files turn it off with one warning: nothing waits for them or writes to them.
func TestCache_RefusesWhatIsNoFile(t *testing.T) {
	fifo := func(path string) error { return syscall.Mkfifo(path, 0o666) }
	device := func(path string) error { return os.Symlink("/dev/zero", path) }
	for name, put := range map[string]func(path string) error{"FIFO": fifo, "device": device} {
		for _, file := range []string{fmt.Sprintf(segmentPattern, 1), lockName} {
			t.Run(name+" as "+file, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, put(filepath.Join(dir, file)))
				var warnings []string
				c := openCache(dir, 1<<20, "program", func(s string) { warnings = append(warnings, s) })
				c.put([]entry{numbersOf(1)})
				require.NoError(t, c.close())
				require.Len(t, warnings, 1)
				require.Contains(t, warnings[0], filepath.Join(dir, file)+": not a regular file: give a file")
			})
		}
	}
}

// A header with a right checksum names a length that only a file with holes has.
func TestCache_TakesNoMoreThanAnEntryHas(t *testing.T) {
	dir := t.TempDir()
	e := numbersOf(1)
	h := record(e.id, nil)
	const size = 1 << 36
	binary.LittleEndian.PutUint64(h[40:], size)
	binary.LittleEndian.PutUint32(h[52:], crc32.Checksum(h[:52], castagnoli))
	path := filepath.Join(dir, fmt.Sprintf(segmentPattern, 1))
	require.NoError(t, os.WriteFile(path, h, 0o666))
	require.NoError(t, os.Truncate(path, headerBytes+size))
	c, _ := cached(t, dir, 1<<20)
	hostile.Bounded(t, 0, 0, func() {
		x, damaged := c.get(e.id, len(e.numbers))
		require.Nil(t, x)
		require.True(t, damaged)
	})
}
