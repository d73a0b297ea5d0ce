package gopkg

import (
	"errors"
	"go/format"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/spark-compile/spark-compile/runtime"
)

func program() *runtime.Program {
	return &runtime.Program{
		Format: runtime.FormatVersion, Model: "driving_toy.onnx", Precision: "fp16", Weights: []byte{1, 2, 3},
		Inputs:  []runtime.Port{{Name: "big_img", DType: "u8", Shape: []int{1, 4}}, {Name: "state_h", DType: "f16", Shape: []int{1, 2}}},
		Outputs: []runtime.Port{{Name: "outputs", DType: "f16", Shape: []int{1, 8}, Slices: []runtime.Slice{{Name: "lane_lines", Start: 0, Stop: 6}, {Name: "outputs", Start: 6, Stop: 8}}}, {Name: "next_state_h", DType: "f16", Shape: []int{1, 2}}},
		States:  []runtime.State{{Input: "state_h", Output: "next_state_h"}},
		Variants: []runtime.Variant{{Target: "sm_121", PTX: ".version 8.8\n", Cubin: []byte("cubin"),
			Buffers: []runtime.Buffer{{Name: "big_img", Kind: runtime.InputBuffer, Bytes: 4}}, Entries: []runtime.Entry{{Name: "run"}, {Name: "step"}}}},
	}
}

func golden() *Golden {
	return &Golden{Inputs: map[string][]byte{"big_img": {1, 2, 3, 4}, "state_h": {0, 0, 0, 0}}, Outputs: map[string][]float64{"outputs": {1, 2, 3, 4, 5, 6, 7, 8}, "next_state_h": {0, 1}}, Bounds: map[string]Bounds{"outputs": {.999, 1e-3}, "next_state_h": {.99, 1e-2}}}
}

func TestNames(t *testing.T) {
	for path, want := range map[string]string{"driving_vision.onnx": "drivingvision", "a/b/dmonitoring-model.v2.onnx": "dmonitoringmodelv2", "Super_Combo.onnx": "supercombo", "ünit 2.onnx": "nit2"} {
		got, err := PackageName(path)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"", "3d", "func", "a-b", "_", "main"} {
		require.Error(t, CheckPackageName(bad), bad)
	}
	n := namer{}
	for _, c := range [][2]string{{"lane_lines_prob", "LaneLinesProb"}, {"LaneLinesProb", "LaneLinesProb2"}, {"3d", "X3d"}, {"--", "X"}, {"日本", "X日本"}, {"ünit", "Ünit"}} {
		require.Equal(t, c[1], n.name(c[0]))
	}
}

func TestGeneratedFilesAreFormattedAndTheSameEachTime(t *testing.T) {
	files, err := Files("toy", program(), golden())
	require.NoError(t, err)
	again, err := Files("toy", program(), golden())
	require.NoError(t, err)
	require.Equal(t, files, again)
	require.ElementsMatch(t, []string{"model.go", "example_test.go", "model_test.go", "program.json", "weights.bin", "sm_121/kernels.ptx", "sm_121/kernels.cubin",
		"testdata/in_big_img.bin", "testdata/in_state_h.bin", "testdata/out_outputs.bin", "testdata/out_next_state_h.bin"}, sortedKeys(files))
	for name, b := range files {
		if strings.HasSuffix(name, ".go") {
			clean, err := format.Source(b)
			require.NoError(t, err, name)
			require.Equal(t, string(clean), string(b), name)
		}
	}
	snapshot(t, "model.go.golden", files["model.go"])
	snapshot(t, "model_test.go.golden", files["model_test.go"])
	snapshot(t, "example_test.go.golden", files["example_test.go"])
}

