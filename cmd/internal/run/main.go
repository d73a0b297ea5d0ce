// Package run is spark-run, which runs a compiled package or an ONNX model on given inputs, compares outputs with expected ones,
// times repeated runs, runs suites of ONNX test cases and openpilot's loop over recorded frames, and runs and checks kernels of anybody's PTX.
//
//	spark-run ./drivingvision --input frames.npz --expect golden.npz --min-cosine 0.9999
//	spark-run ./driving --replay ./frames --view
//	spark-run --ptx kernels.ptx --kernel add --grid 4 --block 128 --arg x.npy --arg y.npy --arg out:f32[512] --arg 512
package run

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
)

// flags is the command line.
type flags struct {
	Model         string     `arg:"" optional:"" name:"model" help:"Directory of a compiled package, or an ONNX file."`
	Other         string     `arg:"" optional:"" name:"other" help:"With --replay, a second package, to compare with the first."`
	Precision     string     `help:"Precision to compile an ONNX file in: ${precisions}; default: OPENPILOT_DGX_PRECISION, else ${precision}."`
	Device        string     `help:"auto, cuda, cuda:N or emu." default:"auto" placeholder:"NAME"`
	Input         []string   `help:"An input, a .npz with inputs by name, or a directory of .npz files to run one after the other." placeholder:"NAME=FILE.npy|FILE.npz|DIR" sep:"none"`
	Random        *uint64    `help:"Run on random inputs: floats from -1 to 1, bytes over their range. Without --input and --random a package runs on its own golden inputs." placeholder:"SEED"`
	OutputDir     string     `help:"Write every output as NAME.npy, or with --replay those of each frame as NNNNNN.npz." placeholder:"DIR" writes:""`
	Expect        string     `help:"Expected outputs by name, in a .npz file or in a directory that --output-dir wrote; with a directory of inputs, a directory of such of the same names." placeholder:"FILE.npz|DIR"`
	Rtol          *float64   `help:"Relative tolerance for --expect and --suite; default for --expect: cosine and relative L2 by precision." placeholder:"R"`
	Atol          *float64   `help:"Absolute tolerance for --expect and --suite." placeholder:"A"`
	MinCosine     *float64   `help:"Minimum cosine for --expect." placeholder:"C"`
	Ranks         bool       `help:"Under mpirun, torchrun or Slurm: split a directory of inputs over the ranks; the first one says how fast all were."`
	Runs          int        `help:"Number of runs; reports mean, median, 99th percentile (of 20 or more) and maximum." default:"1" placeholder:"N"`
	JSON          string     `name:"json" help:"Write a JSON report." placeholder:"FILE" writes:""`
	Check         bool       `help:"On the CPU device: check memory, races, initialisation and synchronisation."`
	Profile       bool       `help:"Count the work of every launch on the CPU device and predict its time; --json has every figure."`
	ProfileDevice string     `name:"profile-device" help:"Device to predict times for: ${devices}; default: the target's." placeholder:"NAME"`
	ProfileHTML   string     `name:"profile-html" help:"Also write the profile as a page." placeholder:"FILE" writes:""`
	Trace         []string   `help:"Compare what every region computes, or those with these nodes or values of the ONNX file (* stands for any text), with the float64 evaluator, and name the first layer that is wrong." placeholder:"all|NODE,…"`
	Compare       string     `help:"Run the model in ONNX Runtime too, on the CPU, and compare the outputs, worst first." placeholder:"onnxruntime"`
	ONNX          string     `name:"onnx" help:"With --trace, --compare and --profile, the file that a package was compiled from." placeholder:"FILE.onnx"`
	Calibrate     []string   `help:"Inputs to calibrate ${calibrating} on, as in spark-compile." placeholder:"DIR|FILE.npz…"`
	Validate      []string   `help:"Inputs to judge ${calibrating} on, as in spark-compile." placeholder:"DIR|FILE.npz…"`
	Findings      string     `name:"calibration" help:"File with what calibrating found, as in spark-compile." placeholder:"FILE"`
	Suite         []string   `help:"Run ONNX test-case directories." placeholder:"DIR" sep:"none"`
	Shape         cli.Shapes `help:"Fix the shape of an ONNX file's input." placeholder:"input=1x3x48x192" mapsep:"none"`
	MaxOutput     cli.Bounds `help:"Bound the number of outputs of an ONNX file's node, as spark-compile does." placeholder:"NODE=N" mapsep:"none"`
	IO            string     `name:"io" help:"Element types of inputs and outputs: the file's, or f32 where it has f16 or bf16." enum:"file,f32" default:"file" placeholder:"file|f32"`
	Target        string     `help:"Target to compile an ONNX file for, or variant to run if the device accepts any." placeholder:"${target}"`

	ptxFlags    `embed:""`
	replayFlags `embed:""`

	golden bool            // the package's own run is compared with
	made   *compile.Result // of an ONNX file
}

// What makes a run fail: an output of --expect, or a case of --suite.
const (
	errMiss  = cli.Failure("outputs differ from the expected ones")
	errCases = cli.Failure("outputs differ from the expected ones: cases failed")
)

// Summary is what the command does, in a sentence.
const Summary = "Run a compiled package or an ONNX model."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	stdout = cli.Tables(args, stdout, stderr)
	var f flags
	args, dirs := cli.Following(args, "--suite", func(arg string) bool { return true })
	args, calibrate := cli.Inputs(addressed(args), "--calibrate")
	args, validate := cli.Inputs(args, "--validate")
	return cli.Main(&f, name, Summary, args, stdout, stderr, func(ctx context.Context) error {
		f.Suite, f.Calibrate, f.Validate = append(f.Suite, dirs...), append(f.Calibrate, calibrate...), append(f.Validate, validate...)
		if err := errors.Join(f.checkTrace(), f.checkCompare()); err != nil {
			return err
		}
		if err := f.checkPTX(); err != nil {
			return err
		}
		if err := f.checkReplay(); err != nil {
			return err
		}
		switch {
		case f.Replay != "":
			return detect.Explain(f.replay(ctx, stdout, stderr))
		case f.PTX != "":
			return f.runPTX(ctx, stdout)
		case !f.Profile && (f.ProfileDevice != "" || f.ProfileHTML != ""):
			return errors.New("--profile-device and --profile-html need --profile")
		case f.Profile && len(f.Suite) > 0:
			return errors.New("--profile works on one model, not with --suite")
		case len(f.Suite) > 0:
			return detect.Explain(f.suite(ctx, stdout, stderr))
		}
		return detect.Explain(f.run(ctx, stdout, stderr))
	}, slices.Concat(dirs, calibrate, validate)...)
}
