package library

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// file writes a small generated model.
func file(t *testing.T, name string) (string, *driving.Model) {
	t.Helper()
	m, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name+".onnx")
	require.NoError(t, os.WriteFile(path, m.ONNX, 0o644))
	return path, m
}

// tiny writes a model of one node.
func tiny(t *testing.T, n int) string {
	t.Helper()
	b := onnx.NewBuilder("tiny", 17)
	b.Input("x", ir.Float32, 1, n)
	b.Node("Relu", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float32, 1, n)
	m, err := b.Model()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tiny.onnx")
	require.NoError(t, m.Save(path))
	return path
}

// settings keep the machine's out.
func settings(t *testing.T) {
	for _, name := range []string{"OPENPILOT_DGX_PRECISION", "OPENPILOT_DGX_ENABLED", "OPENPILOT_DISABLE_DGX", "SPARK_DEVICE"} {
		t.Setenv(name, "")
	}
	t.Setenv("SPARK_CACHE", "off")
}

func open(t *testing.T, opt Options) *Model {
	t.Helper()
	opt.Device = "cpu"
	m, err := Open(t.Context(), opt)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestARunIsThatOfASession(t *testing.T) {
	fulltest.Long(t)
	settings(t)
	path, gen := file(t, "supercombo")
	m := open(t, Options{Paths: []string{path}, Flags: []string{"--precision", "fp32"}})
	d, err := m.Describe()
	require.NoError(t, err)
	require.Equal(t, []string{"supercombo.onnx", "fp32", "emu"}, []string{d.Model, d.Precision, d.Backend})
	other, err := runtime.Open(t.Context(), m.program, m.device, runtime.ModelOptions{})
	require.NoError(t, err)
	defer other.Close()
	ins, outs := m.Sizes()
	for run := range 3 {
		inputs, outputs := make([][]byte, len(ins)), make([][]byte, len(outs))
		for i, q := range d.Inputs {
			require.Equal(t, q.Bytes, ins[i])
			if q.State {
				continue
			}
			inputs[i] = gen.Inputs[i].Draw(uint64(run)).Dense()
			require.NoError(t, other.Set(q.Name, inputs[i]))
		}
		for i := range outs {
			if i != 1 { // nil: not wanted
				outputs[i] = make([]byte, outs[i])
			}
		}
		require.NoError(t, m.Run(t.Context(), inputs, outputs))
		require.NoError(t, other.Run(t.Context()))
		for i, q := range d.Outputs {
			if outputs[i] != nil {
				require.True(t, bytes.Equal(other.Output(q.Name), outputs[i]), "run %d, %s", run, q.Name)
			}
		}
	}
	name := d.Inputs[len(d.Inputs)-1].Name
	now, err := m.State(name)
	require.NoError(t, err)
	want, err := other.State(name)
	require.NoError(t, err)
	require.Equal(t, want, now)
	require.NotEqual(t, make([]byte, len(now)), now)
	require.NoError(t, m.Reset())
	zero, err := m.State(name)
	require.NoError(t, err)
	require.Equal(t, make([]byte, len(now)), zero)
	require.NoError(t, m.SetState(name, now))
	_, err = m.State("x")
	require.ErrorContains(t, err, `no state "x": supercombo.onnx keeps ["state_features" "state_memory"]`)
}

func TestLibrary_RefusesWrongSizes(t *testing.T) {
	settings(t)
	path, _ := file(t, "policy")
	m := open(t, Options{Paths: []string{path}})
	ins, outs := m.Sizes()
	inputs, outputs := make([][]byte, len(ins)), make([][]byte, len(outs))
	require.ErrorContains(t, m.Run(t.Context(), inputs[1:], outputs), "2 arrays of inputs, the model has 3")
	inputs[1] = make([]byte, ins[1]+1)
	require.ErrorContains(t, m.Run(t.Context(), inputs, outputs), fmt.Sprintf(`input "traffic_convention" has %d bytes, got %d`, ins[1], ins[1]+1))
	inputs[1], outputs[0] = nil, make([]byte, 3)
	require.ErrorContains(t, m.Run(t.Context(), inputs, outputs), `output "outputs" has 2000 bytes, got 3`)
	require.ErrorContains(t, m.Drive(t.Context(), modeld.Frame{}, modeld.Inputs{}), "not open as a driving loop")
	require.ErrorContains(t, m.Watch(t.Context(), modeld.DriverFrame{}, modeld.MonitoringInputs{}), "not open as a loop of driver monitoring")
	_, _, err := m.Value("plan")
	require.ErrorContains(t, err, "no step has run yet")
	_, err = m.Memory(true, 1)
	require.ErrorContains(t, err, "port 1: the model has 1")

	m.busy.Store(true) // another call is on
	for _, call := range []func() error{
		func() error { return m.Run(t.Context(), nil, nil) }, m.Close, m.Reset,
		func() error { _, err := m.State("x"); return err }, func() error { _, err := m.Describe(); return err },
	} {
		require.Equal(t, Busy, CodeOf(call()))
	}
	m.busy.Store(false)
	d := &closing{Device: m.device}
	m.device = d
	require.NoError(t, m.Close())
	require.Equal(t, 1, d.closed)
	require.Equal(t, Closed, CodeOf(m.Close()))
	require.Equal(t, Closed, CodeOf(m.Run(t.Context(), nil, nil)))
}

// TestALargeInputIsReadWhereItLies and not kept: a run without it is on the model's own memory.
func TestALargeInputIsReadWhereItLies(t *testing.T) {
	settings(t)
	m := open(t, Options{Paths: []string{tiny(t, bindFrom/4)}})
	x, y := make([]float32, bindFrom/4+4), make([]float32, bindFrom/4)
	own, err := m.Memory(false, 0)
	require.NoError(t, err)
	for _, offset := range []int{0, 1} { // in f32: the second does not begin at a multiple of 16 bytes, so it is copied
		clear(own)
		for i := range x {
			x[i] = float32(i)
		}
		given := x[offset:][:len(y)]
		require.NoError(t, m.Run(t.Context(), [][]byte{runtime.Bytes(given)}, [][]byte{runtime.Bytes(y)}))
		require.Equal(t, given, y)
		require.Equal(t, offset == 0, runtime.View[float32](own)[5] == 0)
		kept := slices.Clone(runtime.View[float32](own))
		clear(x)
		for i := range x {
			x[i] = 7
		}
		require.NoError(t, m.Run(t.Context(), [][]byte{nil}, [][]byte{runtime.Bytes(y)}))
		require.Equal(t, kept, y)
	}
}

// closing counts how often a device is closed.
type closing struct {
	hal.Device
	closed int
}

func (d *closing) Close() error {
	d.closed++
	return d.Device.Close()
}

func TestLibrary_RefusesToOpen(t *testing.T) {
	settings(t)
	path := tiny(t, 8)
	for text, opt := range map[string]Options{
		"no model: give a directory":                  {},
		"no such file or directory: give a directory": {Paths: []string{path + "x"}},
		"no ONNX file (*.onnx) in this directory":     {Paths: []string{t.TempDir()}},
		"kind 7: want 0":                              {Paths: []string{path}, Kind: 7},
		"device x: want auto, cuda, cuda:N or emu":    {Paths: []string{path}, Device: "x"},
		"--emit: a model that is compiled while":      {Paths: []string{path}, Flags: []string{"--emit", "ptx"}},
		"--tune: a model that is compiled while":      {Paths: []string{path}, Flags: []string{"--tune"}},
		"unknown flag --help":                         {Paths: []string{path}, Flags: []string{"--help"}},
		"it is no driving model":                      {Paths: []string{path}, Kind: Driving},
		"want 0 (no budget) or more, and less than 1": {Paths: []string{path}, Flags: []string{"--min-cosine", "2"}},
		"a model alone, with inputs x, and no step":   {Paths: []string{packaged(t, path)}, Kind: Monitoring},
		"applies to ONNX files only":                  {Paths: []string{packaged(t, path)}, Flags: []string{"--precision", "fp8"}},
	} {
		_, err := Open(t.Context(), opt)
		require.ErrorContains(t, err, text)
		require.Equal(t, BadInput, CodeOf(err))
	}
}

// packaged compiles a file into a directory.
func packaged(t *testing.T, path string) string {
	m := open(t, Options{Paths: []string{path}})
	dir := filepath.Join(t.TempDir(), "program")
	require.NoError(t, keep(m.program, dir))
	return dir
}

// TestTheCache: the same file, flags and compiler are compiled once, anything else again, and so is what was damaged.
func TestTheCache(t *testing.T) {
	settings(t)
	path := tiny(t, 8)
	cache := filepath.Join(t.TempDir(), "cache")
	opt := Options{Paths: []string{path}, Cache: cache, Build: "0123456789abcdef0123"}
	kept := func() []string {
		list, err := filepath.Glob(filepath.Join(cache, "*"))
		require.NoError(t, err)
		return list
	}
	open(t, opt)
	first := kept()
	require.Len(t, first, 1)
	program := filepath.Join(first[0], runtime.ProgramFile)
	was, err := os.Stat(program)
	require.NoError(t, err)
	open(t, opt)
	now, err := os.Stat(program)
	require.NoError(t, err)
	require.True(t, os.SameFile(was, now), "it was compiled again")

	raw, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, raw[:len(raw)/2], 0o644))
	open(t, opt)
	again, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Equal(t, raw, again)
	require.Equal(t, first, kept())

	for _, change := range []func(){
		func() { opt.Build = "f" + opt.Build }, func() { opt.Flags = []string{"--precision", "fp32"} }, func() { t.Setenv("OPENPILOT_DGX_PRECISION", "bf16"); opt.Flags = nil },
		func() {
			opt.Paths = []string{filepath.Join(t.TempDir(), "other.onnx")}
			require.NoError(t, os.WriteFile(opt.Paths[0], must(t, path), 0o644))
		},
	} {
		before := kept()
		change()
		open(t, opt)
		require.Len(t, kept(), len(before)+1)
	}
	before := kept()
	opt.Build = ""
	open(t, opt)
	opt.Build, opt.Cache = "x", "off"
	open(t, opt)
	require.Equal(t, before, kept())

	full := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(full, nil, 0o644))
	opt.Cache = full // no directory
	m := open(t, opt)
	require.Contains(t, fmt.Sprint(m.notices), "could not be kept in the cache")
}