// TestAProgramWithSlotsLoadsAdapters: the package has the methods, and none for the entry that they run.
func TestAProgramWithSlotsLoadsAdapters(t *testing.T) {
	methods := func(p *runtime.Program) string {
		files, err := Files("toy", p, nil)
		require.NoError(t, err)
		return string(files["model.go"])
	}
	p := program()
	require.NotContains(t, methods(p), "Adapter")
	p.Variants[0].Entries[1].Name = runtime.AdapterEntry
	require.Contains(t, methods(p), "RunPrepare")
	p.Adapters = &runtime.Adapters{Slots: 4}
	text := methods(p)
	for _, want := range []string{
		"func (m *Model) LoadAdapter(ctx context.Context, slot int, path string) error {\n\treturn m.session.LoadAdapter(ctx, slot, path)\n}",
		"func (m *Model) UnloadAdapter(ctx context.Context, slot int) error {\n\treturn m.session.UnloadAdapter(ctx, slot)\n}",
		"func (m *Model) UseAdapter(slot int) error {\n\treturn m.session.UseAdapter(slot)\n}",
		"into one of 4 slots, counted from 0.",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "RunPrepare")
}

// TestSlicesOfABatchTakeASample: the accessor's range is that of the sample asked for.
func TestSlicesOfABatchTakeASample(t *testing.T) {
	p := program()
	p.Outputs[0].Shape = []int{3, 8}
	for i := range p.Outputs[0].Slices {
		p.Outputs[0].Slices[i].Every = 8
	}
	files, err := Files("toy", p, nil)
	require.NoError(t, err)
	require.Contains(t, string(files["model.go"]), "func (o *Outputs) LaneLines(sample int) []float16.Float16 {\n\tat := 8 * sample\n\treturn o.Outputs[at+0 : at+6 : at+6]\n}")
	p.Outputs[0].Shape = []int{3, 7}
	require.ErrorContains(t, p.Validate(), `slice "lane_lines" is 0 to 6 of 21 elements`)
}

// snapshot compares with a file under testdata; UPDATE=1 writes it.
func snapshot(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "UPDATE=1 go test rewrites the snapshot")
}

// tree is every file below a directory, and every directory that holds none.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, p)
		require.NoError(t, err)
		delete(out, filepath.Dir(rel)+"/")
		if e.IsDir() {
			out[rel+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(p)
		out[rel] = string(text)
		return err
	}))
	return out
}

// put writes files of a user's.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// both is a user's files and generated ones.
func both(theirs map[string]string, ours map[string][]byte) map[string]string {
	out := maps.Clone(theirs)
	for name, text := range ours {
		out[name] = string(text)
	}
	return out
}

func packageFiles(t *testing.T, change func(p *runtime.Program)) map[string][]byte {
	t.Helper()
	p := program()
	change(p)
	g := golden()
	g.Inputs = map[string][]byte{p.Inputs[0].Name: {1, 2, 3, 4}}
	g.Program = map[string][]byte{"outputs": {1}}
	files, err := Files("toy", p, g)
	require.NoError(t, err)
	return files
}

func TestFilesOfTheUserAreLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "toy")
	files := packageFiles(t, func(*runtime.Program) {})
	require.NoError(t, Write(dir, files))
	theirs := map[string]string{"notes.txt": "mine", "main.go": "package toy\n", "generate.go": "package toy\n\n// Code generated by spark-compile. DO NOT EDIT.\n",
		"testdata/in_other.bin": "mine", "testdata/script/a.txtar": "mine", "sm_121/notes": "mine", "sm_80/kernels.ptx": "mine", "sub/model.go": header + "\n", "more.bin": "mine"}
	put(t, dir, theirs)
	require.Equal(t, both(theirs, files), tree(t, dir))

	// Another input, target and no cubin: what the first package had goes, the user's files stay.
	other := packageFiles(t, func(p *runtime.Program) {
		p.Inputs[0].Name, p.Variants[0].Target, p.Variants[0].Cubin = "img", "sm_90", nil
	})
	require.Contains(t, tree(t, dir), "sm_121/kernels.cubin")
	require.NoError(t, Write(dir, other))
	require.Equal(t, both(theirs, other), tree(t, dir))
	require.NoError(t, Write(dir, files))
	require.Equal(t, both(theirs, files), tree(t, dir))

	delete(theirs, "sm_121/notes")
	require.NoError(t, os.Remove(filepath.Join(dir, "sm_121", "notes")))
	require.NoError(t, Write(dir, other))
	require.Equal(t, both(theirs, other), tree(t, dir), "a directory that is left empty goes too")

	put(t, dir, map[string]string{"bindings.go": header + "\npackage toy\n"})
	require.NoError(t, Write(dir, other))
	require.Equal(t, both(theirs, other), tree(t, dir), "a Go file with our header is of another version")
}

