// Package guide_test runs what the guide shows. The pages are read in the order of a first visit, in one scratch directory,
// with small generated models standing in for openpilot's. A fenced block is
//
//	sh      commands. They must succeed; "# exit 1" at the end of the last one says that it fails, and how.
//	output  lines that the commands of the block before print, in this order. … stands for any text, such as times and digests; numbers
//	        are the same, or, where the fence says "output 5%", as far from those that are shown at most.
//	go      a file if its first line is a comment with a name in .go, else the body of a function, which is compiled and run
//	python  a program, run where SPARK_PYTHON names a Python with NumPy
//	text    not run: it needs a GPU, a network, or somebody to watch
//
// Commands that compare with ONNX Runtime run where SPARK_PYTHON names a Python.
package guide_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/clone"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
	"github.com/spark-compile/spark-compile/testdata/gen/keeper"
)

var pages = []string{"../../README.md", "install.md", "compile.md", "precision.md", "report.md", "run.md", "bench.md", "go-package.md", "openpilot.md", "python.md", "adapters.md", "data.md", "train.md", "simulate.md", "compare.md", "drives.md", "policies.md", "spark.md", "troubleshooting.md"}

// standins are the names of openpilot's files, and what the generator calls such a model.
var standins = map[string]string{"driving_vision": "vision", "driving_policy": "policy", "dmonitoring_model": "dmonitoring", "driving_supercombo": "supercombo"}

type block struct {
	lang, text string
	tolerance  float64 // of numbers, relative
	line       int
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)(?: ([0-9.]+)%)?\n(.*?)^```$")

func blocks(t *testing.T, page string) (out []block) {
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range fence.FindAllSubmatchIndex(raw, -1) {
		b := block{lang: string(raw[m[2]:m[3]]), text: string(raw[m[6]:m[7]]), line: 1 + bytes.Count(raw[:m[0]], []byte("\n"))}
		if m[4] >= 0 {
			b.tolerance, err = strconv.ParseFloat(string(raw[m[4]:m[5]]), 64)
			require.NoError(t, err)
			b.tolerance /= 100
		}
		out = append(out, b)
	}
	return out
}

func TestGuide_CommandsPrintWhatIsShown(t *testing.T) {
	fulltest.Long(t)
	g := newGuide(t)
	for _, page := range pages {
		if page == pythonPage {
			t.Run(page, func(t *testing.T) {
				g.withLibrary(t)
				g.page(t, page)
			})
			continue
		}
		g.page(t, page)
	}
}

const pythonPage = "python.md"

// withLibrary has Python find the package and the C library; without Python or a C compiler the test is skipped.
func (g *guide) withLibrary(t *testing.T) {
	if os.Getenv("SPARK_PYTHON") == "" {
		t.Skip("not run, since SPARK_PYTHON is not set")
	}
	library, _ := clibrary.Build(t)
	clibrary.Reads(t, "../../python/sparkcompile", "../../examples/c")
	g.env = append(g.env, "SPARKCOMPILE_LIBRARY="+library, "PYTHONPATH="+filepath.Join(g.root, "python"), "PYTHONDONTWRITEBYTECODE=1")
}

// page runs what a page shows.
func (g *guide) page(t *testing.T, page string) {
	var last string
	skipped := false
	for _, b := range blocks(t, page) {
		if b.lang != "output" {
			skipped = strings.Contains(b.text, "--compare onnxruntime") && os.Getenv("SPARK_PYTHON") == ""
		}
		if skipped {
			t.Logf("%s:%d is not run, since SPARK_PYTHON is not set", page, b.line)
			continue
		}
		at := fmt.Sprintf("%s:%d", page, b.line)
		switch b.lang {
		case "sh":
			last = g.shell(t, at, b.text)
		case "output":
			if missing := firstMissing(last, b.text, b.tolerance); missing != "" {
				t.Errorf("%s: %q is not in the output:\n%s", at, missing, last)
			}
		case "go":
			g.golang(t, at, b.text)
		case "python":
			if page == pythonPage {
				last = g.python(t, at, b.text)
				continue
			}
			t.Run(at, func(t *testing.T) {
				g.withLibrary(t)
				last = g.python(t, at, b.text)
			})
		case "text":
		default:
			t.Errorf("%s: a block in %q, of which nobody knows how to run it", at, b.lang)
		}
	}
}

var figure = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?`)

