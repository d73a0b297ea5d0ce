package bench

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spark-compile/spark-compile/internal/testing/scripttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spark-bench": func() { os.Exit(Main("spark-bench", os.Args[1:], os.Stdout, os.Stderr)) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		Cmds:          scripttest.Commands(),
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("OPENPILOT_DGX_PRECISION", "")
			e.Setenv("SPARK_CACHE", e.WorkDir+"/cache")
			e.Setenv("SPARK_PYTHON", os.Getenv("SPARK_PYTHON"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			return cond == "python" && os.Getenv("SPARK_PYTHON") != "", nil
		},
	})
}