func TestAFileOfTheUserIsNotReplaced(t *testing.T) {
	for name, c := range map[string]struct{ file, named string }{
		"Go file":                  {"model.go", "model.go"},
		"test":                     {"model_test.go", "model_test.go"},
		"program of something":     {"program.json", "program.json"},
		"weights":                  {"weights.bin", "weights.bin"},
		"cubin":                    {"sm_121/kernels.cubin", "sm_121/kernels.cubin"},
		"golden input":             {"testdata/in_big_img.bin", "testdata/in_big_img.bin"},
		"file for a directory":     {"sm_121", "sm_121"},
		"directory for a file":     {"weights.bin/x", "weights.bin"},
		"a program that is listed": {"../program.json", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			theirs := map[string]string{c.file: `{"format": 2, "model": "mine"}`, "notes.txt": "mine"}
			put(t, dir, theirs)
			files := packageFiles(t, func(*runtime.Program) {})
			if c.named == "" {
				require.NoError(t, Write(dir, files))
				return
			}
			was := tree(t, dir)
			require.ErrorContains(t, Write(dir, files), "did not generate "+c.named+" and does not replace it")
			require.ErrorContains(t, Write(dir, files), "-o")
			require.Equal(t, was, tree(t, dir))
			if !strings.HasPrefix(c.file, "testdata/") {
				require.ErrorContains(t, CheckDir(dir, Names([]string{"sm_121"}, true)), c.named)
			}
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.Symlink("elsewhere.go", filepath.Join(dir, "model.go")))
	require.ErrorContains(t, Write(dir, packageFiles(t, func(*runtime.Program) {})), "model.go", "a link, though to nothing")
}

// A program.json cannot name files elsewhere.
func TestAProgramOwnsNothingElsewhere(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"kernels.ptx": "mine", "toy/program.json": `{"format": 2, "variants": [{"target": ".."}, {"target": "/"}]}`})
	require.NoError(t, Write(filepath.Join(root, "toy"), packageFiles(t, func(*runtime.Program) {})))
	require.FileExists(t, filepath.Join(root, "kernels.ptx"))
}

// TestAFailedWriteLeavesThePackageWhole fails each move in turn.
func TestAFailedWriteLeavesThePackageWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "toy")
	require.NoError(t, Write(dir, packageFiles(t, func(*runtime.Program) {})))
	put(t, dir, map[string]string{"notes.txt": "mine", "sm_121/notes": "mine"})
	was := tree(t, dir)
	other := packageFiles(t, func(p *runtime.Program) { p.Inputs[0].Name, p.Variants[0].Target = "img", "sm_90" })
	failed := errors.New("disk")
	for at := 1; ; at++ {
		moves := 0
		err := write(dir, other, func(from, to string) error {
			if moves++; moves == at {
				return failed
			}
			return os.Rename(from, to)
		})
		if moves < at {
			require.NoError(t, err)
			require.Greater(t, at, 2*len(other)-2)
			break
		}
		require.ErrorIs(t, err, failed)
		require.Equal(t, was, tree(t, dir), "move %d", at)
	}
	require.Equal(t, both(map[string]string{"notes.txt": "mine", "sm_121/notes": "mine"}, other), tree(t, dir))
}

