package sim

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/testing/scripttest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/testdata/gen/keeper"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spark-sim": func() {
		os.Exit(Main("spark-sim", os.Args[1:], os.Stdout, os.Stderr))
	}})
}

func TestScripts(t *testing.T) {
	schema, err := filepath.Abs("../../../dora/route/testdata/log.capnp")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Condition: func(cond string) (bool, error) {
			interpreter := os.Getenv("SPARK_PYTHON")
			if cond == "pycapnp" {
				if interpreter == "" {
					return false, nil
				}
				_, err := toolchain.PythonPackageVersion(t.Context(), interpreter, "capnp")
				return err == nil, nil
			}
			return scripttest.Condition(cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"route": writeRoute, "flip": flip},
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{"OPENPILOT_DGX_PRECISION", "OPENPILOT_DGX_ENABLED", "OPENPILOT_DISABLE_DGX",
				"SPARK_DEVICE"} {
				e.Setenv(name, "")
			}
			e.Setenv("SPARK_CACHE", e.WorkDir+"/cache")
			e.Setenv("PTXAS", os.Getenv("PTXAS"))
			e.Setenv("SPARK_PYTHON", os.Getenv("SPARK_PYTHON"))
			e.Setenv("SCHEMA", schema)
			m, err := keeper.Fitted()
			if err != nil {
				return err
			}
			file, err := m.ONNX()
			if err != nil {
				return err
			}
			if err := file.Save(filepath.Join(e.WorkDir, "keeper.onnx")); err != nil {
				return err
			}
			for name, ports := range map[string][2]string{"policy": {"observation", "action"},
				"other": {"image", "logits"}} {
				if err := writePolicy(filepath.Join(e.WorkDir, name+".onnx"), ports[0], ports[1]); err != nil {
					return err
				}
			}
			return writeOutside(filepath.Join(e.WorkDir, "outside.onnx"))
		},
	})
}

// flip is the command flip PATTERN: it changes the last bit of the first such file.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	if err != nil || len(found) == 0 {
		ts.Fatalf("%s: %v, %v", args[0], found, err)
	}
	data, err := os.ReadFile(found[0])
	ts.Check(err)
	data[len(data)-1] ^= 1
	ts.Check(os.WriteFile(found[0], data, 0o644))
}

// writeRoute is the command route DIR: a route of three seconds in the middle of its lane.
func writeRoute(ts *testscript.TestScript, _ bool, args []string) {
	s := dataset.Synthesis{Routes: 1, Seconds: 3, Width: 482, Height: 302, Middle: true}
	ts.Check(dataset.Synthesise(context.Background(), ts.MkAbs(args[0]), s))
}
