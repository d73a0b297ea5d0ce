package npy

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// headerOf is a .npy file's, version 1.0, with any text.
func headerOf(text string) string {
	return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(text)))) + text
}

func literal(descr, order, shape string) string {
	return headerOf(fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", descr, order, shape))
}

// entry is a member of a .zip file whose directory says what it likes.
type entry struct {
	name     string
	data     string // inflated
	declared uint64 // 0: the truth
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		var packed bytes.Buffer
		d, err := flate.NewWriter(&packed, flate.BestCompression)
		require.NoError(t, err)
		_, err = d.Write([]byte(e.data))
		require.NoError(t, err)
		require.NoError(t, d.Close())
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, CRC32: crc32.ChecksumIEEE([]byte(e.data))}
		h.CompressedSize64, h.UncompressedSize64 = uint64(packed.Len()), uint64(len(e.data))
		if e.declared > 0 {
			h.UncompressedSize64 = e.declared
		}
		w, err := z.CreateRaw(h)
		require.NoError(t, err)
		_, err = w.Write(packed.Bytes())
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestRead_HostileHeaders(t *testing.T) {
	defer memory.Limit(1 << 20)()
	for name, c := range map[string]struct{ data, want string }{
		"overflow":   {literal("<f4", "False", "4294967296, 4294967296, 4294967296"), "is too large"},
		"dimension":  {literal("<f4", "False", "99999999999999999999"), "dimension 99999999999999999999 is too large"},
		"rank":       {literal("<f4", "False", strings.Repeat("1, ", 65)), "65 dimensions, more than the 64"},
		"negative":   {literal("<f4", "False", "-1,"), "not a .npy file: header"},
		"object":     {literal("|O", "False", "1,"), `elements of NumPy type "|O" are not supported`},
		"structured": {headerOf("{'descr': [('x', '<f4')], 'shape': (1,), }"), "not a .npy file: header"},
		"budget":     {literal("<f4", "False", "1073741824,"), "an array of shape [1073741824] needs 4 GiB of memory"},
		"columns":    {literal("|u1", "True", "1024, 1024"), "an array of shape [1024 1024] needs 2 MiB of memory"},
		"long":       {"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes, more than 10000"},
		"cut":        {literal("<f4", "False", "2,") + "1234", "4 bytes of data, shape [2] needs 8"},
	} {
		t.Run(name, func(t *testing.T) {
			hostile.Bounded(t, len(c.data), 512, func() {
				_, err := Read(strings.NewReader(c.data))
				require.ErrorContains(t, err, c.want)
				require.Less(t, len(err.Error()), 1000)
			})
		})
	}
}

func TestReadFile_TakesNoMoreThanTheFileHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	data := literal("|u1", "False", "67108864,")
	require.NoError(t, os.WriteFile(path, []byte(data), 0o666))
	hostile.Bounded(t, len(data), 512, func() {
		_, err := ReadFile(path)
		require.ErrorContains(t, err, path+": 0 bytes of data, shape [67108864] needs 67108864")
	})
}