func TestTheDirectorysGoFilesNameThePackage(t *testing.T) {
	for name, c := range map[string]struct {
		files     map[string]string
		want, err string
	}{
		"none":             {map[string]string{"notes.txt": ""}, "", ""},
		"ours":             {map[string]string{"model.go": header + "\npackage toy\n"}, "", ""},
		"one":              {map[string]string{"a.go": "package drive\n", "model.go": header + "\npackage toy\n"}, "drive", ""},
		"main":             {map[string]string{"a.go": "package main\n", "gen.go": "//go:build ignore\n\npackage other\n"}, "main", ""},
		"tests alone":      {map[string]string{"a_test.go": "package drive_test\n"}, "drive", ""},
		"two":              {map[string]string{"a.go": "package a\n", "b.go": "package b\n"}, "", "found packages a (a.go) and b (b.go)"},
		"what is not Go":   {map[string]string{"a.go": "hello\n"}, "", "a.go"},
		"no directory yet": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			put(t, dir, c.files)
			got, err := PackageOf(dir)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestWriteKeepsLinksAndPermissionsAndWhatIsNotItsOwn(t *testing.T) {
	root := t.TempDir()
	dir, link := filepath.Join(root, "toy"), filepath.Join(root, "link")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, Write(link, map[string][]byte{"model.go": []byte("x")}))
	require.FileExists(t, filepath.Join(dir, "model.go"))
	to, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, dir, to)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	theirs := filepath.Join(dir, "sub")
	require.NoError(t, os.Mkdir(theirs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.go"), []byte(header+"\n"), 0o644))
	require.NoError(t, Write(dir, map[string][]byte{"model.go": []byte("y")}))
	require.DirExists(t, theirs)
}

func TestAProtectedDirectoryIsNotReplaced(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := filepath.Join(t.TempDir(), "toy")
	require.NoError(t, os.Mkdir(dir, 0o555))
	require.ErrorIs(t, Write(dir, map[string][]byte{"model.go": nil}), os.ErrPermission)
	require.DirExists(t, dir)
}

// TestFloat16IsTwoBytes holds the type that generated packages give to f16 elements; runtime.View relies on its size.
// It also keeps the module among this one's requirements, for packages that are generated inside it.
func TestFloat16IsTwoBytes(t *testing.T) {
	require.Len(t, runtime.View[float16.Float16](make([]byte, 6)), 3)
}

func TestWriteRefusesAFileInItsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toy")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.ErrorContains(t, Write(path, nil), "is a file")
}

func TestAFailedWriteLeavesTheOldDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "toy")
	require.NoError(t, Write(dir, map[string][]byte{"model.go": []byte(header + "\nold")}))
	err := Write(dir, map[string][]byte{"model.go": []byte("new"), "model.go/x": nil})
	require.Error(t, err)
	require.Equal(t, map[string]string{"model.go": header + "\nold"}, tree(t, dir))
}

// Names of any length give files and identifiers; the program keeps the file's names.
func TestNames_LongerThanFileSystemsTake(t *testing.T) {
	for _, part := range []string{"encoder.", "decoder/", "é"} {
		name := strings.Repeat(part, 150)
		other := name + "x"
		p := program()
		p.Inputs[0].Name, p.Outputs[0].Name = name, other
		g := golden()
		g.Inputs[name], g.Outputs[other], g.Bounds[other] = g.Inputs["big_img"], g.Outputs["outputs"], g.Bounds["outputs"]
		delete(g.Inputs, "big_img")
		delete(g.Outputs, "outputs")
		dir := filepath.Join(t.TempDir(), "toy")
		files, err := Files("toy", p, g)
		require.NoError(t, err)
		require.NoError(t, Write(dir, files))
		text, err := os.ReadFile(filepath.Join(dir, "model.go"))
		require.NoError(t, err)
		require.Contains(t, string(text), name)
		_, err = os.Stat(filepath.Join(dir, "testdata", GoldenFile("in", name)))
		require.NoError(t, err)
		require.NoError(t, Write(dir, files)) // its files are known as its own

		require.NotEqual(t, FileName(name), FileName(other))
		require.Equal(t, FileName(name), FileName(name))
		n := namer{}
		require.NotEqual(t, n.name(name), n.name(other))
		require.Less(t, len(exported(other)), 100)
		require.True(t, token.IsIdentifier(exported(other)), exported(other))
	}
	fits := strings.Repeat("n", longestName)
	require.Equal(t, fits, FileName(fits))
	require.Equal(t, "N"+fits[1:], exported(fits))
}
