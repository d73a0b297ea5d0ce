// Command spark-sim is that command alone: see package sim. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/sim"
)

func main() { os.Exit(sim.Main("spark-sim", os.Args[1:], os.Stdout, os.Stderr)) }
