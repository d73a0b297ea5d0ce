package compile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
)

// raw runs a program on an engine and returns its outputs' bytes, and what the engine did.
func raw(t *testing.T, p *runtime.Program, in map[string]*npy.Array, engine emu.Engine) (map[string][]byte, emu.EngineStats, time.Duration) {
	t.Helper()
	ctx := context.Background()
	d, err := emu.Open(emu.Options{Engine: engine})
	require.NoError(t, err)
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	for _, q := range p.Inputs {
		data, err := in[q.Name].As(q.DType, q.Shape)
		require.NoError(t, err, q.Name)
		require.NoError(t, s.Set(q.Name, data))
	}
	begin := time.Now()
	require.NoError(t, s.Run(ctx))
	took := time.Since(begin)
	out := map[string][]byte{}
	for _, q := range p.Outputs {
		out[q.Name] = append([]byte(nil), s.Output(q.Name)...)
	}
	require.NoError(t, s.Close())
	return out, d.EngineStats(), took
}

// agree holds native code against another engine, bit for bit, and wants every instruction of the kernels native.
func agree(t *testing.T, p *runtime.Program, in map[string]*npy.Array, against emu.Engine) {
	t.Helper()
	want, _, slow := raw(t, p, in, against)
	for _, engine := range []emu.Engine{emu.JIT, emu.AVX2} {
		got, stats, fast := raw(t, p, in, engine)
		t.Logf("%s: %d kernels, %d bytes, %v left to the interpreter, which executed %d; %v, interpreter %v",
			stats.Level, stats.Kernels, stats.Bytes, stats.Left, stats.Interpreted, fast, slow)
		require.Zero(t, stats.Refused)
		require.Empty(t, stats.Left)
		for name, w := range want {
			require.True(t, string(w) == string(got[name]), "output %s differs", name)
		}
	}
}

// TestNativeCodeIsTheInterpreter runs every small model on both engines. Without conversions of e4m3, on sm_80, low precision
// takes other instructions.
func TestNativeCodeIsTheInterpreter(t *testing.T) {
	fulltest.Long(t)
	if _, err := emu.Open(emu.Options{Engine: emu.JIT}); err != nil {
		t.Skip(err)
	}
	for _, name := range names {
		for _, row := range precision.All() {
			precision, low := row.Name, row.Calibrates()
			if precision != "fp16" && precision != "bf16" && !quick(name) && !fulltest.Runs(t.Name()+name+precision) {
				continue // their kernels are of the small models' kinds; calibrating takes longer than everything else here
			}
			targets := []string{"sm_121"}
			if low && name == "policy" {
				targets = append(targets, "sm_80")
			}
			for _, target := range targets {
				t.Run(name+"/"+precision+"/"+target, func(t *testing.T) {
					r, _ := generated(t, name, precision, target)
					agree(t, r.Program, arrays(t, r.Source), emu.Specification)
				})
			}
		}
	}
}

// TestNativeCodeIsTheInterpreterOnFullModels is the same on the models of ../shared/models, where they are.
func TestNativeCodeIsTheInterpreterOnFullModels(t *testing.T) {
	fulltest.Long(t)
	dir := filepath.Join("..", "..", "..", "shared", "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no full-size models beside the repository: ", err)
	}
	if _, err := emu.Open(emu.Options{Engine: emu.JIT}); err != nil {
		t.Skip(err)
	}
	all := fulltest.Runs(t.Name())
	for _, f := range fulls {
		precisions := []string{"fp16"}
		if all {
			precisions = nil
			for _, row := range precision.All() {
				if row.Name != precision.BF16 && (!row.Calibrates() || f.model == "dmonitoring_model") { // which calibrates in a minute
					precisions = append(precisions, row.Name)
				}
			}
		}
		for _, precision := range precisions {
			t.Run(f.model+"/"+precision, func(t *testing.T) {
				r := compiledFile(t, filepath.Join(dir, f.model+".onnx"), precision)
				against := emu.Interpreter // which small models, and single instructions, hold to the specification
				if all {
					against = emu.Specification
				}
				agree(t, r.Program, arrays(t, r.Source), against)
			})
		}
	}
}
