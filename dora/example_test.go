package dora_test

import (
	"context"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// Distillation: an adapter of car.onnx learns to compute what driving.onnx computes, a model of the same layout.
func ExampleDistil() {
	train := func(ctx context.Context, inputs []map[string][]byte) error {
		open := func(path string) (*dora.Model, error) {
			file, err := onnx.Load(path)
			if err != nil {
				return nil, err
			}
			return dora.Open(file, onnx.ImportOptions{})
		}
		teacher, err := open("driving.onnx")
		if err != nil {
			return err
		}
		model, err := open("car.onnx")
		if err != nil {
			return err
		}
		adapter, err := dora.Init(model, dora.InitOptions{MaxSize: 0.01})
		if err != nil {
			return err
		}
		device, err := emu.Open(emu.Options{})
		if err != nil {
			return err
		}
		defer device.Close()
		inner, err := teacher.Inner(1 << 21)
		if err != nil {
			return err
		}
		t, err := dora.NewTeacher(ctx, teacher, inner, device)
		if err != nil {
			return err
		}
		defer t.Close()
		if err := t.Measure(ctx, inputs); err != nil {
			return err
		}
		step, err := dora.NewStep(ctx, model, adapter, dora.StepOptions{Precision: "fp32", Loss: dora.Distil(t.Outputs, t.Inner, 10, true)})
		if err != nil {
			return err
		}
		trainer, err := step.Open(ctx, device)
		if err != nil {
			return err
		}
		defer trainer.Close()
		for _, in := range inputs {
			if err := t.Run(ctx, in); err != nil {
				return err
			}
			for _, values := range []map[string][]byte{in, t.Values()} {
				for name, data := range values {
					if err := trainer.Session().Set(name, data); err != nil {
						return err
					}
				}
			}
			if _, err := trainer.Step(ctx, 0.02); err != nil {
				return err
			}
		}
		if err := trainer.Read(); err != nil {
			return err
		}
		return adapter.Save("car.safetensors")
	}
	_ = train
}