// firstMissing returns the first line that is not in the output after the line before it. Runs of spaces are
// alike, and numbers that are within the tolerance.
func firstMissing(output, lines string, tolerance float64) string {
	have := strings.Split(output, "\n")
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		var shown []string
		for i := range words {
			var word string
			left := words[i]
			for at := figure.FindStringIndex(left); tolerance > 0 && at != nil; at = figure.FindStringIndex(left) {
				word += regexp.QuoteMeta(left[:at[0]]) + "(" + figure.String() + ")"
				shown, left = append(shown, left[at[0]:at[1]]), left[at[1]:]
			}
			words[i] = strings.ReplaceAll(word+regexp.QuoteMeta(left), "…", ".*")
		}
		if len(words) == 0 {
			continue
		}
		is := regexp.MustCompile(`^\s*` + strings.Join(words, `\s+`) + `\s*$`)
		at := slices.IndexFunc(have, func(s string) bool {
			got := is.FindStringSubmatch(s)
			return got != nil && slices.EqualFunc(got[1:], shown, func(x, y string) bool { return near(x, y, tolerance) })
		})
		if at < 0 {
			return strings.TrimSpace(line)
		}
		have = have[at+1:]
	}
	return ""
}

// near reports whether a printed number is within a relative tolerance of the one that is shown.
func near(got, shown string, tolerance float64) bool {
	x, err := strconv.ParseFloat(got, 64)
	y, err2 := strconv.ParseFloat(shown, 64)
	return err == nil && err2 == nil && math.Abs(x-y) <= tolerance*math.Abs(y)
}

func TestOutputIsComparedInOrder(t *testing.T) {
	const out = "warning: slow\nlayer  op   µs\nfc     Gemm 1.5\ntotal 3\n"
	require.Empty(t, firstMissing(out, "layer op µs\nfc Gemm …\n\ntotal 3\n", 0))
	require.Equal(t, "layer op µs", firstMissing(out, "fc Gemm …\nlayer op µs\n", 0))
	require.Equal(t, "fc Gemm", firstMissing(out, "fc Gemm\n", 0))
	require.Equal(t, "total (3)", firstMissing(out, "total (3)\n", 0))
}

// TestFiguresAreComparedWithinTheTolerance, every one in a line, and the text between them to the letter.
func TestFiguresAreComparedWithinTheTolerance(t *testing.T) {
	const out = "fp8: 0.9995 (1.2e-07 worse) in 12 launches\nx[1, 25]\n"
	for line, ok := range map[string]bool{
		"fp8: 0.9995 (1.2e-07 worse) in 12 launches": true,
		"fp8: 0.995 (1.205e-7 worse) in … launches":  true,
		"fp8: 0.98 (1.2e-07 worse) in 12 launches":   false,
		"fp8: 0.9995 (1.3e-07 worse) in 12 launches": false,
		"fp8: 0.9995 (1.2e-06 worse) in 12 launches": false,
		"fp8: 0.9995 (1.2e-07 worse) in 13 launches": false,
		"fp8: 0.9995 (1.2e-07 more) in 12 launches":  false,
		"fp6: 0.9995 (1.2e-07 worse) in 12 launches": false,
		"x[1, 25]": true,
		"x[1, 26]": false,
		"x[1 25]":  false,
	} {
		require.Equal(t, ok, firstMissing(out, line, 0.01) == "", line)
	}
	require.Equal(t, "x[1, 24]", firstMissing(out, "x[1, 24]", 0))
}

// guide is the scratch directory.
type guide struct {
	dir, root string
	env       []string
	snippets  int
}

