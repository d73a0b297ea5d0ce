package modeld

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/x448/float16"

	"github.com/spark-compile/spark-compile/runtime"
)

// see gives the device pictures, how they lie in memory, and the transforms to the models' pictures. It returns how many pictures are read
// where they lie.
func (m *loop) see(ctx context.Context, transforms []float32, cameras []string, pictures []Picture) (inPlace int, err error) {
	l := m.program.Loop
	var layout runtime.FrameLayout
	for i, p := range pictures {
		if err := p.check("the " + cameras[i] + " camera's picture"); err != nil {
			return 0, err
		}
		stride, uv := p.layout()
		this := runtime.FrameLayout{Width: p.Width, Height: p.Height, Stride: stride, UV: uv}
		switch {
		case i > 0 && this != layout:
			return 0, fmt.Errorf("the %s camera's picture is %d × %d with rows of %d bytes and chroma at %d, the %s camera's %d × %d, %d and %d: want the same of both",
				cameras[i], this.Width, this.Height, this.Stride, this.UV, cameras[0], layout.Width, layout.Height, layout.Stride, layout.UV)
		case this.Bytes() > l.Largest.Bytes():
			return 0, fmt.Errorf("the %s camera's picture of %d × %d takes %d bytes, %s was compiled for pictures up to %d × %d, %d bytes: compile it with --camera %dx%d",
				cameras[i], this.Width, this.Height, this.Bytes(), m.program.Model, l.Largest.Width, l.Largest.Height, l.Largest.Bytes(), this.Width, this.Height)
		}
		layout = this
	}
	if err := m.session.Wait(ctx); err != nil { // an abandoned step still reads what is filled here
		return 0, err
	}
	copy(runtime.View[float32](m.session.Input(runtime.TransformsInput)), transforms)
	copy(runtime.View[int32](m.session.Input(runtime.CameraInput)), []int32{int32(layout.Width), int32(layout.Height), int32(layout.Stride), int32(layout.UV)})
	for i, name := range l.Frames {
		data := pictures[i].Data[:min(layout.Bytes(), len(pictures[i].Data))]
		if m.copies {
			to := m.session.Input(name)
			if to == nil {
				return 0, fmt.Errorf("the input %q for the %s camera's picture is bound to another session's memory: leave it unbound", name, cameras[i])
			}
			copy(to, data)
			continue
		}
		switch here, err := m.session.BindHostMemory(name, data); {
		case err != nil:
			return 0, fmt.Errorf("the %s camera's picture: %w", cameras[i], err)
		case here:
			inPlace++
		}
	}
	return inPlace, nil
}

// set fills an input with numbers, if the program has it.
func (m *loop) set(name string, values ...float64) error {
	i := slices.IndexFunc(m.program.Inputs, func(q runtime.Port) bool { return q.Name == name })
	if i < 0 {
		return nil
	}
	q, to := m.program.Inputs[i], m.session.Input(name)
	for k, x := range values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s is %v: want finite numbers", name, values)
		}
		bytes := to[k*len(to)/len(values):]
		switch q.DType {
		case "f32":
			binary.NativeEndian.PutUint32(bytes, math.Float32bits(float32(x)))
		case "f16":
			binary.NativeEndian.PutUint16(bytes, float16.Fromfloat32(float32(x)).Bits())
		}
	}
	return nil
}

// outputs are the program's outputs but for new values of states: in the order of the models, and by name.
func (m *loop) outputs() (list []vector, named map[string][]float64, err error) {
	named = map[string][]float64{}
	for _, q := range m.program.Outputs {
		if slices.ContainsFunc(m.program.States, func(s runtime.State) bool { return s.Output == q.Name }) {
			continue
		}
		if named[q.Name], err = runtime.Float64s(q.DType, m.session.Output(q.Name)); err != nil {
			return nil, nil, fmt.Errorf("%s: output %q: %w", m.program.Model, q.Name, err)
		}
		list = append(list, vector{named[q.Name], q.Slices})
	}
	return list, named, nil
}
