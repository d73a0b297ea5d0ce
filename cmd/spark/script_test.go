package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/cmd/internal/spark"
)

// The program has its own name, those of the commands, and one that is none.
func TestMain(m *testing.M) {
	names := map[string]func(){"spark": main, "spark-next": main}
	for _, name := range spark.Names() {
		names["spark-"+name] = main
	}
	testscript.Main(m, names)
}

func TestScripts(t *testing.T) { testscript.Run(t, testscript.Params{Dir: "testdata/script"}) }

// TestEveryCommandIsInTheProgram: each spark-NAME in the parent directory.
func TestEveryCommandIsInTheProgram(t *testing.T) {
	dirs, err := filepath.Glob("../spark-*")
	require.NoError(t, err)
	require.Len(t, dirs, len(spark.Names()))
	for _, d := range dirs {
		require.Contains(t, spark.Names(), strings.TrimPrefix(filepath.Base(d), "spark-"))
	}
}
