// Command spark is all commands in one program. Through a link that is named after one it is that command:
//
//	ln -s spark spark-compile
//	spark-compile driving_vision.onnx
//	spark compile driving_vision.onnx      # without a link
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/cmd/internal/bench"
	"github.com/spark-compile/spark-compile/cmd/internal/compile"
	"github.com/spark-compile/spark-compile/cmd/internal/dora"
	"github.com/spark-compile/spark-compile/cmd/internal/info"
	"github.com/spark-compile/spark-compile/cmd/internal/run"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// commands are those of which spark-NAME is a link's name.
var commands = map[string]func(name string, args []string, stdout, stderr io.Writer) int{
	"bench": bench.Main, "compile": compile.Main, "dora": dora.Main, "info": info.Main, "run": run.Main,
}

func main() {
	name := filepath.Base(os.Args[0])
	if short, ok := strings.CutPrefix(name, "spark-"); ok && commands[short] != nil {
		os.Exit(commands[short](name, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(spark(name, os.Args[1:], os.Stdout, os.Stderr))
}

// spark runs the command that the first argument names.
func spark(name string, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{""}
	}
	usage := fmt.Sprintf("Usage: %[1]s %[2]s ...\n\n%[1]s COMMAND --help describes one. A link with the name spark-COMMAND is that command.\n",
		name, strings.Join(slices.Sorted(maps.Keys(commands)), "|"))
	switch command := commands[args[0]]; {
	case command != nil:
		return command(name+" "+args[0], args[1:], stdout, stderr)
	case args[0] == "--help" || args[0] == "-h":
		fmt.Fprint(stdout, usage)
	case args[0] == "--version":
		fmt.Fprintln(stdout, name, cli.Version())
	default:
		fmt.Fprintf(stderr, "%s: there is no command %q\n%s", name, args[0], usage)
		return cli.BadInput
	}
	return cli.Done
}
