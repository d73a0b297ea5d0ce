package camera

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Warper computes Look.Warp on a device, for pictures of one layout, several at a time.
type Warper struct {
	session *runtime.Session
	count   int
}

// Names of the program's inputs.
const (
	matricesInput = "matrices"
	formatInput   = "format"
	frameInput    = "frame"
)

// attributes are those of the operator WarpFrame.
func (l Look) attributes() ir.Attrs {
	a := ir.Attrs{"height": l.Height, "width": l.Width, "linear": l.Linear, "fill": l.Fill}
	if len(l.Phases) > 0 {
		a["phases"] = l.Phases
	}
	return a
}

// NewWarper compiles the kernel for count pictures of so many bytes.
func NewWarper(ctx context.Context, d hal.Device, l Look, count, bytes int) (*Warper, error) {
	g := ir.NewGraph("warp")
	in := []*ir.Value{g.AddInput(matricesInput, ir.T(ir.Float32, count, 3, 3)), g.AddInput(formatInput, ir.T(ir.Int32, 4))}
	for k := range count {
		in = append(in, g.AddInput(fmt.Sprint(frameInput, k), ir.T(ir.Uint8, bytes)))
	}
	err := g.Build("warp", func(x *ir.Expansion) {
		v := x.Add("WarpFrame", l.attributes(), in...)
		v.Name = "planes"
		g.Outputs = []*ir.Value{v}
	})
	if err != nil {
		return nil, err
	}
	on := target.Default().Name
	if t, err := target.For(d.Info().Target); err == nil {
		on = t.Name
	}
	r, err := compile.Graph(ctx, "warp", g, compile.Options{Precision: precision.FP32, Targets: []string{on}})
	if err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
	return &Warper{s, count}, err
}

// Warp is Look.Warp of each picture by its matrix. The result is valid until the next call.
func (w *Warper) Warp(ctx context.Context, pictures []modeld.Picture, matrices [][9]float32) ([]byte, error) {
	if len(pictures) != w.count || len(matrices) != w.count {
		return nil, fmt.Errorf("%d pictures and %d matrices, want %d", len(pictures), len(matrices), w.count)
	}
	if err := w.session.Wait(ctx); err != nil { // an earlier context may have ended in a run
		return nil, err
	}
	into := runtime.View[float32](w.session.Input(matricesInput))
	for k, p := range pictures {
		copy(into[9*k:], matrices[k][:])
		if err := w.session.Set(fmt.Sprint(frameInput, k), p.Data); err != nil {
			return nil, err
		}
	}
	p := pictures[0]
	stride, uv := p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	format := w.session.Input(formatInput)
	for i, n := range []int{p.Width, p.Height, stride, uv} {
		binary.LittleEndian.PutUint32(format[4*i:], uint32(n))
	}
	if err := w.session.Run(ctx); err != nil {
		return nil, err
	}
	return w.session.Output("planes"), nil
}

// Close frees the program.
func (w *Warper) Close() error { return w.session.Close() }
