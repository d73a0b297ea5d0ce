package gopkg

import (
	"go/format"
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
	return &Golden{Inputs: map[string][]byte{"big_img": {1, 2, 3, 4}, "state_h": {0, 0, 0, 0}}, Outputs: map[string][]float64{"outputs": {1, 2, 3, 4, 5, 6, 7, 8}, "next_state_h": {0, 1}}, MinCosine: .999, RelL2: 1e-3}
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

func TestWriteReplacesItsOwnDirectoryAndNoOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "toy")
	files, err := Files("toy", program(), golden())
	require.NoError(t, err)
	require.NoError(t, Write(dir, files))
	delete(files, "sm_121/kernels.cubin")
	require.NoError(t, Write(dir, files))
	require.NoFileExists(t, filepath.Join(dir, "sm_121", "kernels.cubin"), "what the last run left is gone")

	mine := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o644))
	err = Write(dir, files)
	require.ErrorContains(t, err, "notes.txt")
	require.ErrorContains(t, err, "-o")
	require.FileExists(t, mine)
	require.FileExists(t, filepath.Join(dir, "model.go"))
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing temporary stays behind")
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
	require.ErrorContains(t, Write(dir, map[string][]byte{"model.go": []byte("y")}), "(sub)")
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

// TestFloat16IsTwoBytes holds the type that generated packages give to f16 elements; runtime.View relies on its size. It
// also keeps the module among this one's requirements, for packages that are generated inside it.
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
	require.NoError(t, Write(dir, map[string][]byte{"model.go": []byte("old")}))
	err := Write(dir, map[string][]byte{"model.go": []byte("new"), "model.go/x": nil})
	require.Error(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "model.go"))
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
}
