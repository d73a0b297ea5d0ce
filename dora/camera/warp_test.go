package camera

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// noise is a picture in which every pixel differs from its neighbours, with padding.
func noise(width, height, stride, rows int) modeld.Picture {
	rng := rand.New(rand.NewPCG(1, uint64(width)))
	p := modeld.Picture{Data: make([]byte, stride*rows*3/2), Width: width, Height: height, Stride: stride, UV: stride * rows}
	for i := range p.Data {
		p.Data[i] = byte(rng.Uint32())
	}
	return p
}

// matrices are of calibrations, and some that look past the picture or away from it.
func matrices(t testing.TB, p modeld.Picture, width int) (out [][9]float32) {
	for _, rpy := range [][3]float64{{}, {.01, .02, -.01}, {-.02, .3, .5}} {
		focal := 2648 * float64(p.Width) / 1928
		c := modeld.Calibration{RPY: rpy, Road: modeld.Intrinsics{Focal: focal, Width: p.Width, Height: p.Height}, WideCamera: modeld.Intrinsics{Focal: focal / 4.67, Width: p.Width, Height: p.Height}}
		road, wide, err := c.Warps(width)
		require.NoError(t, err)
		out = append(out, road, wide)
	}
	nan := float32(math.NaN())
	return append(out, [9]float32{1, 0, -40, 0, 1, -30, 0, 0, 1}, [9]float32{1, 0, 0, 0, 1, 0, .02, -.01, -.5}, [9]float32{nan, 0, 0, 0, 1, 0, 0, 0, 1}, [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 0})
}

// TestWarpIsTheOperator: what the evaluator and the compiled kernel compute, on every pixel, for both samplings.
func TestWarpIsTheOperator(t *testing.T) {
	ctx := context.Background()
	const width, height = 64, 32
	p := noise(96, 60, 128, 64)
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	looks := []Look{Driving(width, height, false), Driving(width, height, true)}
	for _, linear := range []bool{false, true} { // driver monitoring's: luma alone on black, and two columns twice
		looks = append(looks, Look{width, height, nil, linear, 16}, Look{width, height, []int{0, 0, 0, 1, 0, 1, 0, 2}, linear, 200})
	}
	for _, look := range looks {
		kernel := openWarp(t, d, look, 2, p)
		seen := map[byte]bool{}
		list := matrices(t, p, width)
		for k := 0; k < len(list); k += 2 {
			for i, m := range list[k : k+2] {
				copy(runtime.View[float32](kernel.Input("matrices"))[9*i:], m[:])
			}
			require.NoError(t, kernel.Run(ctx))
			got, size := kernel.Output("planes"), look.Bytes()
			for i := range 2 {
				twin := make([]byte, size)
				look.Warp(twin, p, list[k+i])
				assert.Equal(t, twin, got[i*size:(i+1)*size], "matrix %d, %v: the kernel", k+i, look)
				assert.Equal(t, twin, evaluated(t, p, list[k+i], look), "matrix %d, %v: the evaluator", k+i, look)
				for _, b := range twin {
					seen[b] = true
				}
			}
		}
		assert.Greater(t, len(seen), 200)
	}
}

// warpGraph is the operator for several pictures of so many bytes.
func warpGraph(t *testing.T, l Look, count, bytes int) *ir.Graph {
	g := ir.NewGraph("warp")
	in := []*ir.Value{g.AddInput("matrices", ir.T(ir.Float32, count, 3, 3)), g.AddInput("format", ir.T(ir.Int32, 4))}
	for k := range count {
		in = append(in, g.AddInput(fmt.Sprint("frame", k), ir.T(ir.Uint8, bytes)))
	}
	attrs := ir.Attrs{"height": l.Height, "width": l.Width, "linear": l.Linear, "fill": l.Fill}
	if len(l.Phases) > 0 {
		attrs["phases"] = l.Phases
	}
	require.NoError(t, g.Build("warp", func(x *ir.Expansion) {
		v := x.Add("WarpFrame", attrs, in...)
		v.Name = "planes"
		g.Outputs = []*ir.Value{v}
	}))
	return g
}

