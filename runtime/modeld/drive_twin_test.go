package modeld

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// driveTwin is a running testdata/drive_twin.py.
type driveTwin struct {
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Reader
	cmd    *exec.Cmd
	errors *strings.Builder
	models map[string]*driveModel
}

type driveModel struct {
	types map[string]ir.Type
	graph *ir.Graph
}

type twinArray struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// twinHeader of a message; each kind has some of the fields.
type twinHeader struct {
	Op                string      `json:"op"`
	Contract          string      `json:"contract,omitempty"`
	Models            []twinModel `json:"models,omitempty"`
	Width             int         `json:"width,omitempty"`
	Height            int         `json:"height,omitempty"`
	Features          int         `json:"features,omitempty"`
	Model             string      `json:"model,omitempty"`
	ID                uint32      `json:"id"`
	Desire            []float64   `json:"desire,omitempty"`
	TrafficConvention []float64   `json:"traffic_convention,omitempty"`
	Params            []float64   `json:"params,omitempty"` // lateral_control_params or action_t
	Calib             []float64   `json:"calib,omitempty"`
	Road              []int       `json:"road,omitempty"` // width, height, stride, offset of chroma
	Wide              []int       `json:"wide,omitempty"`
	Arrays            []twinArray `json:"arrays,omitempty"`
}

type twinModel struct {
	Name   string            `json:"name"`
	Inputs map[string][]int  `json:"inputs"`
	Slices map[string][2]int `json:"slices"`
}

// twinStep is what the twin is given of a frame.
type twinStep struct {
	id               uint32
	desire           int
	convention       int
	params           [2]float64
	calib            [3]float64
	road, wide       openpilot.Picture
	roadMat, wideMat [9]float32
}

// startDriveTwin starts the twin of a contract on models, or skips the test where there is no numpy.
func startDriveTwin(t *testing.T, contract string, models ...*driving.Model) *driveTwin {
	t.Helper()
	return startTwin(t, contract, 128, 64, models...)
}

// startTwin starts it with a model's picture of another size.
func startTwin(t *testing.T, contract string, width, height int, models ...*driving.Model) *driveTwin {
	t.Helper()
	py, err := toolchain.FindPython()
	if err == nil {
		_, err = toolchain.PythonPackageVersion(t.Context(), py, "numpy")
	}
	if err != nil {
		t.Skip(err)
	}
	d := &driveTwin{t: t, errors: &strings.Builder{}, models: map[string]*driveModel{}}
	d.cmd = exec.CommandContext(t.Context(), py, filepath.Join("testdata", "drive_twin.py"))
	d.cmd.Stderr = d.errors
	d.in, err = d.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	d.out = bufio.NewReader(out)
	require.NoError(t, d.cmd.Start())
	h := twinHeader{Op: "start", Contract: contract, Width: width, Height: height}
	for _, m := range models {
		decoded, err := onnx.Decode(m.Name, m.ONNX)
		require.NoError(t, err)
		g, err := onnx.Import(decoded, onnx.ImportOptions{})
		require.NoError(t, err)
		own := twinModel{m.Name, map[string][]int{}, map[string][2]int{}}
		d.models[m.Name] = &driveModel{map[string]ir.Type{}, g}
		for _, in := range m.Inputs {
			own.Inputs[in.Name], d.models[m.Name].types[in.Name] = in.Type.Shape, in.Type
		}
		slices, err := decoded.OutputSlices(g.Outputs[0].Type.Numel())
		require.NoError(t, err)
		for _, s := range slices {
			own.Slices[s.Name] = [2]int{s.Start, s.End}
			if s.Name == "hidden_state" {
				h.Features = s.End - s.Start
			}
		}
		h.Models = append(h.Models, own)
	}
	d.send(h, nil)
	return d
}