func TestZip_Hostile(t *testing.T) {
	defer memory.Limit(16 << 20)()
	array := literal("|u1", "False", "2,") + "ab"
	for name, c := range map[string]struct {
		entries []entry
		want    string
	}{
		"twice":         {[]entry{{name: "x.npy", data: array}, {name: "x.npy", data: array}}, `array "x" is there twice`},
		"two spellings": {[]entry{{name: "x.npy", data: array}, {name: "x", data: array}}, `array "x" is there twice`},
		"bomb": {[]entry{{name: "x.npy", data: array + strings.Repeat("0", 64<<20), declared: uint64(len(array))}},
			"x.npy: zip: not a valid zip file"},
		"large":      {[]entry{{name: "x.npy", data: bytesOf(32 << 20)}}, "x.npy: reading it needs 32 MiB"},
		"impossible": {[]entry{{name: "x.npy", data: array, declared: 8 << 20}}, "cannot inflate to 8388608"},
		"no array":   {[]entry{{name: "x.npy", data: "PK"}}, "x.npy: not a .npy file"},
		"several": {[]entry{{name: "x.npy", data: bytesOf(9 << 20)}, {name: "y.npy", data: bytesOf(9 << 20)}},
			"y.npy: reading it needs 18 MiB"},
		"shape": {[]entry{{name: "x.npy", data: literal("|u1", "False", "8388608,")}},
			"x.npy: 0 bytes of data, shape [8388608] needs 8388608"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.npz")
			require.NoError(t, os.WriteFile(path, zipOf(t, c.entries...), 0o666))
			if name != "several" {
				hostile.Bounded(t, 1000, 512, func() { _, _ = ReadZip(path) })
			}
			_, err := ReadZip(path)
			require.ErrorContains(t, err, path+": ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func bytesOf(n int) string {
	return literal("|u1", "False", fmt.Sprint(n, ",")) + strings.Repeat("0", n)
}

// The directory of a .zip file is searched from the end, in a file of a known size.
func TestOpen_FIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	_, err := Open(path)
	require.EqualError(t, err, "open "+path+": not a regular file: give a file")
}

// A list of many tiny arrays, of long names or of comments takes no memory beyond the budget.
func TestOpen_ListsBeyondTheBudget(t *testing.T) {
	const budget = 8 << 20
	defer memory.Limit(budget)()
	for name, c := range map[string]struct {
		count  int
		header func(i int) *zip.FileHeader
	}{
		"many arrays": {200_000, func(i int) *zip.FileHeader { return &zip.FileHeader{Name: fmt.Sprint(i)} }},
		"long names":  {200, func(i int) *zip.FileHeader { return &zip.FileHeader{Name: fmt.Sprintf("%060000d", i)} }},
		"comments": {200, func(i int) *zip.FileHeader {
			return &zip.FileHeader{Name: fmt.Sprint(i), Comment: strings.Repeat("c", 60000)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.npz")
			f, err := os.Create(path)
			require.NoError(t, err)
			z := zip.NewWriter(f)
			for i := range c.count {
				_, err := z.CreateRaw(c.header(i))
				require.NoError(t, err)
			}
			require.NoError(t, z.Close())
			require.NoError(t, f.Close())
			took := hostile.Allocated(func() { _, err = Open(path) })
			require.ErrorContains(t, err, path+": the list of its arrays needs ")
			require.ErrorContains(t, err, "(--memory)")
			require.Less(t, took, int64(budget+1<<20))
			restore, taken := memory.Limit(1<<30), int64(0)
			took = hostile.Allocated(func() {
				r, err := Open(path)
				require.NoError(t, err)
				require.Len(t, r.Names(), c.count)
				taken = r.taken
				require.NoError(t, r.Close())
			})
			restore()
			t.Logf("%d bytes of memory, of %d counted", took, taken)
			require.Less(t, took, taken+listed*unlisted, "the list takes no more than what is counted")
		})
	}
}

// Zip64's sizes are read where the 32 bits of the directory are all ones.
func TestOpen_DirectoryThatLies(t *testing.T) {
	whole := zipOf(t, entry{name: "x.npy", data: literal("|u1", "False", "2,") + "ab"})
	directory := bytes.Index(whole, []byte("PK\x01\x02"))
	for name, spoil := range map[string]func(b []byte){
		"compressed size":  func(b []byte) { binary.LittleEndian.PutUint32(b[directory+20:], 1<<31) },
		"size":             func(b []byte) { binary.LittleEndian.PutUint32(b[directory+24:], 1<<31) },
		"size of 64 bits":  func(b []byte) { binary.LittleEndian.PutUint32(b[directory+24:], 1<<32-1) },
		"offset":           func(b []byte) { binary.LittleEndian.PutUint32(b[directory+42:], 1<<31) },
		"number of arrays": func(b []byte) { binary.LittleEndian.PutUint16(b[len(b)-12:], 60000) },
		"place":            func(b []byte) { binary.LittleEndian.PutUint32(b[len(b)-6:], 1<<31) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(whole)
			spoil(b)
			path := filepath.Join(t.TempDir(), "x.npz")
			require.NoError(t, os.WriteFile(path, b, 0o666))
			hostile.Bounded(t, len(b), 512, func() {
				_, err := ReadZip(path)
				require.ErrorContains(t, err, path+": ")
			})
		})
	}
}

// FuzzRead reads whatever there may be in a .npy file: an array of the size that its shape needs, or an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte(literal("|u1", "False", "2,") + "ab"))
	f.Add([]byte(literal("<f4", "True", "2, 1") + "abcdefgh"))
	f.Add([]byte(literal("<f8", "False", "1073741824, 1073741824")))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	defer memory.Limit(64 << 10)()
	f.Fuzz(func(t *testing.T, data []byte) {
		hostile.Bounded(t, len(data), 64, func() {
			a, err := Read(bytes.NewReader(data))
			if err != nil {
				return
			}
			n := a.size()
			for _, d := range a.Shape {
				n *= d
			}
			require.Len(t, a.Data, n)
			var b bytes.Buffer
			require.NoError(t, Write(&b, a))
			again, err := Read(&b)
			require.NoError(t, err)
			require.Equal(t, a, again)
		})
	})
}

// FuzzReadZip reads whatever there may be in a .npz file.
func FuzzReadZip(f *testing.F) {
	array := literal("|u1", "False", "2,") + "ab"
	f.Add(zipOf(f, entry{name: "x.npy", data: array}, entry{name: "y.npy", data: array}))
	f.Add(zipOf(f, entry{name: "x.npy", data: array, declared: 1 << 40}))
	f.Add(zipOf(f, entry{name: "x.npy", data: array + strings.Repeat("0", 1<<16), declared: uint64(len(array))}))
	defer memory.Limit(64 << 10)()
	path := filepath.Join(f.TempDir(), "x.npz")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o666))
		hostile.Bounded(t, len(data), 512, func() {
			arrays, err := ReadZip(path)
			if err != nil {
				require.ErrorContains(t, err, path)
			}
			total := 0
			for _, a := range arrays {
				total += len(a.Data)
			}
			require.LessOrEqual(t, total, 64<<10)
		})
	})
}
