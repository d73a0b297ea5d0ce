package spark

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// What every command gets as --memory here, and what its process may have had in memory at the most when it ends. The difference is
// the program itself, with its garbage.
const (
	memory = 64 << 20
	most   = 256 << 20
	limit  = time.Minute // of time
)

// peakFile is set in processes that are a command: the file that they write their greatest resident size to, in KiB.
const peakFile = "SPARK_TEST_PEAK"

func TestMain(m *testing.M) {
	path := os.Getenv(peakFile)
	if path == "" {
		os.Exit(m.Run())
	}
	// A command that asks for more ends at once, instead of this machine.
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 4 << 30, Max: 4 << 30}); err != nil {
		panic(err)
	}
	code := Main("spark", os.Args[1:], os.Stdout, os.Stderr)
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		err = os.WriteFile(path, status, 0o644)
	}
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}

// format is a kind of file that a command reads.
type format struct {
	name   string
	file   string   // what is attacked, in the folder that the command runs in
	args   string   // the command; it succeeds as long as the file is whole
	says   string   // what a refusal names; "": the file
	partly int      // the exit code of what is read in part
	slow   string   // the attack that is not tried, since the file is read whole, for the digest of a model
	own    []attack // of this format alone
}

// attack makes of a whole file one that does harm. Its file is removed before, so that make creates it.
type attack struct {
	name string
	make func(path string, whole []byte) error
}

func bytesOf(f func(whole []byte) []byte) func(path string, whole []byte) error {
	return func(path string, whole []byte) error { return os.WriteFile(path, f(whole), 0o644) }
}

// attacks are those on every format.
var attacks = []attack{
	{"empty", bytesOf(func([]byte) []byte { return nil })},
	{"cut in half", bytesOf(func(whole []byte) []byte { return whole[:len(whole)/2] })},
	{"its last byte is missing", bytesOf(func(whole []byte) []byte { return whole[:len(whole)-1] })},
	{"noise", bytesOf(func([]byte) []byte {
		rng, noise := rand.New(rand.NewPCG(1, 2)), make([]byte, 64<<10)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		return noise
	})},
	{"a million brackets", bytesOf(func([]byte) []byte { return bytes.Repeat([]byte("["), 1<<20) })},
	{"a directory", func(path string, _ []byte) error { return os.Mkdir(path, 0o755) }},
	{"a FIFO that nothing writes to", func(path string, _ []byte) error { return syscall.Mkfifo(path, 0o644) }},
	{"a link to /dev/zero", func(path string, _ []byte) error { return os.Symlink("/dev/zero", path) }},
	{"a terabyte of zeros", func(path string, _ []byte) error {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		return os.Truncate(path, 1<<40)
	}},
}

