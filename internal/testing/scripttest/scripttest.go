// Package scripttest adds commands to testscript for the txtar scripts of the commands: they make small ONNX models and arrays.
//
//	model KIND FILE       an ONNX model: mlp, log, symbolic, state, or a broken one, named after its mistake
//	truncate FILE BYTES   keeps the first bytes of a file
//	package ARGS …        spark-compile, for the scripts of other commands
//	array FILE.npz …      arrays NAME=DTYPE[DIMS]=VALUES, for example inputs of the models above
//
// and the conditions [exists:PATH], of the machine's files; [python], that SPARK_PYTHON names one; and [long], that long tests run.
package scripttest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// Commands are the additional script commands.
func Commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){"model": model, "array": array, "truncate": truncate, "package": packaged}
}

// Condition has [exists:PATH], [python] and [long].
func Condition(condition string) (bool, error) {
	switch condition {
	case "python":
		return os.Getenv("SPARK_PYTHON") != "", nil
	case "long":
		return fulltest.Some(), nil
	}
	path, ok := strings.CutPrefix(condition, "exists:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	_, err := os.Stat(path)
	return err == nil, nil
}

// kinds are the models. Each is small enough to read in a debugger.
var kinds = map[string]func(b *onnx.Builder){
	// y = relu(x·W + c), x [1,4], y [1,3]
	"mlp": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), []float64{1, 0, -1, 2, 1, 0, 0, 1, 1, -1, 0, 2}))
		c := b.Initializer("c", ir.FromFloats(ir.T(ir.Float32, 3), []float64{.5, -.5, 0}))
		b.Node("Relu", []string{b.Op("Add", []string{b.Op("MatMul", []string{"x", w}), c})}, []string{"y"})
		b.Output("y", ir.Float32, 1, 3)
	},
	// y = x·W, x [1,4], y [1,3], which the file declares as [3]
	"contradiction": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), []float64{1, 0, -1, 2, 1, 0, 0, 1, 1, -1, 0, 2}))
		b.Node("MatMul", []string{"x", w}, []string{"y"})
		b.Output("y", ir.Float32, 3)
	},
	// y = x·W in f16, x [1,4], y [1,3]
	"half": func(b *onnx.Builder) {
		b.Input("x", ir.Float16, 1, 4)
		w := make([]float64, 12)
		for i := range w {
			w[i] = float64(i-5) / 3
		}
		b.Node("MatMul", []string{"x", b.Initializer("w", ir.FromFloats(ir.T(ir.Float16, 4, 3), w))}, []string{"y"})
		b.Output("y", ir.Float16, 1, 3)
	},
	// y = x·W in bf16, which ONNX Runtime does not multiply on the CPU; x [1,4], y [1,3] are f32
	"brain": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.BFloat16, 4, 3), []float64{1, 0, -1, 2, 1, 0, 0, 1, 1, -1, 0, 2}))
		b.Node("Cast", []string{"x"}, []string{"short"}, onnx.A("to", int(onnxpb.TensorProto_BFLOAT16)))
		b.Node("Cast", []string{b.Op("MatMul", []string{"short", w})}, []string{"y"}, onnx.A("to", int(onnxpb.TensorProto_FLOAT)))
		b.Output("y", ir.Float32, 1, 3)
	},
	// y = log(x)·W, NaN for negative x, x [1,4], y [1,3]
	"log": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), []float64{1, 0, -1, 2, 1, 0, 0, 1, 1, -1, 0, 2}))
		b.Node("MatMul", []string{b.Op("Log", []string{"x"}), w}, []string{"y"})
		b.Output("y", ir.Float32, 1, 3)
	},
	// y = x·W with weights that are not exact in 16 bits, x [1,4], y [1,3]
	"thirds": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		w := make([]float64, 12)
		for i := range w {
			w[i] = float64(i-5) / 3
		}
		b.Node("MatMul", []string{"x", b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 3), w))}, []string{"y"})
		b.Output("y", ir.Float32, 1, 3)
	},
	// exact = 2·x and rounded = x·W with weights that are not exact in 16 bits; x [1,4]
	"pair": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		b.Node("Add", []string{"x", "x"}, []string{"exact"})
		w := b.Initializer("w", ir.FromFloats(ir.T(ir.Float32, 4, 1), []float64{1. / 3, 2. / 3, -5. / 3, 7. / 3}))
		b.Node("MatMul", []string{"x", w}, []string{"rounded"})
		b.Output("exact", ir.Float32, 1, 4)
		b.Output("rounded", ir.Float32, 1, 1)
	},
	"symbolic": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, "batch", 4)
		b.Node("Relu", []string{"x"}, []string{"y"})
		b.Output("y", ir.Float32, "batch", 4)
	},
	// y = 2·x where rate is 16000, else x + x·x; x [1,4]
	"rate": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 4)
		b.Input("rate", ir.Int64)
		at := b.Op("Equal", []string{"rate", b.Initializer("fast", ir.ScalarInt(ir.Int64, 16000))})
		branch := func(op string) onnx.Attr {
			inner := onnx.NewBuilder(op, 17)
			if op == "then_branch" {
				inner.Node("Add", []string{"x", "x"}, []string{"r"})
			} else {
				inner.Node("Add", []string{"x", inner.Op("Mul", []string{"x", "x"})}, []string{"r"})
			}
			inner.Output("r", ir.Float32, 1, 4)
			return onnx.A(op, inner.Graph())
		}
		b.Node("If", []string{at}, []string{"y"}, branch("then_branch"), branch("else_branch"))
		b.Output("y", ir.Float32, 1, 4)
	},
	// next_state_h = state_h + x; y = 2·next_state_h
	"state": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1, 2)
		b.Input("state_h", ir.Float32, 1, 2)
		b.Node("Add", []string{"state_h", "x"}, []string{"next_state_h"})
		b.Node("Add", []string{"next_state_h", "next_state_h"}, []string{"y"})
		b.Output("y", ir.Float32, 1, 2)
		b.Output("next_state_h", ir.Float32, 1, 2)
	},
	"unknown-op": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1)
		b.Node("Frobnicate", []string{"x"}, []string{"y"})
		b.Output("y", ir.Float32, 1)
	},
	"undefined": func(b *onnx.Builder) {
		b.Node("Relu", []string{"nowhere"}, []string{"y"})
		b.Output("y", ir.Float32, 1)
	},
	"cycle": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1)
		b.Node("Add", []string{"x", "q"}, []string{"p"})
		b.Node("Relu", []string{"p"}, []string{"q"})
		b.Output("q", ir.Float32, 1)
	},
	"duplicate": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 1)
		b.Node("Relu", []string{"x"}, []string{"y"})
		b.Node("Exp", []string{"x"}, []string{"y"})
		b.Output("y", ir.Float32, 1)
	},
	"shape-mismatch": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 2, 3)
		b.Node("MatMul", []string{"x", "x"}, []string{"y"})
		b.Output("y", ir.Float32, 2, 3)
	},
	"type-mismatch": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 2)
		b.Input("i", ir.Int64, 2)
		b.Node("Add", []string{"x", "i"}, []string{"y"})
		b.Output("y", ir.Float32, 2)
	},
	"data-dependent": func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 4)
		b.Node("NonZero", []string{"x"}, []string{"y"})
		b.Output("y", ir.Int64, 1, "n")
	},
}

