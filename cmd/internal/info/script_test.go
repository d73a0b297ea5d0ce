package info

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spark-info": func() { os.Exit(Main("spark-info", os.Args[1:], os.Stdout, os.Stderr)) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{"OPENPILOT_DGX_PRECISION", "OPENPILOT_DGX_ENABLED", "OPENPILOT_DISABLE_DGX", "SPARK_DEVICE"} {
				e.Setenv(name, "")
			}
			e.Setenv("SPARK_CACHE", e.WorkDir+"/cache")
			e.Setenv("PTXAS", os.Getenv("PTXAS"))
			e.Setenv("SPARK_PYTHON", os.Getenv("SPARK_PYTHON"))
			return nil
		},
	})
}
