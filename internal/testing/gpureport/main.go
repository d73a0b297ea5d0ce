// Command gpureport turns what the bundle's script brought back from a machine with a GPU (docs/gpu.md) into Markdown:
// predicted and measured. make gpu-report runs it.
//
//	go run ./internal/testing/gpureport [-fill TABLE.csv] RESULTS
//	go run ./internal/testing/gpureport -fill TABLE.csv -predicted PREDICTED.json -device NAME
//	go run ./internal/testing/gpureport -longest N PROFILE.json
//
// RESULTS is the script's directory. -fill writes the rows of RESULTS, or predictions alone, into
// docs/data/gpu-times.csv. -longest prints the names of the kernels that are predicted to take longest, from spark-run --profile --json.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/spark-compile/spark-compile/internal/report"
)

func main() {
	fill := flag.String("fill", "", "CSV file to fill in")
	predicted := flag.String("predicted", "", "file of spark-bench --predict --json to fill in, in place of results")
	device := flag.String("device", "", "device of -predicted")
	longest := flag.Int("longest", 0, "number of kernels to print of a profile")
	flag.Parse()
	if err := run(os.Stdout, *fill, *predicted, *device, *longest, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gpureport:", err)
		os.Exit(2)
	}
}

func run(w io.Writer, fill, predicted, device string, longest int, args []string) error {
	switch {
	case predicted != "" && (device == "" || fill == "" || len(args) > 0):
		return fmt.Errorf("-predicted goes with -fill and -device, without RESULTS")
	case predicted != "":
		var all []report.Prediction
		if err := readJSON(predicted, &all); err != nil {
			return err
		}
		return fillFile(fill, rowsOf(device, all, nil))
	case len(args) != 1:
		return fmt.Errorf("want one argument: RESULTS, or PROFILE.json with -longest")
	case longest > 0:
		names, err := longestKernels(args[0], longest)
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
		return err
	}
	r, err := readResults(args[0])
	if err != nil {
		return err
	}
	if fill != "" {
		why := r.noGPU()
		if r.deviceName() == unknownDevice {
			why = unknownDevice
		}
		if why != "" {
			return fmt.Errorf("%s: %s: nothing is filled in", args[0], why)
		}
		if err := fillFile(fill, r.rows()); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, r.markdown())
	return err
}