func must(t *testing.T, path string) []byte {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return raw
}

func TestCodes(t *testing.T) {
	require.Equal(t, OK, CodeOf(nil))
	for err, code := range map[error]Code{
		fmt.Errorf("x: %w", hal.ErrOutOfMemory): BadDevice, &hal.Error{Call: "cuInit"}: BadDevice, fmt.Errorf("x: %w", hal.ErrBusy): Busy,
		modeld.ErrRunning: Busy, os.ErrNotExist: BadInput, fmt.Errorf("x: %w", ErrClosed): Closed,
	} {
		require.Equal(t, code, CodeOf(err), err)
	}
	err := Caught(func() error { var none []int; _ = none[3]; return nil })
	require.Equal(t, Bug, CodeOf(err))
	require.ErrorContains(t, err, "library_test.go")
	require.ErrorContains(t, err, "please report it")
	require.NoError(t, Caught(func() error { return nil }))
}

// TestALoopIsThatOfModeld opens vision and policy as one.
func TestALoopIsThatOfModeld(t *testing.T) {
	fulltest.Long(t)
	settings(t)
	vision, _ := file(t, "vision")
	policy, _ := file(t, "policy")
	m := open(t, Options{Paths: []string{vision, policy}, Kind: Driving, Flags: []string{"--camera", "64x32"}})
	require.ErrorContains(t, m.Run(t.Context(), nil, nil), "open as a loop, whose steps fill its inputs")
	picture := modeld.Picture{Data: bytes.Repeat([]byte{200}, 64*32*3/2), Width: 64, Height: 32}
	wide := picture
	wide.Data = slices.Clone(picture.Data)
	require.NoError(t, m.Drive(t.Context(), modeld.Frame{Road: picture, Wide: wide, ID: 1}, modeld.Inputs{}))
	values, _ := m.Result()
	inPlace, _, err := m.Value("stats.in_place")
	require.NoError(t, err)
	require.Equal(t, 2.0, values[inPlace])

	first, err := m.session.Float64s()
	require.NoError(t, err)
	require.NoError(t, m.session.Run(t.Context())) // on its own memory, where no picture is
	second, err := m.session.Float64s()
	require.NoError(t, err)
	require.NotEqual(t, first["vision_outputs"], second["vision_outputs"], "the session keeps the caller's picture")

	at, n, err := m.Value("plan.position")
	require.NoError(t, err)
	require.Equal(t, 99, n)
	other, err := modeld.Drive(m.session)
	require.NoError(t, err)
	require.NoError(t, m.Reset())
	out, err := other.Step(t.Context(), modeld.Frame{Road: picture, Wide: wide, ID: 1}, modeld.Inputs{})
	require.NoError(t, err)
	for i, x := range values[at : at+n] {
		require.Equal(t, out.Plan.Position[i/3][i%3], x)
	}
	picture.Width = 63
	require.ErrorContains(t, m.Drive(t.Context(), modeld.Frame{Road: picture, Wide: picture, ID: 2}, modeld.Inputs{}), "a width of 63 pixels")
}
