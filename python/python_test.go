// Package python_test runs the tests of the Python package against the C library, on models that Go has run before: what Python gets must
// be the same bits.
package python_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	findpython "github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// interpreter is Python with NumPy.
func interpreter(t *testing.T) string {
	t.Helper()
	py, err := findpython.FindPython()
	if err != nil {
		t.Skip(err)
	}
	if text, err := exec.Command(py, "-c", "import sys, numpy; sys.exit(sys.version_info < (3, 11))").CombinedOutput(); err != nil {
		t.Skipf("%s is not Python 3.11 with NumPy: set SPARK_PYTHON: %s", py, text)
	}
	return py
}

// environment is that of Python's tests: the package from the checkout, the library, the models.
func environment(t *testing.T, library, data string) []string {
	here, err := os.Getwd()
	require.NoError(t, err)
	env := []string{"PYTHONPATH=" + here, "SPARKCOMPILE_LIBRARY=" + library, "SPARKCOMPILE_TESTDATA=" + data, "SPARK_DEVICE=emu", "SPARK_CACHE=" + t.TempDir(),
		"PYTHONDONTWRITEBYTECODE=1", "SPARK_FULL="}
	if fulltest.Runs(t.Name()) {
		env[len(env)-1] = "SPARK_FULL=1"
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "OPENPILOT_") && !strings.HasPrefix(name, "SPARK") && name != "PYTHONPATH" {
			env = append(env, v)
		}
	}
	return env
}

// TestThePythonPackage runs python/tests, a module at a time.
func TestThePythonPackage(t *testing.T) {
	fulltest.Long(t) // builds the C library, too
	py := interpreter(t)
	library, _ := clibrary.Build(t)
	clibrary.Reads(t, "sparkcompile", "tests")
	data := t.TempDir()
	prepare(t, data)
	modules, err := filepath.Glob("tests/test_*.py")
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	ran := regexp.MustCompile(`(?m)^Ran (\d+) tests? in`)
	for _, path := range modules {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(py, "-X", "faulthandler", "-W", "error", "-m", "unittest", "-v", "tests."+name) // -v names what ran
			cmd.Env = environment(t, library, data)
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", text)
			m := ran.FindSubmatch(text)
			require.NotNil(t, m, "%s", text)
			require.NotEqual(t, "0", string(m[1]))
			t.Logf("%s", text)
		})
	}
}

// fixture is where prepare writes, and the device on which it runs what it writes.
type fixture struct {
	t      *testing.T
	dir    string
	device hal.Device
}

func prepare(t *testing.T, dir string) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	f := &fixture{t, dir, d}
	f.model("policy", "fp16")
	f.model("supercombo", "fp16")
	f.driving("driving", "vision", "policy")
	f.monitoring("monitoring", "dmonitoring")
	f.monitoring("monitoring_luma", "dmonitoring_luma")
}

// read makes a model, and writes its file.
func (f *fixture) read(name string) (*driving.Model, *onnx.Model) {
	m, err := driving.Made(name, driving.Small)
	require.NoError(f.t, err)
	path := filepath.Join(f.dir, name+".onnx")
	require.NoError(f.t, os.WriteFile(path, m.ONNX, 0o644))
	o, err := onnx.Load(path)
	require.NoError(f.t, err)
	return m, o
}

func options(precision string) compile.Options {
	return compile.Options{Precision: precision, Targets: []string{target.Default().Name}}
}

// write writes a program as a directory.
func (f *fixture) write(name string, p *runtime.Program) {
	files, err := p.Files()
	require.NoError(f.t, err)
	for file, data := range files {
		path := filepath.Join(f.dir, name, filepath.FromSlash(file))
		require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(f.t, os.WriteFile(path, data, 0o644))
	}
}

// model writes a compiled model, and inputs and outputs of three runs of one session.
func (f *fixture) model(name, precision string) {
	m, o := f.read(name)
	r, err := compile.Compile(f.t.Context(), o, options(precision))
	require.NoError(f.t, err)
	f.write(name, r.Program)
	s, err := runtime.Open(f.t.Context(), r.Program, f.device, runtime.ModelOptions{})
	require.NoError(f.t, err)
	defer s.Close()
	arrays := map[string]*npy.Array{}
	for run := range 3 {
		for _, q := range m.Inputs {
			x := q.Draw(uint64(10*run + 1))
			isState := false
			for _, st := range r.Program.States {
				isState = isState || st.Input == q.Name
			}
			if isState {
				continue
			}
			require.NoError(f.t, s.Set(q.Name, x.Dense()))
			arrays[fmt.Sprintf("in%d.%s", run, q.Name)] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
		}
		require.NoError(f.t, s.Run(f.t.Context()))
		for _, q := range r.Program.Outputs {
			arrays[fmt.Sprintf("out%d.%s", run, q.Name)] = &npy.Array{DType: q.DType, Shape: q.Shape, Data: bytes.Clone(s.Output(q.Name))}
		}
	}
	require.NoError(f.t, npy.WriteZip(filepath.Join(f.dir, name+".npz"), arrays))
}

// Frames of the drive; after the fourth one two are missed.
var frameIDs = []uint32{1, 2, 3, 4, 7, 8, 9, 10}

const divisor = 8 // of a comma 3X's cameras

