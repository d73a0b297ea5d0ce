package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestAStatefulPackageInAnotherModule does what a user does: a package in a module of their own, this repository as a
// replacement, its own test, and a program that runs it with the state kept on the device, with the state fed by hand,
// and loaded from the directory.
func TestAStatefulPackageInAnotherModule(t *testing.T) {
	fulltest.Long(t)
	r, _ := generated(t, "supercombo", "fp16", "sm_121")
	golden, err := r.Golden(t.Context())
	require.NoError(t, err)
	files, err := gopkg.Files("supercombo", r.Program, golden)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, gopkg.Write(filepath.Join(dir, "supercombo"), files))
	other, _ := generated(t, "policy", "fp16", "sm_121")
	files, err = gopkg.Files("policy", other.Program, nil)
	require.NoError(t, err)
	require.NoError(t, gopkg.Write(filepath.Join(dir, "policy"), files))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	const self = "github.com/spark-compile/spark-compile"
	text := strings.Replace(string(mod), "module "+self, "module example.com/drive", 1) +
		"\nrequire " + self + " v0.0.0\n\nreplace " + self + " => " + strconv.Quote(root) + "\n"
	for name, content := range map[string]string{"go.mod": text, "go.sum": string(sum), "drive_test.go": drive} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v:\n%s", args, out)
	}
}

const drive = `package drive

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spark-compile/spark-compile/runtime"
	"github.com/x448/float16"

	"example.com/drive/supercombo"
)

func fill(m *supercombo.Model, frame int) {
	in := m.Inputs()
	for i := range in.Img {
		in.Img[i], in.BigImg[i] = byte(7*i+13*frame), byte(5*i+3*frame)
	}
}

func run(t *testing.T, m *supercombo.Model, frame int) *supercombo.Outputs {
	fill(m, frame)
	out, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestState(t *testing.T) {
	kept, err := supercombo.Load(t.Context(), supercombo.WithDevice("emu"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	fed, err := supercombo.Load(t.Context(), supercombo.WithDevice("emu"), supercombo.WithDir("supercombo"))
	if err != nil {
		t.Fatal(err)
	}
	defer fed.Close()
	var first []byte
	for frame := range 3 {
		want := run(t, kept, frame)
		got := run(t, fed, frame)
		if !bytes.Equal(runtime.Bytes(want.Outputs), runtime.Bytes(got.Outputs)) {
			t.Fatalf("frame %d: the state kept on the device is not the one that was fed", frame)
		}
		if frame == 0 {
			first = bytes.Clone(runtime.Bytes(got.Outputs))
		}
		features, memory := bytes.Clone(runtime.Bytes(got.NextStateFeatures)), bytes.Clone(runtime.Bytes(got.NextStateMemory))
		zero := fed.Session()
		if err := zero.SetState("state_features", make([]byte, len(features))); err != nil {
			t.Fatal(err)
		}
		if err := zero.SetState("state_memory", make([]byte, len(memory))); err != nil {
			t.Fatal(err)
		}
		if again := run(t, fed, 0); !bytes.Equal(first, runtime.Bytes(again.Outputs)) {
			t.Fatal("a state of zeros is not the first state")
		}
		if err := fed.SetStateFeatures(runtime.View[float16.Float16](features)); err != nil {
			t.Fatal(err)
		}
		if err := fed.SetStateMemory(runtime.View[float16.Float16](memory)); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(first, runtime.Bytes(run(t, kept, 0).Outputs)) {
		t.Fatal("the state changes nothing")
	}
}

// Another package's directory is refused with both sides; it used to load, with empty inputs.
func TestAnotherModelIsRefused(t *testing.T) {
	_, err := supercombo.Load(t.Context(), supercombo.WithDevice("emu"), supercombo.WithDir("policy"))
	if err == nil || !strings.Contains(err.Error(), "policy: another model: this package was generated for supercombo.onnx, the directory holds policy.onnx") {
		t.Fatal(err)
	}
}
`
