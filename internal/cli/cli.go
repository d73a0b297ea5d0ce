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
)

// Exit codes.
const (
	Done     = 0
	Failed   = 1 // a comparison or a case failed
	BadInput = 2 // wrong use or bad input
)

// Parse fills a struct of kong flags. done says that --help was printed and nothing is left to do.
func Parse(into any, name, summary string, args []string, stdout io.Writer) (done bool, err error) {
	p, err := kong.New(into, kong.Name(name), kong.Description(summary), kong.Writers(stdout, stdout), kong.Exit(func(int) { done = true }))
	if err != nil {
		return false, err
	}
	_, err = p.Parse(args)
	if done {
		return true, nil
	}
	return false, err
}

// precisionEnvironment is where openpilot's DGX Spark proposal keeps the precision.
const precisionEnvironment = "OPENPILOT_DGX_PRECISION"

// known lists the precisions of the command line; the value says whether this version has it.
var known = map[string]bool{"fp32": true, "fp16": true, "bf16": true, "fp8": false, "nvfp4": false}

// Precision resolves --precision: the flag, else the environment, else fp16. A wrong flag is an error; a wrong
// environment is a warning and the default.
func Precision(flag string, stderr io.Writer) (string, error) {
	name, env := flag, false
	if name == "" {
		name, env = os.Getenv(precisionEnvironment), true
	}
	if name == "" {
		return "fp16", nil
	}
	if name == "fp4" {
		name = "nvfp4"
	}
	available, ok := known[name]
	switch {
	case ok && available:
		return name, nil
	case env:
		fmt.Fprintf(stderr, "warning: %s=%s is not available (fp32, fp16 and bf16 are): using fp16\n", precisionEnvironment, os.Getenv(precisionEnvironment))
		return "fp16", nil
	case ok:
		return "", fmt.Errorf("--precision %s is not available in this version: use fp32, fp16 or bf16", flag)
	}
	return "", fmt.Errorf("--precision %s: want fp32, fp16, bf16, fp8 or nvfp4", flag)
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
