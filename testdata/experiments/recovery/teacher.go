package recovery

import (
	"context"
	"errors"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// Teacher computes what a model that learns from it is held to, in fp32, one input at a time.
type Teacher struct {
	*teacher.Teacher
	Outputs, Inner []dora.Match // with their spreads over the inputs that it was made with
}

// NewTeacher makes one that gives inner values too, and measures how far values vary over inputs.
func NewTeacher(ctx context.Context, file *onnx.Model, inner []string, d hal.Device, inputs []Input) (t *Teacher, err error) {
	t = &Teacher{}
	if t.Teacher, err = teacher.Open(ctx, file, d, teacher.Options{Precision: precision.FP32, Batch: 1, Values: inner}); err != nil {
		return nil, err
	}
	var v teacher.Variation
	for _, in := range inputs {
		values, err := t.Of(ctx, in)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		v.Add(values)
	}
	all := dora.Matches(t.Names(), v.Spreads())
	outputs := len(all) - len(inner)
	t.Outputs, t.Inner = all[:outputs], all[outputs:]
	return t, nil
}

// Of is the values of one input by name.
func (t *Teacher) Of(ctx context.Context, in Input) (map[string][]float32, error) {
	values, err := t.Values(ctx, []string{""}, []Input{in})
	if err != nil {
		return nil, err
	}
	return values[0], nil
}