var formats = []format{
	{name: "ONNX", file: "m.onnx", args: "compile m.onnx -o out --quiet"},
	{name: "external data", file: "far.data", says: "far.onnx", slow: "a terabyte of zeros", args: "compile far.onnx -o out --quiet"},
	{name: "inputs, .npz", file: "x.npz", args: "run m.onnx --device emu --precision fp32 --input x.npz", own: []attack{
		{"another array of 6 GiB, compressed", func(path string, whole []byte) error { return zipOf(path, whole, "unused.npy", 6<<30) }},
		{"the array's name twice", func(path string, whole []byte) error { return zipOf(path, whole, "x.npy", 256) }},
	}},
	{name: "an input, .npy", file: "x.npy", args: "run m.onnx --device emu --precision fp32 --input x=x.npy"},
	{name: "expected outputs", file: "y.npz", args: "run m.onnx --device emu --precision fp32 --input x.npz --expect y.npz"},
	{name: "calibration inputs", file: "x.npz", args: "compile m.onnx -o out --precision fp8 --min-cosine 0 --quiet --calibrate x.npz"},
	{name: "kept calibration", file: "kept", args: "compile m.onnx -o out --precision fp8 --min-cosine 0 --quiet --calibrate x.npz --calibration kept"},
	{name: "tuned schedules", file: "tuned.json", args: "compile m.onnx -o out --quiet --tune-file tuned.json"},
	{name: "machine file", file: "machine.json", args: "compile m.onnx -o out --quiet --machine machine.json"},
	{name: "benchmark's baseline", file: "base.json", args: "bench m.onnx --device emu --runs 1 --warmup 0 --no-peer --quiet --baseline base.json"},
	{name: "package: program", file: "pkg/program.json", args: "run pkg --device emu", own: []attack{
		{"an arena of 4 EiB", bytesOf(func(whole []byte) []byte {
			return regexp.MustCompile(`"arena_bytes": \d+`).ReplaceAll(whole, []byte(`"arena_bytes": 4611686018427387904`))
		})},
	}},
	{name: "package: weights", file: "pkg/weights.bin", args: "run pkg --device emu"},
	{name: "package: kernels", file: "pkg/sm_121/kernels.ptx", args: "run pkg --device emu"},
	{name: "IR", file: "g.ir", args: "opt g.ir", own: []attack{
		{"a constant of 4 TiB", bytesOf(func([]byte) []byte {
			return []byte("graph \"g\" {\n  const %c: f32[1099511627776] = splat 1\n  %y: f32[1099511627776] = Exp(%c)\n  output %y\n}\n")
		})},
		{"the sum of a constant of 64 GiB", bytesOf(func([]byte) []byte {
			return []byte("graph \"g\" {\n  const %c: f32[17179869184] = splat 1\n  %y: f32[1] = ReduceSum(%c) {axes=[0], keepdims=true}\n  output %y\n}\n")
		})},
		{"a hundred thousand graphs in each other", bytesOf(func([]byte) []byte {
			return append([]byte("graph \"g\" {\n  input %x: f32[2]\n"), bytes.Repeat([]byte("%y: f32[2] = Region(%x) {family=\"loop\"} graph \"b\" {\n  input %x: f32[2]\n"), 100000)...)
		})},
	}},
	{name: "PTX", file: "k.ptx", args: "run --ptx k.ptx --kernel fill --arg out:u32[32]"},
	{name: "adapter", file: "a.safetensors", args: "dora merge m.onnx a.safetensors -o merged.onnx", own: []attack{
		{"a header of 2⁶³ bytes", bytesOf(func([]byte) []byte { return append(bytes.Repeat([]byte{0xff}, 7), 0x7f, '{', '}') })},
		{"a header of 20,000 nested lists", bytesOf(func([]byte) []byte {
			header := append([]byte(`{"a":`), bytes.Repeat([]byte("["), 20000)...)
			return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		})},
	}},
	{name: "training data, .npz", file: "data/1.npz", says: "data", args: "dora train --data data -o trained " + settings},
	{name: "checkpoint: state", file: "ended/update-000001/state.safetensors", says: "ended/update-000001", args: "dora train --data data -o ended --resume " + settings},
	{name: "frame, .png", file: "frames/000001_road.png", args: "run driven --replay frames --device emu",
		own: []attack{{"a header of 32768 × 32768 pixels", bytesOf(func(whole []byte) []byte {
			picture := bytes.Clone(whole)
			header := picture[12:29] // IHDR: PNG section 11.2.2
			binary.BigEndian.PutUint32(header[4:], 1<<15)
			binary.BigEndian.PutUint32(header[8:], 1<<15)
			binary.BigEndian.PutUint32(picture[29:], crc32.ChecksumIEEE(header))
			return picture
		})}}},
	{name: "log", file: "plain/ROUTE/rlog", says: "plain", partly: cli.Failed, args: "dora data --check plain", own: []attack{
		{"a message of 2³² segments", bytesOf(func([]byte) []byte { return []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0} })},
		{"a message of 8 GiB", bytesOf(func([]byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, 0x40} })},
	}},
	{name: "log, zstd", file: "zstd/ROUTE/rlog.zst", partly: cli.Failed, args: "dora data --check zstd", own: []attack{
		{"a window of 2 GiB", bytesOf(func([]byte) []byte { return zstdFrame(0, 21<<3) })},
		{"a window of 64 MiB", bytesOf(func([]byte) []byte { return zstdFrame(0, 16<<3) })},
		{"a frame that says it is of 1 TiB", bytesOf(func([]byte) []byte { return zstdFrame(0xe0, 0, 0, 0, 0, 0, 1, 0, 0) })},
		{"a gigabyte of zeros, compressed", bytesOf(func([]byte) []byte { return zstdZeros(1 << 30) })},
	}},
	{name: "log, bzip2", file: "bzip2/ROUTE/rlog.bz2", partly: cli.Failed, args: "dora data --check bzip2"},
	{name: "video", file: "videos/ROUTE/fcamera.hevc", says: route, partly: cli.Failed, args: "dora data --check videos --sheet sheet.png"},
}

