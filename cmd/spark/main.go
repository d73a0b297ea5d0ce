// Command spark is all commands in one program. Through a link that is named after one it is that command:
//
//	ln -s spark spark-compile
//	spark-compile driving_vision.onnx
//	spark compile driving_vision.onnx      # without a link
package main

import (
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/cmd/internal/spark"
)

func main() {
	name := filepath.Base(os.Args[0])
	if command := spark.Named(name); command != nil {
		os.Exit(command(name, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(spark.Main(name, os.Args[1:], os.Stdout, os.Stderr))
}
