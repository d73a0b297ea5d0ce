package python_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

var prototypes = regexp.MustCompile(`(?m)^(?:int32_t|void|const char \*) ?(sparkcompile_\w+)\(`)

// setuptools skips a test where Python has none that builds wheels.
func setuptools(t *testing.T) string {
	py := interpreter(t)
	if err := exec.Command(py, "-c", "import setuptools.command.bdist_wheel").Run(); err != nil {
		t.Skipf("%s has no setuptools that builds wheels: pip install -r testdata/requirements.txt", py)
	}
	return py
}

// project copies what a wheel is built from, as it lies in a checkout, so that building leaves nothing here.
func project(t *testing.T) (root string) {
	root = t.TempDir()
	for _, name := range []string{"python/setup.py", "python/pyproject.toml", "cmd/libsparkcompile/sparkcompile.h", "LICENSE", "THIRD-PARTY-LICENSES"} {
		copyFile(t, root, name)
	}
	sources, err := filepath.Glob("sparkcompile/*")
	require.NoError(t, err)
	for _, path := range sources {
		if strings.HasSuffix(path, ".py") || strings.HasSuffix(path, "py.typed") {
			copyFile(t, root, "python/"+path)
		}
	}
	return root
}

func copyFile(t *testing.T, root, name string) {
	raw, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	to := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, raw, 0o644))
}

// TestAWheelRunsWhereItIsInstalled, and is named after the platform that it is for.
func TestAWheelRunsWhereItIsInstalled(t *testing.T) {
	fulltest.Long(t)
	py := setuptools(t)
	library, _ := clibrary.Build(t)
	root, dist, site := project(t), t.TempDir(), t.TempDir()
	platform := "linux_" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[goruntime.GOARCH]
	pip := func(env []string, args ...string) string {
		cmd := exec.Command(py, append([]string{"-m", "pip", "-q", "--disable-pip-version-check"}, args...)...)
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return string(text)
	}
	says := pip([]string{"SPARKCOMPILE_LIBRARY=" + library, "SPARKCOMPILE_PLATFORM=" + platform}, "wheel", "-vv", "--no-deps", "--no-build-isolation", "-w", dist,
		filepath.Join(root, "python"))
	require.Contains(t, says, "sparkcompile: taking the library "+library+", which SPARKCOMPILE_LIBRARY names")
	pip(nil, "install", "--no-deps", "--no-index", "--target", site, filepath.Join(dist, "sparkcompile-0.0.0-py3-none-"+platform+".whl"))
	for _, name := range []string{"py.typed", "libsparkcompile.so", "sparkcompile.h", "LICENSE", "THIRD-PARTY-LICENSES"} {
		require.FileExists(t, filepath.Join(site, "sparkcompile", name))
	}
	cmd := exec.Command(py, "-c", "import sparkcompile; print(sparkcompile.version(), sparkcompile._library.path())")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+site, "SPARKCOMPILE_LIBRARY=")
	cmd.Dir = t.TempDir()
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), site)
}

// TestWheel_RefusesBadInput says so, with what helps.
func TestWheel_RefusesBadInput(t *testing.T) {
	py := setuptools(t)
	root := project(t)
	build := func(env ...string) string {
		cmd := exec.Command(py, "setup.py", "-q", "build_py")
		cmd.Dir, cmd.Env = filepath.Join(root, "python"), append(os.Environ(), append([]string{"PATH=/nowhere", "SPARKCOMPILE_LIBRARY="}, env...)...)
		text, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(text)
	}
	require.Contains(t, build(), "there is no go on the PATH: install Go (https://go.dev/dl), or install a wheel")
	require.Contains(t, build("SPARKCOMPILE_LIBRARY=/nothing.so"), "SPARKCOMPILE_LIBRARY=/nothing.so: no such file")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "cmd")))
	require.Contains(t, build(), "they are not beside this directory: install from a checkout")
}

// TestTheHeaderDeclaresWhatTheLibraryHas, and nothing else.
func TestTheHeaderDeclaresWhatTheLibraryHas(t *testing.T) {
	fulltest.Long(t) // builds the C library
	library, header := clibrary.Build(t)
	raw, err := os.ReadFile(filepath.Join(header, "sparkcompile.h"))
	require.NoError(t, err)
	var declared, exported []string
	for _, m := range prototypes.FindAllStringSubmatch(string(raw), -1) {
		declared = append(declared, m[1])
	}
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "sparkcompile_") && s.Section != elf.SHN_UNDEF {
			exported = append(exported, s.Name)
		}
	}
	require.ElementsMatch(t, declared, exported)
	require.Greater(t, len(declared), 15)
}
