// Command vet runs the analyzer by go vet:
//
//	go build -o out/fmavet ./internal/testing/fmavet/vet && go vet -vettool=out/fmavet ./internal/calibrate
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/spark-compile/spark-compile/internal/testing/fmavet"
)

func main() { unitchecker.Main(fmavet.Analyzer) }
