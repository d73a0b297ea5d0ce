package run

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// command runs spark-run.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main("spark-run", args, &out, &errs)
	return code, out.String(), errs.String()
}

// small cameras, and the layout of their pictures.
func smallCameras() (road, wide openpilot.Camera, layout runtime.FrameLayout) {
	road, wide = openpilot.Cameras(16)
	p := road.Draw(0)
	return road, wide, runtime.FrameLayout{Width: p.Width, Height: p.Height, Stride: p.Stride, UV: p.UV}
}

// TestAReplayIsTheLoopsOutputs: over frames of which some are missing, what --output-dir has of each frame is what a loop of the test's own says; the
// statistics count steps and missed frames.
func TestAReplayIsTheLoopsOutputs(t *testing.T) {
	road, wide, layout := smallCameras()
	dir := t.TempDir()
	require.NoError(t, openpilot.WriteDirectory(dir, openpilot.PNG, road, wide, 6))
	for _, camera := range []string{"road", "wide"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "000003_"+camera+".png")))
	}
	pkg, out := compiled(t, "fp32", layout), filepath.Join(t.TempDir(), "outputs")
	file := filepath.Join(t.TempDir(), "replay.json")
	code, stdout, stderr := command(pkg, "--replay", dir, "--device", "emu", "--output-dir", out, "--rpy=0,.02,-.01", "--v-ego", "13", "--json", file)
	require.Equal(t, cli.Done, code, stderr)
	r := readReport(t, file)
	require.Equal(t, []int{4, 1}, []int{r.Runs, r.Missed})
	require.InEpsilon(t, r.Mean, r.Stages["prepare"].Mean+r.Stages["run"].Mean+r.Stages["parse"].Mean, 1e-9)
	require.Contains(t, stdout, fmt.Sprintf("%.3f", r.Stages["run"].Max))
	require.Regexp(t, `(?m)^driving_fp32, driving_vision.onnx \+ driving_policy.onnx fp32 on cpu \(emu\): 4 steps of .+, 1 missed$`, stdout)
	for _, stage := range []string{"prepare", "run", "parse", "step"} {
		require.Regexp(t, fmt.Sprintf(`(?m)^ *%s( +\d+\.\d{3}){3}$`, stage), stdout)
	}

	p, err := runtime.Read(os.DirFS(pkg))
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	m, err := modeld.NewDriving(t.Context(), p, d, modeld.Options{})
	require.NoError(t, err)
	defer m.Close()
	frames, err := replay.Open(dir)
	require.NoError(t, err)
	wrote := 0
	for f, err := range frames.Frames() {
		require.NoError(t, err)
		said, err := m.Step(t.Context(), f, modeld.Inputs{VEgo: 13, Calibration: &modeld.Calibration{RPY: [3]float64{0, .02, -.01}, Road: modeld.Intrinsics{Focal: 2648. * 120 / 1928, Width: 120, Height: 74},
			WideCamera: modeld.Intrinsics{Focal: 567. * 120 / 1928, Width: 120, Height: 74}}})
		require.NoError(t, err)
		path := filepath.Join(out, fmt.Sprintf("%06d.npz", f.ID))
		if !said.Ran {
			require.NoFileExists(t, path)
			continue
		}
		wrote++
		arrays, err := npy.ReadZip(path)
		require.NoError(t, err)
		require.Len(t, arrays, len(said.Raw))
		for name, want := range said.Raw {
			got, err := arrays[name].Float64s()
			require.NoError(t, err)
			require.Equal(t, want, got, "frame %d: %s", f.ID, name)
		}
	}
	require.Equal(t, 4, wrote)
}

