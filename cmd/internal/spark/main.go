// Package spark is all commands, by the first argument: of program spark, and of the Python package's python -m sparkcompile.
package spark

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/cmd/internal/bench"
	"github.com/spark-compile/spark-compile/cmd/internal/compile"
	"github.com/spark-compile/spark-compile/cmd/internal/dora"
	"github.com/spark-compile/spark-compile/cmd/internal/info"
	"github.com/spark-compile/spark-compile/cmd/internal/opt"
	"github.com/spark-compile/spark-compile/cmd/internal/run"
	"github.com/spark-compile/spark-compile/cmd/internal/sim"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// commands are those of which spark-NAME is a link's name.
var commands = map[string]command{
	"bench": {bench.Main, bench.Summary}, "compile": {compile.Main, compile.Summary}, "dora": {dora.Main, dora.Summary},
	"info": {info.Main, info.Summary}, "opt": {opt.Main, opt.Summary}, "run": {run.Main, run.Summary}, "sim": {sim.Main, sim.Summary},
}

type command struct {
	main    func(name string, args []string, stdout, stderr io.Writer) int
	summary string
}

// Named is the command that a link of this name stands for, such as spark-compile; nil if there is none.
func Named(link string) func(name string, args []string, stdout, stderr io.Writer) int {
	if short, ok := strings.CutPrefix(link, "spark-"); ok {
		return commands[short].main
	}
	return nil
}

// Names are the commands.
func Names() []string { return slices.Sorted(maps.Keys(commands)) }

// Main runs the command that the first argument names.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage(name))
		return cli.BadInput
	}
	if args[0] == "help" && len(args) == 2 {
		args = []string{args[1], "--help"}
	}
	summaries := map[string]string{}
	for short, c := range commands {
		summaries[short] = c.summary
	}
	switch command := commands[args[0]].main; {
	case command != nil:
		return command(name+" "+args[0], args[1:], stdout, stderr)
	case cli.Describe(name, "Compile ONNX models for NVIDIA GPUs, run, measure and adapt them.", summaries, args, stdout):
	case args[0] == "--help" || args[0] == "-h" || args[0] == "help":
		fmt.Fprint(stdout, usage(name))
	case args[0] == "--version" || args[0] == "version":
		fmt.Fprintln(stdout, name, cli.Version())
	default:
		fmt.Fprintf(stderr, "%s: there is no command %q\n%s", name, args[0], usage(name))
		return cli.BadInput
	}
	return cli.Done
}

// usage lists the commands.
func usage(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s %s ...\n\n", name, strings.Join(Names(), "|"))
	for _, short := range Names() {
		fmt.Fprintf(&b, "  %-8s %s\n", short, commands[short].summary)
	}
	fmt.Fprintf(&b, "\n%[1]s help COMMAND describes one. A link with the name spark-COMMAND is that command.\n", name)
	return b.String()
}
