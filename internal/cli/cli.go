// Package cli is what the commands share: exit codes, flag parsing, precision from flag and environment, shapes,
// progress.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Exit codes.
const (
	Done     = 0
	Failed   = 1 // a comparison or a case failed
	BadInput = 2 // wrong use or bad input
)

// Parse fills a struct of kong flags. done says that --help was printed and nothing is left to do.
func Parse(into any, name, summary string, args []string, stdout io.Writer) (done bool, err error) {
	p, err := kong.New(into, kong.Name(name), kong.Description(summary), kong.Writers(stdout, stdout), vars(), kong.Exit(func(int) { done = true }))
	if err != nil {
		return false, err
	}
	_, err = p.Parse(args)
	if done {
		return true, nil
	}
	return false, err
}

// vars are what help texts and defaults may name: the tables' rows.
func vars() kong.Vars {
	return kong.Vars{
		"target":      target.Default().Name,
		"calibrating": precision.Calibrating(),
		"precision":   precision.Default,
		"precisions":  precision.List("or"),
		"targets":     strings.Join(target.Names(), ", "),
		"devices":     strings.Join(target.Devices(), ", "),
	}
}

// Precision resolves --precision by the rule of hal/config: the flag, else the environment, else fp16. A wrong flag is an
// error; a wrong environment is a warning and the default.
func Precision(flag string, stderr io.Writer) (string, error) {
	s, err := config.Read(config.Flags{Precision: flag}, nil)
	if err != nil {
		return "", err
	}
	for _, w := range s.Precision.Warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	return s.Precision.Value, nil
}

// Shapes reads --shape flags: input=1x3x48x192.
func Shapes(flags []string) (map[string][]int, error) {
	out := map[string][]int{}
	for _, f := range flags {
		name, dims, ok := strings.Cut(f, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--shape %s: want input=1x3x48x192", f)
		}
		if out[name] != nil {
			return nil, fmt.Errorf("--shape %s: input %q was given a shape already", f, name)
		}
		shape := []int{}
		for _, d := range strings.Split(dims, "x") {
			if dims == "" {
				break
			}
			n, err := strconv.Atoi(d)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--shape %s: %q is not a dimension", f, d)
			}
			shape = append(shape, n)
		}
		out[name] = shape
	}
	return out, nil
}

// Progress returns a function that shows stages on a terminal, and nil where there is none or quiet is wanted.
func Progress(stderr io.Writer, quiet bool) func(string) {
	f, ok := stderr.(*os.File)
	if !ok || quiet {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(stage string) { fmt.Fprintf(f, "\r\x1b[K%s", stage) }
}

// JSON prints a value, indented.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(v)
}
