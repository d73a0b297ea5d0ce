package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spark-compile/spark-compile/internal/scripttest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spark-dora": main})
}

func TestScripts(t *testing.T) { scripttest.Run(t) }
