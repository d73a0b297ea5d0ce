package dora_test

import (
	"context"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// Distillation: an adapter of car.onnx learns to compute what driving.onnx computes, a model of the same layout.
func ExampleDistil() {
	train := func(ctx context.Context, inputs []map[string][]byte) error {
		original, err := onnx.Load("driving.onnx")
		if err != nil {
			return err
		}
		file, err := onnx.Load("car.onnx")
		if err != nil {
			return err
		}
		model, err := dora.Open(file, onnx.ImportOptions{})
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
		inner, err := model.Inner(1 << 21)
		if err != nil {
			return err
		}
		t, err := teacher.Open(ctx, original, device, teacher.Options{Precision: "fp32", Values: inner})
		if err != nil {
			return err
		}
		defer t.Close()
		values, err := t.Values(ctx, make([]string, len(inputs)), inputs)
		if err != nil {
			return err
		}
		matches := dora.Matches(t.Names(), teacher.Spreads(values))
		outputs := matches[:len(matches)-len(inner)]
		step, err := dora.NewStep(ctx, model, adapter, dora.StepOptions{Precision: "fp32", Loss: dora.Distil(outputs, matches[len(outputs):], 10, true)})
		if err != nil {
			return err
		}
		trainer, err := step.Open(ctx, device)
		if err != nil {
			return err
		}
		defer trainer.Close()
		for i, in := range inputs {
			for name, data := range in {
				if err := trainer.Session().Set(name, data); err != nil {
					return err
				}
			}
			for name, x := range values[i] {
				if err := trainer.Session().Set(dora.Target(name), runtime.Bytes(x)); err != nil {
					return err
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
