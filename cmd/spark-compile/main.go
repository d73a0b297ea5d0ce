// Command spark-compile is that command alone: see package compile. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/compile"
)

func main() { os.Exit(compile.Main("spark-compile", os.Args[1:], os.Stdout, os.Stderr)) }
