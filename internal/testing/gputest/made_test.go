//go:build !bundle

package gputest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// This file needs the compiler, which the bundle's test binary does without: there spark-compile makes the packages.

// TestTheModelTestOnTheCPUDevice runs what TestModelsOnGPU runs, on a model made here.
func TestTheModelTestOnTheCPUDevice(t *testing.T) {
	if os.Getenv("SPARK_GPU_MODELS") != "" {
		t.Skip("SPARK_GPU_MODELS is set: the models there are tested")
	}
	ctx := context.Background()
	root := t.TempDir()
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	model, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(ctx, model, compile.Options{Precision: "fp16", Targets: []string{"sm_121", "sm_80"}})
	require.NoError(t, err)
	files, err := gopkg.Files("fp16", r.Program, nil)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "policy"), 0o755))
	require.NoError(t, gopkg.Write(filepath.Join(root, "policy", "fp16"), files))
	_, err = FindPackages(root)
	require.ErrorContains(t, err, "no golden")

	in := compile.Inputs(r.Source)
	out, err := ir.Evaluate(ctx, r.Source, in, ir.EvalOptions{})
	require.NoError(t, err)
	golden := map[string]*npy.Array{}
	for name, a := range in {
		golden[name] = &npy.Array{DType: a.DType.String(), Shape: a.Shape, Data: a.Tensor().Dense()}
	}
	for name, a := range out {
		x := ir.FromFloats(ir.T(ir.Float64, a.Shape...), a.Floats())
		golden[name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
	}
	require.NoError(t, npy.WriteZip(filepath.Join(root, "policy", "0.npz"), golden))
	all, err := FindPackages(root)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "policy/fp16", all[0].Name)
	t.Setenv("SPARK_DEVICE", "emu")
	checkModel(t, all[0])
}