const (
	settings = "--model m.onnx --teacher m.onnx --epochs 1 --batch-size 2 --dora-rank 1 --precision fp32 --val 0.5 --quiet"
)

// zipOf adds an array to an .npz: a complete header, then zeros, compressed.
func zipOf(path string, whole []byte, name string, size int64) error {
	old, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := zip.NewWriter(f)
	for _, entry := range old.File {
		if err := w.Copy(entry); err != nil {
			return err
		}
	}
	entry, err := w.Create(name)
	if err != nil {
		return err
	}
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (1, %d), }\n", size/4)
	fmt.Fprintf(entry, "\x93NUMPY\x01\x00%s%s", binary.LittleEndian.AppendUint16(nil, uint16(len(header))), header)
	zeros := make([]byte, min(size, 1<<20))
	for left := size; left > 0; left -= int64(len(zeros)) {
		if _, err := entry.Write(zeros); err != nil {
			return err
		}
	}
	return w.Close()
}

// zstdFrame is a frame of one raw block of four bytes: RFC 8878, section 3.1.1.
func zstdFrame(descriptor byte, rest ...byte) []byte {
	return slices.Concat([]byte{0x28, 0xb5, 0x2f, 0xfd, descriptor}, rest, []byte{0x21, 0, 0, 0, 0, 0, 0})
}

func zstdZeros(size int) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		panic(err)
	}
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		if _, err := w.Write(zeros); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// route is the name of the synthetic segment.
const route = "00000000--85ca9b8600--0"

// spark runs a command in a folder, as a process of its own, and returns what it printed and its greatest resident size in bytes.
func spark(t *testing.T, dir, args string) (code int, stdout, stderr string, peak int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	status := filepath.Join(t.TempDir(), "status")
	words := strings.Fields(args)
	words = append(words, fmt.Sprintf("--memory=%d", memory))
	cmd := exec.CommandContext(ctx, self, words...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &out, &errs, time.Second
	cmd.Env = append(os.Environ(), peakFile+"="+status, "GOGC=100", "GOMEMLIMIT=off")
	err = cmd.Run()
	require.NoError(t, ctx.Err(), "it has not ended in time")
	if err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(status)
	require.NoError(t, err, errs.String())
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(raw)
	require.NotNil(t, m)
	peak, err = strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), peak << 10
}

