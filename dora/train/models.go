package train

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/dora/loss"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
)

// fits reports a teacher that cannot be shown the model's samples, or says other things than the model.
func (r *run) fits(file *onnx.Model, terms loss.Terms) error {
	if r.opt.Teacher == "" || len(terms.Targets()) == 0 {
		return nil
	}
	other, err := r.load(r.opt.Teacher)
	if err != nil {
		return fmt.Errorf("--teacher: %w", err)
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("--teacher: %s: %s: name a teacher with the inputs and outputs of %s", r.opt.Teacher, fmt.Sprintf(format, args...), r.opt.Model)
	}
	student, err := onnx.Import(file, onnx.ImportOptions{Batch: 1})
	if err != nil {
		return err
	}
	g, err := onnx.Import(other, onnx.ImportOptions{Batch: 1})
	if err != nil {
		return fmt.Errorf("--teacher: %w", err)
	}
	for _, v := range g.Inputs {
		switch own := named(student.Inputs, v.Name); {
		case own == nil:
			return wrong("it takes %q, which the model does not", v.Name)
		case !own.Type.Equal(v.Type):
			return wrong("its input %q is %v, the model's %v", v.Name, v.Type, own.Type)
		}
	}
	for _, name := range terms.Targets() {
		own, v := named(student.Outputs, name), named(g.Outputs, name)
		switch {
		case own == nil: // an inner value
			continue
		case v == nil:
			return wrong("it has no output %q", name)
		case own.Type.Numel() != v.Type.Numel():
			return wrong("its output %q has %d numbers, the model's %d", name, v.Type.Numel(), own.Type.Numel())
		}
		length := own.Type.Numel()
		parts, err := file.OutputSlices(length)
		if err != nil {
			return err
		}
		others, err := other.OutputSlices(length)
		if err != nil {
			return fmt.Errorf("--teacher: %w", err)
		}
		if err := sameParts(parts, others); err != nil {
			return wrong("its output %q: %v", name, err)
		}
	}
	return nil
}

// sameParts reports parts of an output that another model has elsewhere, where both say which there are.
func sameParts(own, other []onnx.Slice) error {
	for _, p := range own {
		if other == nil || p.Name == "pad" {
			continue
		}
		at := slices.IndexFunc(other, func(q onnx.Slice) bool { return q.Name == p.Name })
		if at < 0 {
			return fmt.Errorf("it has no part %q", p.Name)
		}
		if q := other[at]; q != p {
			return fmt.Errorf("its part %q is %d to %d, the model's %d to %d", p.Name, q.Start, q.End, p.Start, p.End)
		}
	}
	return nil
}

func named(values []*ir.Value, name string) *ir.Value {
	for _, v := range values {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// openTeacher compiles the teacher, if the loss reads one.
func (r *run) openTeacher(ctx context.Context, terms loss.Terms) (err error) {
	if len(terms.Targets()) == 0 {
		return nil
	}
	if r.opt.Teacher == "" {
		return fmt.Errorf("--teacher: the loss compares %s with a teacher's: name an ONNX file of the same outputs, or choose terms of what was measured by --loss", strings.Join(terms.Targets(), ", "))
	}
	if r.teacher, err = r.openModel(ctx, "--teacher", r.opt.Teacher, terms.Inner()); err != nil {
		return err
	}
	r.teach = r.teacher.Values
	return nil
}

// openModel compiles a model that runs alongside the step, and returns the named inner values with its outputs.
func (r *run) openModel(ctx context.Context, flag, path string, inner []string) (*teacher.Teacher, error) {
	file, err := r.load(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	t, err := teacher.Open(ctx, file, r.opt.Device, teacher.Options{Precision: r.opt.TeacherPrecision, Batch: r.opt.TeacherBatch, Values: inner,
		CacheDir: r.cache("teacher"), CacheBytes: r.opt.CacheBytes, Targets: []string{r.opt.Target}, Warn: r.opt.Message})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	r.close, r.companions = append(r.close, t.Close), append(r.companions, t.Program)
	return t, nil
}

// openVision lets the data compute the features that a policy reads.
func (r *run) openVision(ctx context.Context, opt *dataset.Options) error {
	file, err := r.load(r.opt.Vision)
	if err != nil {
		return fmt.Errorf("--vision: %w", err)
	}
	if opt.Vision, err = dataset.InputsOf(file); err != nil {
		return err
	}
	output, part, err := features(file)
	if err != nil {
		return fmt.Errorf("--vision: %s: %w", r.opt.Vision, err)
	}
	for _, in := range opt.Inputs {
		if shape := in.Type.Shape; in.Name == generation.Features && len(shape) > 0 && shape[len(shape)-1] != part.End-part.Start {
			return fmt.Errorf("--vision: %s makes %d features, and %s takes %d: name the vision model that belongs to it", r.opt.Vision, part.End-part.Start, r.opt.Model, shape[len(shape)-1])
		}
	}
	t, err := r.openModel(ctx, "--vision", r.opt.Vision, nil)
	if err != nil {
		return err
	}
	opt.Features = func(ctx context.Context, keys []string, inputs []map[string][]byte) ([][]float32, error) {
		values, err := t.Values(ctx, keys, inputs)
		if err != nil {
			return nil, err
		}
		out := make([][]float32, len(values))
		for i, v := range values {
			out[i] = v[output][part.Start:part.End]
		}
		return out, nil
	}
	return nil
}

// features finds the features among a vision model's outputs.
func features(file *onnx.Model) (output string, part onnx.Slice, err error) {
	g, err := onnx.Import(file, onnx.ImportOptions{Batch: 1})
	if err != nil {
		return "", part, err
	}
	for _, v := range g.Outputs {
		if v.Name == generation.HiddenState {
			return v.Name, onnx.Slice{Name: generation.HiddenState, End: v.Type.Numel()}, nil
		}
		slices, err := file.OutputSlices(v.Type.Numel())
		if err != nil {
			continue
		}
		for _, s := range slices {
			if s.Name == generation.HiddenState {
				return v.Name, s, nil
			}
		}
	}
	return "", part, fmt.Errorf("it has no output %s, and no such part in its output_slices: a vision model of openpilot has", generation.HiddenState)
}