func (d *driveTwin) send(h twinHeader, arrays map[string]*npy.Array) {
	var data []byte
	for name, a := range arrays {
		h.Arrays = append(h.Arrays, twinArray{name, map[string]string{"u8": "uint8", "f32": "float32", "f64": "float64"}[a.DType], a.Shape})
		data = append(data, a.Data...)
	}
	text, err := json.Marshal(h)
	require.NoError(d.t, err)
	_, err = d.in.Write(append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...), data...))
	require.NoError(d.t, err)
}

func (d *driveTwin) receive() (h twinHeader, arrays map[string]*npy.Array) {
	var size [4]byte
	if _, err := io.ReadFull(d.out, size[:]); err != nil {
		_ = d.cmd.Wait() // what it says on stderr is the reason
		require.NoError(d.t, err, d.errors.String())
	}
	text := make([]byte, binary.LittleEndian.Uint32(size[:]))
	_, err := io.ReadFull(d.out, text)
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(text, &h))
	arrays = map[string]*npy.Array{}
	for _, a := range h.Arrays {
		width := map[string]int{"uint8": 1, "float64": 8}[a.DType]
		data := make([]byte, ir.Type{Shape: a.Shape}.Numel()*width)
		_, err := io.ReadFull(d.out, data)
		require.NoError(d.t, err)
		arrays[a.Name] = &npy.Array{DType: map[string]string{"uint8": "u8", "float64": "f64"}[a.DType], Shape: a.Shape, Data: data}
	}
	return h, arrays
}

// step runs a frame. What the models took is in.MODEL.INPUT, what they gave out.MODEL.OUTPUT; nothing where none ran.
func (d *driveTwin) step(s twinStep) map[string]*npy.Array {
	h := twinHeader{Op: "step", ID: s.id, Desire: make([]float64, 8), TrafficConvention: make([]float64, 2), Params: s.params[:], Calib: s.calib[:]}
	h.Desire[s.desire], h.TrafficConvention[s.convention] = 1, 1
	arrays := map[string]*npy.Array{}
	add := func(name string, p openpilot.Picture, m [9]float32) []int {
		arrays[name] = &npy.Array{DType: "u8", Shape: []int{len(p.Data)}, Data: p.Data}
		var data []byte
		for _, v := range m {
			data, _ = binary.Append(data, binary.LittleEndian, v)
		}
		arrays[name+"_matrix"] = &npy.Array{DType: "f32", Shape: []int{3, 3}, Data: data}
		return []int{p.Width, p.Height, p.Stride, p.UV}
	}
	h.Road, h.Wide = add("road", s.road, s.roadMat), add("wide", s.wide, s.wideMat)
	d.send(h, arrays)
	for {
		h, arrays := d.receive()
		if h.Op == "result" {
			return arrays
		}
		d.send(twinHeader{Op: "outputs"}, d.evaluate(h.Model, arrays))
	}
}

// evaluate runs a model on the reference evaluator.
func (d *driveTwin) evaluate(model string, inputs map[string]*npy.Array) map[string]*npy.Array {
	m, in := d.models[model], map[string]*ir.Array{}
	for name, a := range inputs {
		typ := m.types[name]
		if a.DType != typ.DType.String() { // a queue of numbers, or bytes that the model takes as numbers
			xs, err := a.Float64s()
			require.NoError(d.t, err)
			in[name] = ir.FromFloats(typ, xs).Array()
			continue
		}
		x, err := ir.NewTensor(typ, a.Data)
		require.NoError(d.t, err)
		in[name] = x.Array()
	}
	out, err := ir.Evaluate(context.Background(), m.graph, in, ir.EvalOptions{})
	require.NoError(d.t, err)
	arrays := map[string]*npy.Array{}
	for name, a := range out {
		t := ir.FromFloats(ir.T(ir.Float64, a.Shape...), a.Floats())
		arrays[name] = &npy.Array{DType: "f64", Shape: t.Shape, Data: t.Dense()}
	}
	return arrays
}

