package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/testdata/experiments/recovery"
)

// peftRow has PyTorch and PEFT train the adapter from the same numbers. Layers of kind magnitude are left out: PEFT has none.
func (t *table) peftRow(ctx context.Context, r *recovery.Row, a *dora.Adapter) error {
	n := t.network
	train := n.Lessons.Inputs
	dir, err := os.MkdirTemp("", "recover")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, m := range map[string]*onnx.Model{"original": n.Original.File, "damaged": t.damaged.File} {
		text, err := m.Marshal()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".onnx"), text, 0o666); err != nil {
			return err
		}
	}
	theirs := *a
	theirs.Layers = slices.DeleteFunc(slices.Clone(a.Layers), func(l *dora.Layer) bool { return l.Kind == dora.Magnitude })
	if err := theirs.Save(filepath.Join(dir, "adapter_model.safetensors")); err != nil {
		return err
	}
	steps := 0
	for _, s := range t.stages {
		steps += s.Steps
	}
	plan := map[string]any{"order": recovery.Order(len(train), steps, t.seed), "stages": t.stages, "outputs": n.Teacher.Outputs, "inner": n.Teacher.Inner}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.json"), text, 0o666); err != nil {
		return err
	}
	for name, list := range map[string][]recovery.Input{"train": train, "judge": n.Unseen.Inputs} {
		var data []byte
		for _, in := range list {
			data = append(data, in[slices.Collect(maps.Keys(in))[0]]...)
		}
		x := &npy.Array{DType: "f32", Shape: []int{len(list), 6, 320, 160}, Data: data}
		if err := npy.WriteZip(filepath.Join(dir, name+".npz"), map[string]*npy.Array{"x": x}); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, t.peft, "testdata/experiments/recover/reference.py", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", t.peft, err)
	}
	var got struct {
		recovery.Quality
		Numbers int
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return fmt.Errorf("%s: %w: %s", t.peft, err, out)
	}
	r.Layers, r.Numbers, r.Quality = len(theirs.Layers), got.Numbers, got.Quality
	return nil
}