// whole makes a folder in which every format's command succeeds, where this machine has what that takes.
func whole(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	model := func(name string, external bool) {
		b := onnx.NewBuilder("m", 17)
		b.Input("x", ir.Float32, 1, 64)
		weights := make([]float64, 64*64)
		for i := range weights {
			weights[i] = float64(i%17-8) / 16
		}
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 64, 64), weights))
		b.Node("Relu", []string{b.Op("MatMul", []string{"x", w})}, []string{"y"})
		b.Output("y", ir.Float32, 1, 64)
		m, err := b.Model()
		require.NoError(t, err)
		if external {
			init := m.Proto.Graph.Initializer[0]
			require.NoError(t, os.WriteFile(filepath.Join(dir, "far.data"), init.RawData, 0o644))
			init.RawData, init.DataLocation = nil, onnxpb.TensorProto_EXTERNAL.Enum()
			init.ExternalData = []*onnxpb.StringStringEntryProto{{Key: proto.String("location"), Value: proto.String("far.data")}}
		}
		raw, err := proto.Marshal(m.Proto)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw, 0o644))
	}
	model("m.onnx", false)
	model("far.onnx", true)

	array := &npy.Array{DType: "f32", Shape: []int{1, 64}, Data: make([]byte, 256)}
	require.NoError(t, npy.WriteFile(filepath.Join(dir, "x.npy"), array))
	require.NoError(t, npy.WriteZip(filepath.Join(dir, "x.npz"), map[string]*npy.Array{"x": array}))
	require.NoError(t, npy.WriteZip(filepath.Join(dir, "y.npz"), map[string]*npy.Array{"y": array}))
	for i := range 4 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
		require.NoError(t, npy.WriteZip(filepath.Join(dir, "data", fmt.Sprintf("%d.npz", i)), map[string]*npy.Array{"x": array}))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k.ptx"), []byte(kernel), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "g.ir"), []byte("graph \"g\" {\n  input %x: f32[2]\n  %y: f32[2] = Exp(%x)\n  output %y\n}\n"), 0o644))
	for _, name := range []string{"vision", "policy"} {
		m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
		require.NoError(t, err)
		m, err = m.Plausible()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "driving_"+name+".onnx"), m.ONNX, 0o644))
	}
	road, wide := openpilot.Cameras(16)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "frames"), 0o755))
	require.NoError(t, openpilot.WriteDirectory(filepath.Join(dir, "frames"), openpilot.PNG, road, wide, 2))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "machine.json"), []byte(machine), 0o644))
	for _, args := range []string{
		fmt.Sprintf("compile driving_vision.onnx driving_policy.onnx -o driven --precision fp32 --quiet --camera %dx%d", road.Width, road.Height),
		"compile m.onnx -o pkg --quiet",
		"compile m.onnx -o tuned --quiet --tune --tune-budget 1 --tune-file tuned.json",
		"compile m.onnx -o kept8 --quiet --precision fp8 --min-cosine 0 --calibrate x.npz --calibration kept",
		"bench m.onnx --device emu --runs 1 --warmup 0 --no-peer --quiet --json base.json",
		"dora init m.onnx -o a.safetensors --rank 1",
		"dora train --data data -o ended " + settings,
		"dora data --synthesise zstd --routes 1 --seconds 1 --width 64 --height 40 --quiet",
	} {
		code, stdout, stderr, _ := spark(t, dir, args)
		require.Equal(t, cli.Done, code, "%s\n%s%s", args, stdout, stderr)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "zstd", route, "rlog.zst"))
	require.NoError(t, err)
	decoder, err := zstd.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	defer decoder.Close()
	raw, err = io.ReadAll(decoder)
	require.NoError(t, err)
	log := func(form, name string, raw []byte) {
		require.NoError(t, os.CopyFS(filepath.Join(dir, form), os.DirFS(filepath.Join(dir, "zstd"))))
		require.NoError(t, os.Remove(filepath.Join(dir, form, route, "rlog.zst")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, form, route, name), raw, 0o644))
	}
	log("plain", "rlog", raw)
	interpreter, err := toolchain.FindPython()
	if err != nil {
		return dir
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "-c", "import bz2, sys; sys.stdout.buffer.write(bz2.compress(sys.stdin.buffer.read(), 1))")
	cmd.Stdin = bytes.NewReader(raw)
	raw, err = cmd.Output()
	require.NoError(t, err)
	log("bzip2", "rlog.bz2", raw)
	if ffmpeg, err := exec.Command(interpreter, "-c", "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())").Output(); err == nil {
		t.Setenv(camera.FFmpegVariable, strings.TrimSpace(string(ffmpeg)))
		args := "dora data --synthesise videos --routes 1 --seconds 1 --width 64 --height 40 --video --quiet"
		code, stdout, stderr, _ := spark(t, dir, args)
		require.Equal(t, cli.Done, code, "%s\n%s%s", args, stdout, stderr)
	}
	return dir
}

// address is what differs between runs in the messages of ffmpeg.
var address = regexp.MustCompile(` @ 0x[0-9a-f]+`)

