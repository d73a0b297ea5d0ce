// Command spark-bench is that command alone: see package bench. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/bench"
)

func main() { os.Exit(bench.Main("spark-bench", os.Args[1:], os.Stdout, os.Stderr)) }