// TestADriversReplay: a driver-monitoring package runs over the driver camera's frames.
func TestADriversReplay(t *testing.T) {
	m, err := driving.MakeIn("dmonitoring_luma", driving.Tiny, ir.Float32)
	require.NoError(t, err)
	file, err := onnx.Decode("dmonitoring_model.onnx", m.ONNX)
	require.NoError(t, err)
	camera, _, layout := smallCameras()
	r, err := compile.Loop(t.Context(), []*onnx.Model{file}, openpilot.Options{Largest: layout}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	pkg, dir := written(t, r.Program, "monitoring"), t.TempDir()
	require.NoError(t, openpilot.WriteDriver(dir, openpilot.NPZ, camera, 3))
	code, stdout, stderr := command(pkg, "--replay", dir, "--device", "emu")
	require.Equal(t, cli.Done, code, stderr)
	require.Regexp(t, `(?m)^monitoring, dmonitoring_model.onnx fp32 on cpu \(emu\): 3 steps of `, stdout)
	for want, args := range map[string][]string{
		"a driver-monitoring model: --view, and two packages, are for driving models": {pkg, "--replay", dir, "--view"},
		`array "driver": there is none`:                                               {pkg, "--replay", driveOf(t)},
	} {
		code, _, stderr = command(append(args, "--device", "emu")...)
		require.Equal(t, cli.BadInput, code)
		require.Contains(t, stderr, want)
	}
	code, _, stderr = command(compiled(t, "fp32", layout), pkg, "--replay", dir, "--device", "emu")
	require.Equal(t, cli.BadInput, code)
	require.Contains(t, stderr, "a driver-monitoring model beside a driving one")
}

// driveOf writes a few frames of road and wide camera.
func driveOf(t *testing.T) string {
	road, wide, _ := smallCameras()
	dir := t.TempDir()
	require.NoError(t, openpilot.WriteDirectory(dir, openpilot.NPZ, road, wide, 2))
	return dir
}

func TestAReplayThatCannotRun(t *testing.T) {
	road, wide, layout := smallCameras()
	pkg, frames, empty := compiled(t, "fp32", layout), driveOf(t), t.TempDir()
	other := filepath.Join(t.TempDir(), "vision.onnx")
	require.NoError(t, os.WriteFile(other, nil, 0o644))
	large := t.TempDir()
	road.Width, wide.Width = 2*road.Width, 2*wide.Width
	require.NoError(t, openpilot.WriteDirectory(large, openpilot.NPZ, road, wide, 1))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no package":           {[]string{"--replay", frames}, "no package"},
		"no frames":            {[]string{pkg, "--replay", empty}, "no frames in this directory"},
		"no directory":         {[]string{pkg, "--replay", filepath.Join(empty, "x")}, "no such file or directory: give a directory of frames"},
		"a model":              {[]string{other, "--replay", frames}, "vision.onnx: --replay runs compiled packages: compile"},
		"an empty directory":   {[]string{empty, "--replay", frames}, "program.json: no such file or directory; give a directory that spark-compile wrote"},
		"view alone":           {[]string{pkg, "--view"}, "--view needs frames: give a directory of them with --replay DIR"},
		"angles alone":         {[]string{pkg, "--rpy=0,0,0"}, "--rpy needs frames"},
		"two packages":         {[]string{pkg, pkg}, "only --replay DIR takes two packages"},
		"two angles":           {[]string{pkg, "--replay", frames, "--rpy=0,1"}, "--rpy has 2 numbers: want roll, pitch and yaw"},
		"not an angle":         {[]string{pkg, "--replay", frames, "--rpy=0,0,NaN"}, "yaw is NaN"},
		"expected outputs":     {[]string{pkg, "--replay", frames, "--expect", empty}, "--replay and --expect cannot be combined"},
		"outputs of two":       {[]string{pkg, pkg, "--replay", frames, "--output-dir", empty}, "--output-dir and --json write what one package does"},
		"outputs over frames":  {[]string{pkg, "--replay", frames, "--output-dir", filepath.Join(frames, "..", filepath.Base(frames))}, "it is an input too (--replay), which would be overwritten: give another name"},
		"larger pictures":      {[]string{pkg, "--replay", large}, "frame 0: the road camera's picture of 240 × 74 takes"},
		"a taken address":      {[]string{pkg, "--replay", frames, "--view", taken.Addr().String()}, "--view: listen tcp " + taken.Addr().String()},
		"an address like none": {[]string{pkg, "--replay", frames, "--view=here"}, "--view: listen tcp: address here: missing port in address: give another address, such as 127.0.0.1:0"},
	} {
		code, _, stderr := command(append(c.args, "--device", "emu")...)
		require.Equal(t, cli.BadInput, code, name)
		require.Contains(t, stderr, c.says, name)
	}
}

// TestAnInterruptEndsAView: Ctrl-C, in a process of its own. It is no error, and the statistics are printed.
func TestAnInterruptEndsAView(t *testing.T) {
	_, _, layout := smallCameras()
	cmd := exec.CommandContext(t.Context(), "spark-run", compiled(t, "fp32", layout), "--replay", driveOf(t), "--device", "emu", "--view", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	url := regexp.MustCompile(`^http://127.0.0.1:\d+/`).FindString(first)
	require.NotEmpty(t, url, first)
	answer, err := http.Get(url + "events")
	require.NoError(t, err)
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	events.Buffer(nil, 1<<20)
	for events.Scan() && !strings.Contains(events.Text(), `"index":1,`) { // the last frame
	}
	require.NoError(t, events.Err())
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(rest), "2 steps of ")
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"a", "--view", "b"}, []string{"a", "--view", "b"}},
		{[]string{"--view", "0.0.0.0:80", "b"}, []string{"--view=0.0.0.0:80", "b"}},
		{[]string{"--view", ":0"}, []string{"--view=:0"}},
		{[]string{"--view", "[::1]:8080"}, []string{"--view=[::1]:8080"}},
		{[]string{"--view", "./a:1"}, []string{"--view", "./a:1"}},
		{[]string{"--view"}, []string{"--view"}},
	} {
		require.Equal(t, c.want, addressed(c.args))
	}
}