// newGuide builds the commands and makes the files that the pages name.
func newGuide(t *testing.T) *guide {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	g := &guide{dir: t.TempDir(), root: root}
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/spark")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	sizes(t, filepath.Join(bin, "spark"))
	commands, err := filepath.Glob(filepath.Join(root, "cmd", "spark-*"))
	require.NoError(t, err)
	require.NotEmpty(t, commands)
	for _, c := range commands {
		require.NoError(t, os.Symlink("spark", filepath.Join(bin, filepath.Base(c))))
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "OPENPILOT_") && name != "PTXAS" {
			g.env = append(g.env, v)
		}
	}
	g.env = append(g.env, "PATH="+bin+":"+os.Getenv("PATH"), "SPARK_DEVICE=emu", "SPARK_CACHE="+filepath.Join(t.TempDir(), "cache"),
		"GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, clone.Write(t.Context(), g.dir, d, clone.Options{Seed: 1}, .05))
	m, err := keeper.Fitted()
	require.NoError(t, err)
	file, err := m.ONNX()
	require.NoError(t, err)
	require.NoError(t, file.Save(filepath.Join(g.dir, "keeper.onnx")))
	for file, model := range standins {
		m, err := driving.Made(model, driving.Small)
		require.NoError(t, err)
		g.write(t, file+".onnx", m.ONNX)
		decoded, err := onnx.Decode(file, m.ONNX)
		require.NoError(t, err)
		graph, err := onnx.Import(decoded, onnx.ImportOptions{})
		require.NoError(t, err)
		switch model {
		case "policy":
			for i := range 8 {
				g.inputs(t, fmt.Sprintf("calibration/%02d.npz", i), m, i)
			}
			for i := range 2 {
				g.inputs(t, fmt.Sprintf("validation/%02d.npz", i), m, 100+i)
				g.golden(t, fmt.Sprintf("expected/%02d.npz", i), m, graph, 100+i)
			}
		case "vision":
			g.inputs(t, "frames.npz", m, 0)
			g.golden(t, "golden.npz", m, graph, 0)
			g.golden(t, "other.npz", m, graph, 1)
			g.warped(t, m.Inputs[0].Type.Shape)
		}
	}
	g.drive(t)
	g.detector(t)
	g.write(t, "pointer.onnx", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 46\n"))
	return g
}

// sizes compares the program with the size that install.md gives it, within a twentieth.
func sizes(t *testing.T, program string) {
	info, err := os.Stat(program)
	require.NoError(t, err)
	column, found := map[string]int{"amd64": 1, "arm64": 2}[runtime.GOARCH]
	if !found {
		return
	}
	raw, err := os.ReadFile("install.md")
	require.NoError(t, err)
	m := regexp.MustCompile(`\| .spark. \| ([0-9.]+) \| ([0-9.]+) \|`).FindSubmatch(raw)
	require.NotNil(t, m, "install.md does not say how large spark is")
	megabytes, err := strconv.ParseFloat(string(m[column]), 64)
	require.NoError(t, err)
	require.InEpsilon(t, megabytes, float64(info.Size())/1e6, 0.05, "install.md: the size of spark in MB")
}

// drive writes frames of a drive.
func (g *guide) drive(t *testing.T) {
	road, wide := openpilot.Cameras(8)
	dir := filepath.Join(g.dir, "drive")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, openpilot.WriteDirectory(dir, openpilot.NPZ, road, wide, 3))
}

// detector writes the end of a detector: boxes and scores.
func (g *guide) detector(t *testing.T) {
	b := onnx.NewBuilder("detector", 17)
	b.Input("boxes", ir.Float32, 1, 200, 4)
	b.Input("scores", ir.Float32, 1, 3, 200)
	b.Initializer("most", ir.Vector(20))
	b.Initializer("iou", ir.FromFloats(ir.T(ir.Float32, 1), []float64{0.5}))
	b.Node("NonMaxSuppression", []string{"boxes", "scores", "most", "iou"}, []string{"picked"}).Name = proto.String("/nms")
	b.Output("picked", ir.Int64, "n", 3)
	m, err := b.Model()
	require.NoError(t, err)
	require.NoError(t, m.Save(filepath.Join(g.dir, "detector.onnx")))
}

