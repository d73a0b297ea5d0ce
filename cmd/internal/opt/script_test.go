package opt

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spark-compile/spark-compile/internal/testing/scripttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spark-opt": func() { os.Exit(Main("spark opt", os.Args[1:], os.Stdout, os.Stderr)) }})
}

func TestScripts(t *testing.T) { scripttest.Run(t) }