// says is what a user sees, in one line: the last one of a message that names the file, else the last one.
func says(code int, file, stderr string) string {
	if code == cli.Done {
		return "nothing: it is read"
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	said := lines[len(lines)-1]
	for _, line := range lines {
		if strings.Contains(line, filepath.Base(file)) {
			said = line
		}
	}
	said = strings.ReplaceAll(address.ReplaceAllString(said, ""), route, "ROUTE")
	return strings.ReplaceAll(said, "\u00a0", " ") // protobuf's errors have one space or the other, by the program's hash
}

// The table of all results, and the page about it.
const (
	results = "../../../docs/data/hostile-files.csv"
	page    = "../../../docs/hostile-files.md"
)

// TestHostileFiles_AreRefusedInBoundedTime: every attack on every format ends within a minute and in bounded memory,
// without a stack trace; what is refused is refused as bad input, by a message that names the file, and leaves no output.
// The table has what is said: UPDATE=1 writes it.
func TestHostileFiles_AreRefusedInBoundedTime(t *testing.T) {
	fulltest.Long(t)
	base := whole(t)
	rows := make([][][]string, len(formats))
	t.Run("formats", func(t *testing.T) {
		for i, f := range formats {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				rows[i] = f.attacked(t, base)
			})
		}
	})
	raw, err := os.ReadFile(results)
	require.NoError(t, err)
	have, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	require.NoError(t, err)
	want := [][]string{{"format", "command", "file", "attack", "exit", "message"}}
	for i, f := range formats {
		if rows[i] == nil { // Python or ffmpeg is missing
			for _, row := range have {
				if row[0] == f.name {
					rows[i] = append(rows[i], row)
				}
			}
		}
		want = append(want, rows[i]...)
	}
	golden.CSV(t, results, want)
	golden.States(t, page, fmt.Sprintf("%d files in %d formats", len(want)-1, len(formats)))
}

// attacked tries all attacks on a format, and returns its rows of the table; nil where this machine cannot make a whole
// file of it.
func (f *format) attacked(t *testing.T, base string) [][]string {
	file := strings.ReplaceAll(f.file, "ROUTE", route)
	whole, err := os.ReadFile(filepath.Join(base, file))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no %s: Python or ffmpeg is missing", file)
	}
	require.NoError(t, err)
	code, stdout, stderr, _ := spark(t, copied(t, base, f.args), f.args)
	require.Equal(t, cli.Done, code, "%s%s", stdout, stderr)

	all := append(slices.Clone(attacks), f.own...)
	rows := make([][]string, len(all))
	row := func(attack, exit, message string) []string {
		return []string{f.name, "spark " + f.args, f.file, attack, exit, message}
	}
	t.Run("attacks", func(t *testing.T) {
		for i, a := range all {
			if a.name == f.slow {
				rows[i] = row(a.name, "", "not tried: all of it counts for the model's digest, which takes as long as reading it")
				continue
			}
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				dir := copied(t, base, f.args)
				path := filepath.Join(dir, file)
				require.NoError(t, os.Remove(path))
				require.NoError(t, a.make(path, whole))
				code, stdout, stderr, peak := spark(t, dir, f.args)
				require.LessOrEqual(t, peak, most, "bytes of memory\n%s", stderr)
				require.NotContains(t, stderr, "goroutine ")
				if code != cli.Done {
					require.Contains(t, []int{cli.BadInput, f.partly}, code, "%s%s", stdout, stderr)
					require.Contains(t, stderr, cmp.Or(f.says, filepath.Base(file)))
					for _, output := range []string{"out", "merged.onnx", "trained/last.safetensors"} {
						_, err := os.Lstat(filepath.Join(dir, output))
						require.ErrorIs(t, err, fs.ErrNotExist, output)
					}
				}
				rows[i] = row(a.name, strconv.Itoa(code), says(code, file, stderr))
			})
		}
	})
	return rows
}

// copied is a folder with what a command names of another.
func copied(t *testing.T, from, args string) string {
	t.Helper()
	to := t.TempDir()
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		path, there := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir() && slices.Contains(strings.Fields(args), e.Name()):
			require.NoError(t, os.CopyFS(there, os.DirFS(path)))
		case !e.IsDir():
			require.NoError(t, os.Link(path, there))
		}
	}
	return to
}

const machine = `{"format": 2, "target": "sm_121", "device": "a GPU", "backend": "cuda", "figures": {"launch_us": {"low": 9, "middle": 10, "high": 11}}}`

const kernel = `.version 8.8
.target sm_121
.address_size 64
.visible .entry fill(.param .u64 y)
.reqntid 32
{
	.reg .b32 %r<2>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [y];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}
`
