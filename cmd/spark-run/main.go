// Command spark-run is that command alone: see package run. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/run"
)

func main() { os.Exit(run.Main("spark-run", os.Args[1:], os.Stdout, os.Stderr)) }