func model(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: model KIND FILE")
	}
	kind, path := args[0], ts.MkAbs(args[1])
	build := kinds[kind]
	opset := int64(17)
	if kind == "future" {
		build, opset = kinds["mlp"], 99
	}
	if build == nil {
		ts.Fatalf("no model %q", kind)
	}
	b := onnx.NewBuilder(kind, opset)
	build(b)
	// Marshalled here because Builder.Model rejects models that are wrong on purpose.
	raw, err := proto.Marshal(&onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: b.Graph(),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(opset)}}})
	ts.Check(err)
	ts.Check(os.WriteFile(path, raw, 0o644))
}

func array(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: array FILE.npz NAME=DTYPE[DIMS]=VALUES …")
	}
	out := map[string]*npy.Array{}
	for _, spec := range args[1:] {
		name, a, err := parseArray(spec)
		ts.Check(err)
		out[name] = a
	}
	path := ts.MkAbs(args[0])
	if strings.HasSuffix(path, ".npy") {
		for _, a := range out {
			ts.Check(npy.WriteFile(path, a))
		}
		return
	}
	ts.Check(npy.WriteZip(path, out))
}

// packaged runs spark-compile, which it builds for the script, and which must succeed.
func packaged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: package ARGS …")
	}
	path := ts.MkAbs(filepath.Join(".bin", "spark-compile"))
	if _, err := os.Stat(path); err != nil {
		out, err := exec.Command("go", "build", "-o", path, "github.com/spark-compile/spark-compile/cmd/spark-compile").CombinedOutput()
		if err != nil {
			ts.Fatalf("building spark-compile: %v: %s", err, out)
		}
	}
	ts.Check(ts.Exec(path, args...))
}

// parseArray reads x=f32[1,2]=1,2.
func parseArray(spec string) (name string, a *npy.Array, err error) {
	parts := strings.SplitN(spec, "=", 3)
	if len(parts) != 3 {
		return "", nil, fmt.Errorf("%q: want NAME=DTYPE[DIMS]=VALUES", spec)
	}
	dtype, dims, _ := strings.Cut(strings.TrimSuffix(parts[1], "]"), "[")
	a = &npy.Array{DType: dtype, Shape: []int{}}
	for _, d := range strings.FieldsFunc(dims, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(d)
		if err != nil {
			return "", nil, err
		}
		a.Shape = append(a.Shape, n)
	}
	for _, v := range strings.Split(parts[2], ",") {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return "", nil, err
		}
		switch dtype {
		case "f32":
			a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(float32(x)))
		case "f64":
			a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(x))
		case "i64":
			a.Data = binary.LittleEndian.AppendUint64(a.Data, uint64(int64(x)))
		default:
			return "", nil, fmt.Errorf("%q: arrays of %s are not supported", spec, dtype)
		}
	}
	return parts[0], a, nil
}

// truncate keeps the first bytes of a file: truncate FILE N.
func truncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: truncate FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	raw, err := os.ReadFile(path)
	ts.Check(err)
	ts.Check(os.WriteFile(path, slices.Clip(raw[:n]), 0o644))
}

// Run runs a command's scripts, in testdata/script of its package. UPDATE=1 rewrites the expected output.
func Run(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		Condition:     Condition,
		Cmds:          Commands(),
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("OPENPILOT_DGX_PRECISION", "")
			e.Setenv("PTXAS", os.Getenv("PTXAS"))
			e.Setenv("SPARK_PYTHON", os.Getenv("SPARK_PYTHON"))
			return nil
		},
	})
}
