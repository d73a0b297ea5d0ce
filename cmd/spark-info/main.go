// Command spark-info is that command alone: see package info. Command spark is all of them.
package main

import (
	"os"

	"github.com/spark-compile/spark-compile/cmd/internal/info"
)

func main() { os.Exit(info.Main("spark-info", os.Args[1:], os.Stdout, os.Stderr)) }
