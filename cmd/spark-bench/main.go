// Command spark-bench measures compiled packages and ONNX models: latency, accuracy, memory, the state of the GPU, beside
// ONNX Runtime and beside an earlier measurement.
//
//	spark-bench driving_vision.onnx driving_policy.onnx --precision fp32,fp16 --html report.html
//	spark-bench ./drivingvision --runs 1000 --baseline before.json
//	spark-bench driving_vision.onnx --precision fp16,fp8,nvfp4 --predict
package main

import (
	"context"
	"io"
	"os"

	"github.com/spark-compile/spark-compile/internal/cli"
)

// flags is the command line: the design's, and what only this command needs.
type flags struct {
	Models      []string `arg:"" optional:"" name:"model" help:"Directories of compiled packages, ONNX files."`
	Runs        int      `help:"Steady runs to time." default:"100" placeholder:"N"`
	Warmup      int      `help:"Runs before that." default:"10" placeholder:"N"`
	Precision   []string `help:"Of ONNX files, side by side; default: OPENPILOT_DGX_PRECISION, else ${precision}." placeholder:"P,P…"`
	Baseline    string   `help:"Compare with an earlier --json." placeholder:"FILE"`
	MaxSlowdown *float64 `help:"Exit code 1 if a model is slower than the baseline by more than this ratio, and not by chance." placeholder:"1.05"`
	JSON        string   `name:"json" help:"Write the report as JSON." placeholder:"FILE"`
	HTML        string   `name:"html" help:"Write the report as a page with plots, time by launch among them." placeholder:"FILE"`
	Layers      bool     `help:"Time every launch by itself; --html does too."`
	Concurrent  bool     `help:"Also run all models at the same time, as openpilot does."`
	Device      string   `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	Target      string   `help:"Variant to measure where the device takes any, or to compile an ONNX file for." placeholder:"${target}"`
	Shape       []string `help:"Fix the shape of an ONNX file's input." placeholder:"input=1x3x48x192" sep:"none"`
	Peer        bool     `help:"Compare ONNX files with ONNX Runtime on the CPU, if it is installed." default:"true" negatable:""`
	Reference   bool     `help:"Compare outputs with those of the same ONNX file in fp32." default:"true" negatable:""`
	Predict     bool     `help:"Measure nothing: count a run on the CPU device and predict its time on the target's device. Low precision is forced, on one generated input."`
	Quiet       bool     `help:"Print the tables only."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// errSlower reports a model slower than --max-slowdown allows.
const errSlower = cli.Failure("slower than the baseline")

func run(args []string, stdout, stderr io.Writer) int {
	s := &session{out: stdout, err: stderr}
	return cli.Main(&s.flags, "spark-bench", "Measure compiled packages and ONNX models.", args, stdout, stderr, func(ctx context.Context) error { return s.run(ctx) })
}