func (g *guide) write(t *testing.T, name string, data []byte) {
	path := filepath.Join(g.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func (g *guide) zip(t *testing.T, name string, arrays map[string]*npy.Array) {
	g.write(t, name, nil)
	require.NoError(t, npy.WriteZip(filepath.Join(g.dir, name), arrays))
}

// inputs writes a draw of a model's inputs.
func (g *guide) inputs(t *testing.T, name string, m *driving.Model, seed int) {
	arrays := map[string]*npy.Array{}
	for _, q := range m.Inputs {
		x := q.Draw(uint64(seed))
		arrays[q.Name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
	}
	g.zip(t, name, arrays)
}

// golden writes the outputs of a draw, evaluated in float64.
func (g *guide) golden(t *testing.T, name string, m *driving.Model, graph *ir.Graph, seed int) {
	in, arrays := map[string]*ir.Array{}, map[string]*npy.Array{}
	for _, q := range m.Inputs {
		in[q.Name] = q.Draw(uint64(seed)).Array()
	}
	out, err := ir.Evaluate(context.Background(), graph, in, ir.EvalOptions{})
	require.NoError(t, err)
	for n, a := range out {
		x := ir.FromFloats(ir.T(ir.Float64, a.Shape...), a.Floats())
		arrays[n] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
	}
	g.zip(t, name, arrays)
}

// warped writes camera frames as the page on calibration has them, of the size that the model wants: planes y, u, v.
func (g *guide) warped(t *testing.T, input []int) {
	h, w := 2*input[2], 2*input[3]
	for frame := range 12 {
		for _, camera := range []string{"road", "wide"} {
			plane := func(h, w, k int) *npy.Array {
				a := &npy.Array{DType: "u8", Shape: []int{h, w}, Data: make([]byte, h*w)}
				for i := range a.Data {
					a.Data[i] = byte(k*(i%w) + 3*frame*(i/w) + len(camera))
				}
				return a
			}
			g.zip(t, fmt.Sprintf("warped/%s_%04d.npz", camera, frame), map[string]*npy.Array{"y": plane(h, w, 2), "u": plane(h/2, w/2, 3), "v": plane(h/2, w/2, 5)})
		}
	}
}

var exits = regexp.MustCompile(`# exit (\d+)\s*$`)

// shell runs commands and returns what they print.
func (g *guide) shell(t *testing.T, at, text string) string {
	want := "0"
	if m := exits.FindStringSubmatch(text); m != nil {
		want = m[1]
	}
	cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(text, "/path/to/spark-compile", "'"+g.root+"'"))
	cmd.Dir, cmd.Env = g.dir, g.env
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%s: %v", at, err)
	}
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != want {
		t.Errorf("%s: exit %s, want %s:\n%s\n%s", at, got, want, text, out)
	}
	return string(out)
}

// golang writes a file of the module that the page makes. A snippet becomes a test, which a later block runs.
func (g *guide) golang(t *testing.T, at, text string) {
	if m := regexp.MustCompile(`^// (\w+\.go)\n`).FindStringSubmatch(text); m != nil {
		g.write(t, m[1], []byte(text))
		return
	}
	g.snippets++
	uses := map[string]string{"runtime.": "github.com/spark-compile/spark-compile/runtime", "fmt.": "fmt", "replay.": "github.com/spark-compile/spark-compile/runtime/modeld/replay", "drivingvision.": "example.com/drive/drivingvision",
		"drivingpolicy.": "example.com/drive/drivingpolicy", "driving.": "example.com/drive/driving", "modeld.": "github.com/spark-compile/spark-compile/runtime/modeld", "drivingsupercombo.": "example.com/drive/drivingsupercombo", "policyslots.": "example.com/drive/policyslots", "float16.": "github.com/x448/float16",
		"scenario.": "github.com/spark-compile/spark-compile/bench/scenario", "emu.": "github.com/spark-compile/spark-compile/hal/emu"}
	imports := ""
	for word, path := range uses {
		if strings.Contains(text, word) {
			imports += fmt.Sprintf("\t%q\n", path)
		}
	}
	g.write(t, fmt.Sprintf("snippet%d_test.go", g.snippets), fmt.Appendf(nil, "package main\n\nimport (\n\t\"context\"\n\t\"testing\"\n%s)\n\nfunc snippet%d(ctx context.Context) error {\n%s\nreturn nil\n}\n\n// %s\nfunc TestSnippet%d(t *testing.T) {\n\tif err := snippet%d(t.Context()); err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n",
		imports, g.snippets, text, at, g.snippets, g.snippets))
}

// python runs a program and returns what it prints.
func (g *guide) python(t *testing.T, at, text string) string {
	cmd := exec.Command(os.Getenv("SPARK_PYTHON"), "-c", text)
	cmd.Dir, cmd.Env = g.dir, g.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", at, out)
	t.Logf("%s: ran", at)
	return string(out)
}

// TestFlagsOfTheGuide: a page names no flag that no command has, and every flag is in some page.
func TestFlagsOfTheGuide(t *testing.T) {
	fulltest.Long(t)
	known := map[string]bool{}
	for _, f := range strings.Fields("gpus ignore-missing strip-components mca nnodes nproc-per-node node-rank master-addr no-python") {
		known["--"+f] = true // of docker, sha256sum, tar, mpirun and torchrun
	}
	var all []string
	for _, c := range []string{"compile", "run", "bench", "info", "opt", "dora", "dora init", "dora inspect", "dora merge", "dora diff", "dora data", "dora train", "sim", "sim list", "sim show", "sim run", "sim compare", "sim replay"} {
		out, err := exec.Command("go", append([]string{"run", "../../cmd/spark"}, strings.Fields(c+" --help")...)...).Output()
		require.NoError(t, err)
		for _, f := range regexp.MustCompile(`--(\[no-\])?[a-z][a-z-]*`).FindAllString(string(out), -1) {
			known[strings.Replace(f, "[no-]", "", 1)] = true
			f = strings.Replace(f, "[no-]", "no-", 1)
			known[f] = true
			if f != "--help" {
				all = append(all, f)
			}
		}
	}
	named := map[string]bool{}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, f := range regexp.MustCompile("(?:^|[ `(\n])(--[a-z][a-z-]*)").FindAllStringSubmatch(string(raw), -1) {
			if !known[f[1]] {
				t.Errorf("%s: no command has %s", page, f[1])
			}
			named[f[1]] = true
		}
	}
	for _, f := range all {
		if !named[f] {
			t.Errorf("no page says what %s does", f)
		}
	}
}

