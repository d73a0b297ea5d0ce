// Package bench is spark-bench, which measures compiled packages and ONNX models: latency, accuracy, memory and the state of the
// GPU. It compares them with ONNX Runtime and with an earlier measurement.
//
//	spark-bench driving_vision.onnx driving_policy.onnx --precision fp32,fp16 --html report.html
//	spark-bench ./drivingvision --runs 1000 --baseline before.json
//	spark-bench driving_vision.onnx --precision fp16,fp8,nvfp4 --predict
//	spark-bench --machine -o machine.json
package bench

import (
	"context"
	"io"

	"github.com/spark-compile/spark-compile/internal/cli"
)

// flags is the command line.
type flags struct {
	Models      []string   `arg:"" optional:"" name:"model" help:"Directories of compiled packages, or ONNX files."`
	Runs        int        `help:"Number of runs to time." default:"100" placeholder:"N"`
	Warmup      int        `help:"Number of runs before that." default:"10" placeholder:"N"`
	Precision   []string   `help:"Precisions to compile ONNX files in and compare; default: OPENPILOT_DGX_PRECISION, else ${precision}." placeholder:"P,P…"`
	Baseline    string     `help:"Compare with a report that --json wrote earlier." placeholder:"FILE"`
	MaxSlowdown *float64   `help:"Exit with 1 if a model is significantly slower than the baseline, by more than this ratio." placeholder:"1.05"`
	JSON        string     `name:"json" help:"Write the report as JSON." placeholder:"FILE" writes:""`
	HTML        string     `name:"html" help:"Write the report as a page with plots, including time by launch." placeholder:"FILE" writes:""`
	Timeline    string     `help:"Have kernels write down when they run, and write a trace for Perfetto; the page of --html shows it too." placeholder:"FILE.json" writes:""`
	Layers      bool       `help:"Time every launch, beside what it is predicted to take; implied by --html."`
	Concurrent  bool       `help:"Also run all models at the same time, as openpilot does."`
	Device      string     `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	Target      string     `help:"Target to compile ONNX files for, or variant to measure if the device accepts any." placeholder:"${target}"`
	Shape       cli.Shapes `help:"Fix the shape of an ONNX file's input." placeholder:"input=1x3x48x192" mapsep:"none"`
	MaxOutput   cli.Bounds `help:"Bound the number of outputs of an ONNX file's node, as spark-compile does." placeholder:"NODE=N" mapsep:"none"`
	Peer        bool       `help:"Compare ONNX files with ONNX Runtime on the CPU if it is installed." default:"true" negatable:""`
	Reference   bool       `help:"Compare outputs with those of the same ONNX file in fp32." default:"true" negatable:""`
	Predict     bool       `help:"Do not measure: count the work of a run on the CPU device and predict its time on the target's device. Low precision is forced and calibrated on one generated input."`
	Machine     bool       `help:"Measure the device itself, in place of models: the constants of the cost model."`
	Output      string     `short:"o" help:"Write what --machine finds: a file for spark-compile --machine and for --machine-file." placeholder:"FILE.json" writes:""`
	MachineFile string     `help:"Predict by what --machine measured of one machine, with --predict and beside launches that are timed." placeholder:"FILE.json"`
	Ablate      []string   `help:"Also measure without each of these mechanisms, in turns with all of them: ${switches}." placeholder:"NAME,…"`
	Quiet       bool       `help:"Print only the tables."`

	switchFlags `embed:""`
}

// switchFlags turn mechanisms of the device on or off.
type switchFlags struct {
	PDL      *bool `name:"pdl" negatable:"" help:"Let launches begin before those in front of them end (programmatic dependent launch); default: SPARK_PDL, else on."`
	Prefetch *bool `negatable:"" help:"Prefetch weights of later launches; default: SPARK_PREFETCH, else on."`
	Hints    *bool `negatable:"" help:"Read weights that do not fit the L2 cache as evict-first; default: SPARK_HINTS, else on."`
	Carveout *bool `negatable:"" help:"Give kernels as much shared memory as a multiprocessor has; default: SPARK_CARVEOUT, else on."`
}

// given are the flags that the command line has, by the names of hal.Switches.
func (f *switchFlags) given() map[string]bool {
	out := map[string]bool{}
	for name, flag := range map[string]*bool{"pdl": f.PDL, "prefetch": f.Prefetch, "hints": f.Hints, "carveout": f.Carveout} {
		if flag != nil {
			out[name] = *flag
		}
	}
	return out
}

// errSlower reports a model slower than --max-slowdown allows.
const errSlower = cli.Failure("slower than the baseline")

// Summary is what the command does, in a sentence.
const Summary = "Measure compiled packages and ONNX models."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	stdout = cli.Tables(args, stdout, stderr)
	s := &session{out: stdout, err: stderr}
	return cli.Main(&s.flags, name, Summary, args, stdout, stderr, func(ctx context.Context) error { return s.run(ctx) })
}