// driving writes a compiled loop, its frames, and what Go's loop says of them.
func (f *fixture) driving(name string, models ...string) {
	var read []*onnx.Model
	for _, m := range models {
		_, o := f.read(m)
		read = append(read, o)
	}
	road, wide := openpilot.Cameras(divisor)
	p := f.loop(name, road, read...)
	loop, err := modeld.NewDriving(f.t.Context(), p, f.device, modeld.Options{})
	require.NoError(f.t, err)
	defer loop.Close()
	arrays := map[string]*npy.Array{}
	for i, id := range frameIDs {
		at, r, w := openpilot.At(int(id)), road.Draw(int(id)), wide.Draw(int(id))
		in := modeld.Inputs{Desire: at.Desire, RightHandDrive: at.RightHandDrive, VEgo: at.VEgo, LateralDelay: 0.2, LongitudinalDelay: 0.3}
		known := 0.0
		if i > 1 {
			known = 1
			in.Calibration = &modeld.Calibration{RPY: at.RPY, Road: modeld.Intrinsics(road), WideCamera: modeld.Intrinsics(wide)}
		}
		out, err := loop.Step(f.t.Context(), modeld.Frame{Road: modeld.Picture(r), Wide: modeld.Picture(w), ID: id, Captured: 12345}, in)
		require.NoError(f.t, err)
		put(arrays, fmt.Sprintf("%d", i), out)
		f.picture(arrays, fmt.Sprintf("%d.road", i), r)
		f.picture(arrays, fmt.Sprintf("%d.wide", i), w)
		right := 0.0
		if at.RightHandDrive {
			right = 1
		}
		arrays[fmt.Sprintf("%d.in", i)] = vector(float64(id), float64(at.Desire), right, at.VEgo, known, at.RPY[0], at.RPY[1], at.RPY[2],
			road.Focal, float64(road.Width), float64(road.Height), wide.Focal, float64(wide.Width), float64(wide.Height))
	}
	require.NoError(f.t, npy.WriteZip(filepath.Join(f.dir, name+".npz"), arrays))
}

// monitoring writes a compiled loop of driver monitoring, likewise.
func (f *fixture) monitoring(name, model string) {
	_, o := f.read(model)
	camera, _ := openpilot.Cameras(divisor)
	p := f.loop(name, camera, o)
	loop, err := modeld.NewMonitoring(f.t.Context(), p, f.device, modeld.Options{})
	require.NoError(f.t, err)
	defer loop.Close()
	arrays := map[string]*npy.Array{}
	for i := range 2 {
		picture := camera.DrawDriver(i)
		// The warp of today's models knows two sizes of cameras; smaller ones are taken as the first.
		in := modeld.MonitoringInputs{RPY: [3]float64{0.01, -0.02, 0.03}, RightHandDrive: i == 1, Camera: modeld.Intrinsics(camera)}
		out, err := loop.Step(f.t.Context(), modeld.DriverFrame{Picture: modeld.Picture(picture), ID: uint32(i), Captured: 12345}, in)
		require.NoError(f.t, err)
		put(arrays, fmt.Sprintf("%d", i), out)
		f.picture(arrays, fmt.Sprintf("%d.road", i), picture)
		arrays[fmt.Sprintf("%d.in", i)] = vector(camera.Focal, float64(camera.Width), float64(camera.Height))
	}
	require.NoError(f.t, npy.WriteZip(filepath.Join(f.dir, name+".npz"), arrays))
}

func (f *fixture) loop(name string, largest openpilot.Camera, models ...*onnx.Model) *runtime.Program {
	r, err := compile.Loop(f.t.Context(), models, openpilot.Options{Largest: generation.VisionIPC(largest.Width, largest.Height)}, options("fp16"))
	require.NoError(f.t, err)
	f.write(name, r.Program)
	return r.Program
}

func (f *fixture) picture(arrays map[string]*npy.Array, name string, p openpilot.Picture) {
	arrays[name] = &npy.Array{DType: "u8", Shape: []int{len(p.Data)}, Data: p.Data}
	arrays[name+".layout"] = vector(float64(p.Width), float64(p.Height), float64(p.Stride), float64(p.UV))
}

func vector(values ...float64) *npy.Array {
	a := &npy.Array{DType: "f64", Shape: []int{len(values)}}
	for _, v := range values {
		a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(v))
	}
	return a
}

// put notes every number of a struct by its path: fields in lower case, nil not at all. Times are left out, since no two steps take the same.
func put(to map[string]*npy.Array, path string, x any) { walk(to, path, reflect.ValueOf(x)) }

func walk(to map[string]*npy.Array, path string, v reflect.Value) {
	if values, ok := v.Interface().([]float64); ok && values != nil {
		to[path] = vector(values...)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(to, path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Stats" {
				walk(to, path+"."+strings.ToLower(name), v.Field(i))
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			walk(to, path+"."+k.String(), v.MapIndex(k))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(to, fmt.Sprintf("%s.%d", path, i), v.Index(i))
		}
	case reflect.Bool:
		to[path] = vector(map[bool]float64{true: 1}[v.Bool()])
	case reflect.Float64:
		to[path] = vector(v.Float())
	case reflect.Int, reflect.Int64:
		to[path] = vector(float64(v.Int()))
	case reflect.Uint32:
		to[path] = vector(float64(v.Uint()))
	default:
		panic(v.Type())
	}
}
