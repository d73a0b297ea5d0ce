// Command spark-dora is that command alone: see package dora. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/dora"
)

func main() { os.Exit(dora.Main("spark-dora", os.Args[1:], os.Stdout, os.Stderr)) }