func (d *driveTwin) close() {
	require.NoError(d.t, d.in.Close())
	require.NoError(d.t, d.cmd.Wait(), d.errors.String())
}

// twinContracts are the models of each generation.
var twinContracts = map[string][]string{
	"supercombo096": {"supercombo096"}, "supercombo097": {"supercombo097"}, "0.10.0": {"vision010", "policy010"},
	"0.10.2": {"vision", "policy"}, "0.10.3": {"vision", "policy"}, "driving_supercombo": {"driving_supercombo"}, "supercombo_history": {"supercombo_history"},
}

// TestDriveTwin: over 10 frames of a drive in which frame 8 is missing, histories have what is computed by hand.
func TestDriveTwin(t *testing.T) {
	fulltest.Long(t)
	for contract, names := range twinContracts {
		t.Run(contract, func(t *testing.T) {
			var models []*driving.Model
			for _, name := range names {
				m, err := driving.MakeIn(name, driving.Tiny, ir.Float32)
				require.NoError(t, err)
				models = append(models, m)
			}
			d := startDriveTwin(t, contract, models...)
			road, wide := openpilot.Cameras(8)
			last := names[len(names)-1]
			numbers := func(out map[string]*npy.Array, name string) []float64 {
				require.Contains(t, out, name)
				xs, err := out[name].Float64s()
				require.NoError(t, err)
				return xs
			}
			// Levels 0 3 3 3 0 3 4 4 are pulses at steps 1 and 5 of 3, and at 6 of 4.
			levels := []int{0, 3, 3, 3, 0, 3, 4, 4}
			var hidden [][]float64
			curvature := 0.
			var pictures [][]byte
			for i, level := range levels {
				p := road.Draw(i)
				out := d.step(twinStep{id: uint32(i), desire: level, road: p, wide: wide.Draw(i),
					roadMat: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}, wideMat: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}})
				pictures = append(pictures, planeOf(p))
				flat := numbers(out, "out."+names[0]+".outputs")
				for _, m := range models[:1] {
					at := hiddenAt(t, m, len(flat))
					hidden = append(hidden, flat[at[0]:at[1]])
				}
				f := len(hidden[0])
				for _, image := range []string{"img", "input_imgs"} {
					if x := out["in."+names[0]+"."+image]; x != nil { // the newest picture, and one step or four before
						back := 4
						if contract == "supercombo096" {
							back = 1
						}
						older := make([]float64, 32*64)
						if i >= back {
							older = bytesAsNumbers(pictures[i-back])
						}
						xs := numbers(out, "in."+names[0]+"."+image)
						require.Equal(t, older, xs[:32*64], i)
						require.Equal(t, bytesAsNumbers(pictures[i]), xs[6*32*64:7*32*64], i)
					}
				}
				if name := "in." + last + ".prev_desired_curv"; out[name] != nil {
					rows := numbers(out, name)
					require.Equal(t, curvature, rows[len(rows)-1], i)
					flat := numbers(out, "out."+last+".outputs")
					curvature = flat[map[bool]int{true: 4963, false: 5985}[contract == "0.10.0"]]
				}
				switch contract {
				case "supercombo_history":
					require.Equal(t, pictures[i], out["in."+last+".warped"].Data[:len(pictures[i])])
				default:
					desires := numbers(out, "in."+last+"."+map[bool]string{true: "desire", false: "desire_pulse"}[out["in."+last+".desire"] != nil])
					want := make([]float64, len(desires))
					for step, d := range map[int]int{1: 3, 5: 3, 6: 4} {
						if step <= i && contract == "supercombo096" {
							want[(99-i+step)*8+d] = 1
						} else if step <= i {
							want[(99-i+step)/4*8+d] = 1
						}
					}
					require.Equal(t, want, desires, i)
					// The newest row of features is of now where the policy takes it, else of the last step or 4 before.
					rows := numbers(out, "in."+last+".features_buffer")
					age := map[string]int{"0.10.0": 0, "0.10.2": 0, "0.10.3": 0, "supercombo096": 1}
					newest, ok := age[contract]
					if !ok {
						newest = 4
					}
					expected := make([]float64, f)
					if i >= newest {
						expected = hidden[i-newest]
					}
					require.InDeltaSlice(t, expected, rows[len(rows)-f:], 0, i)
				}
			}
			// Frame 8 is missing when a desire begins: its pulse comes later where desires move on all the same, else never.
			missed := d.step(twinStep{id: 9, desire: 1, road: road.Draw(9), wide: wide.Draw(9)})
			require.Equal(t, contract == "supercombo_history", len(missed) > 0)
			after := d.step(twinStep{id: 10, desire: 1, road: road.Draw(10), wide: wide.Draw(10)})
			pulses := 0.
			for name, x := range after {
				if strings.HasPrefix(name, "in."+last+".desire") && x.Shape[len(x.Shape)-1] == 8 && len(x.Shape) == 3 {
					xs := numbers(after, name)
					for row := 0; row < len(xs); row += 8 {
						pulses += xs[row+1]
					}
				}
			}
			moved := map[string]float64{"supercombo096": 1, "supercombo097": 1, "0.10.0": 1}
			require.Equal(t, moved[contract], pulses)
			d.close()
		})
	}
}