// TestReadme_RepeatsFiguresOfTheResults, which are made again now and then.
func TestReadme_RepeatsFiguresOfTheResults(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	results, err := os.ReadFile("../results.md")
	require.NoError(t, err)
	figure := regexp.MustCompile(`\b\d+\.\d+(e-\d+)?|\b\de-\d`)
	have := figure.FindAllString(string(results), -1)
	_, table, _ := strings.Cut(string(readme), "## What it gains")
	table, _, _ = strings.Cut(table, "## ")
	count := 0
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "|") {
			for _, f := range figure.FindAllString(line, -1) {
				count++
				require.Contains(t, have, f, line)
			}
		}
	}
	require.Equal(t, 8, count)
}

// TestReadme_FitsAScreenAndAHalf: 70 lines of 100 columns.
func TestReadme_FitsAScreenAndAHalf(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(readme)), "\n")
	require.LessOrEqual(t, len(lines), 70)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 100, line)
	}
}

// TestOwnController compiles and runs the controller of simulate.md, in a module of its own.
func TestOwnController(t *testing.T) {
	fulltest.Long(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	g := &guide{dir: t.TempDir(), root: root, env: append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")}
	const module = "github.com/spark-compile/spark-compile"
	for _, name := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		text := strings.Replace(string(raw), "module "+module, "module example.com/own", 1)
		if name == "go.mod" {
			text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
		}
		g.write(t, name, []byte(text))
	}
	for _, b := range blocks(t, "simulate.md") {
		if b.lang == "go" {
			g.golang(t, fmt.Sprintf("simulate.md:%d", b.line), b.text)
		}
	}
	require.Equal(t, 1, g.snippets)
	cmd := exec.Command("go", "test", "-count=1", ".")
	cmd.Dir, cmd.Env = g.dir, g.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
