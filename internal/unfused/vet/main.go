// Command vet runs the analyzer by go vet:
//
//	go build -o out/unfused ./internal/unfused/vet && go vet -vettool=out/unfused ./internal/calibrate
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/spark-compile/spark-compile/internal/unfused"
)

func main() { unitchecker.Main(unfused.Analyzer) }