func hiddenAt(t *testing.T, m *driving.Model, size int) [2]int {
	decoded, err := onnx.Decode(m.Name, m.ONNX)
	require.NoError(t, err)
	slices, err := decoded.OutputSlices(size)
	require.NoError(t, err)
	for _, s := range slices {
		if s.Name == "hidden_state" {
			return [2]int{s.Start, s.End}
		}
	}
	t.Fatal("no hidden_state")
	return [2]int{}
}

// planeOf is the first of six planes of 32×64 of a picture that is not warped.
func planeOf(p openpilot.Picture) []byte {
	var out []byte
	for y := range 32 {
		for x := range 64 {
			out = append(out, p.Data[2*y*p.Stride+2*x])
		}
	}
	return out
}

func bytesAsNumbers(data []byte) []float64 {
	out := make([]float64, len(data))
	for i, b := range data {
		out[i] = float64(b)
	}
	return out
}

// TestTwinWarps: pixels computed by hand. Row (10, 20, 30, 40) moved by half a pixel: ties go to even columns, and bilinear
// means round up. The chroma matrix halves the translation and doubles the projection's row.
func TestTwinWarps(t *testing.T) {
	py, err := toolchain.FindPython()
	if err == nil {
		_, err = toolchain.PythonPackageVersion(t.Context(), py, "numpy")
	}
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), py, "-B", "-c", `
import numpy as np, drive_twin as d
plane = np.array([[10, 20, 30, 41]] * 2, np.uint8)
half = [1, 0, .5, 0, 1, 0, 0, 0, 1]
print(d.nearest(plane, half, 4, 1).tolist(), d.bilinear(plane, half, 4, 1).tolist())
print(d.nearest(plane, [0, 0, 2, 0, 0, 0, 0, 0, 0], 1, 1).tolist(), d.bilinear(plane, [0, 0, 2, 0, 0, 0, 0, 0, 0], 1, 1).tolist())
y = np.arange(64, dtype=np.uint8).reshape(8, 8)
u = np.arange(100, 116, dtype=np.uint8).reshape(4, 4)
print(d.six_planes((y, u, u + 50), [1, 0, 2, 0, 1, 2, 0, 0, 1], 4, 4, d.nearest).reshape(6, 4).tolist())
`)
	cmd.Dir = "testdata"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, `[[10, 30, 30, 41]] [[15, 25, 36, 41]]
[[41]] [[10]]
[[18, 20, 34, 36], [26, 28, 42, 44], [19, 21, 35, 37], [27, 29, 43, 45], [105, 106, 109, 110], [155, 156, 159, 160]]
`, string(out))
}
