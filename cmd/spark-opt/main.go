// Command spark-opt is that command alone: see package opt. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/opt"
)

func main() { os.Exit(opt.Main("spark-opt", os.Args[1:], os.Stdout, os.Stderr)) }