// openWarp is the compiled operator on a device, for the same picture several times.
func openWarp(t *testing.T, d hal.Device, l Look, count int, p modeld.Picture) *runtime.Session {
	r, err := compile.Graph(t.Context(), "warp", warpGraph(t, l, count, len(p.Data)),
		compile.Options{Precision: precision.FP32, Targets: []string{target.Default().Name}})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), r.Program, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for k := range count {
		require.NoError(t, s.Set(fmt.Sprint("frame", k), p.Data))
	}
	copy(runtime.View[int32](s.Input("format")), format(p))
	return s
}

// format is what the operator is told of a picture.
func format(p modeld.Picture) []int32 {
	return []int32{int32(p.Width), int32(p.Height), int32(p.Stride), int32(p.UV)}
}

// evaluated is the operator as the evaluator has it.
func evaluated(t *testing.T, p modeld.Picture, m [9]float32, l Look) []byte {
	g := warpGraph(t, l, 1, len(p.Data))
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		in[v.Name] = ir.NewArray(v.Type)
	}
	for i, x := range m {
		in["matrices"].F[i] = float64(x)
	}
	for i, x := range format(p) {
		in["format"].I[i] = int64(x)
	}
	for i, b := range p.Data {
		in["frame0"].I[i] = int64(b)
	}
	out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
	require.NoError(t, err)
	planes := make([]byte, len(out["planes"].I))
	for i, x := range out["planes"].I {
		planes[i] = byte(x)
	}
	return planes
}

// TestWarpOfARoad: the horizon of a drawn drive lies where a model expects it, at the row of its optical axis.
func TestWarpOfARoad(t *testing.T) {
	road, _ := openpilot.Cameras(4)
	p := road.Draw(0)
	c := modeld.Calibration{RPY: openpilot.At(0).RPY, Road: modeld.Intrinsics{Focal: road.Focal, Width: road.Width, Height: road.Height}, WideCamera: modeld.Intrinsics{Focal: 1, Width: 2, Height: 2}}
	m, _, err := c.Warps(512)
	require.NoError(t, err)
	look := Driving(512, 256, false)
	planes := make([]byte, look.Bytes())
	look.Warp(planes, modeld.Picture(p), m)
	bright := func(row int) int { return int(planes[row/2*256+128]) } // the sky is brighter than the road
	assert.Greater(t, bright(36), bright(60)+30)
}

func BenchmarkWarp(b *testing.B) {
	p := noise(1928, 1208, 2048, 1216)
	planes := make([]byte, Driving(512, 256, false).Bytes())
	m := matrices(b, p, 512)[2]
	for _, linear := range []bool{false, true} {
		b.Run(map[bool]string{false: "nearest", true: "linear"}[linear], func(b *testing.B) {
			for b.Loop() {
				Driving(512, 256, linear).Warp(planes, p, m)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pictures/s")
		})
	}
}

// TestWarpFrom_IsAPartOfALargerLook: a look that begins elsewhere sees the same pixels, luma and chroma.
func TestWarpFrom_IsAPartOfALargerLook(t *testing.T) {
	p := noise(96, 60, 128, 64)
	whole, part := Driving(64, 32, false), Driving(20, 12, false)
	for i, m := range matrices(t, p, 64) {
		want, got := make([]byte, whole.Bytes()), make([]byte, part.Bytes())
		whole.Warp(want, p, m)
		part.WarpFrom(got, p, m, 30, 8)
		for plane := range 6 {
			for y := range 6 {
				from := plane*32*16 + (4+y)*32 + 15
				require.Equal(t, want[from:from+10], got[plane*60+10*y:plane*60+10*y+10], "matrix %d, plane %d, row %d", i, plane, y)
			}
		}
	}
}
