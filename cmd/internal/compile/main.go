// Package compile is spark-compile, which compiles an ONNX model to PTX kernels and a Go package that loads and runs them.
//
//	spark-compile driving_vision.onnx --precision fp16 -o ./drivingvision
package compile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/internal/tune"
	"github.com/spark-compile/spark-compile/passes"
)

// flags is the command line.
type flags struct {
	Models     []string   `arg:"" optional:"" name:"model" help:"ONNX file, or a directory with one in it; or openpilot's vision model and its policy."`
	Precision  string     `help:"${precisions}; default: OPENPILOT_DGX_PRECISION, else ${precision}."`
	Output     string     `short:"o" help:"Directory of the Go package; default: the model's base name without underscores." placeholder:"DIR"`
	Package    string     `help:"Package name; default: the directory's." placeholder:"NAME"`
	Target     []string   `help:"Targets: ${targets}." default:"${target}" placeholder:"${target}[,…]"`
	Calibrate  []string   `help:"Inputs for calibrating ${calibrating} and for measuring accuracy: a directory or .npz files." placeholder:"DIR|FILE.npz…"`
	Validate   []string   `help:"Inputs to judge accuracy on, which nothing is fitted to: a directory or .npz files." placeholder:"DIR_OR_FILE.npz"`
	Machine    string     `help:"Choose kernels and predict times by what spark-bench --machine measured of one machine." placeholder:"FILE.json"`
	Findings   string     `name:"calibration" help:"Keep what calibrating finds in this file, and take it from there: another budget or target then calibrates less." placeholder:"FILE" writes:""`
	MinCosine  *float64   `help:"Minimum cosine of every output: ${calibrating} keep layers at fp16 to meet it (default 0.999), other precisions fail if they miss it." placeholder:"C"`
	Prefer     string     `help:"Where ${calibrating} keep a budget: a program faster than fp16, or one with smaller weights." enum:"speed,size" default:"speed" placeholder:"speed|size"`
	Keep       []string   `help:"Nodes to keep at fp16 in ${calibrating}." placeholder:"NODE"`
	Shape      cli.Shapes `help:"Set an input's shape." placeholder:"input=1x3x48x192" mapsep:"none"`
	Input      cli.Values `help:"Fix an input to a value: a number, several with commas between, or an .npy file. It is no input of the package then." placeholder:"NAME=VALUE" mapsep:"none"`
	IO         string     `name:"io" help:"Element types of inputs and outputs: the file's, or f32 where it has f16 or bf16." enum:"file,f32" default:"file" placeholder:"file|f32"`
	Batch      int        `help:"Set the leading dimension of every input." placeholder:"N"`
	Modeld     bool       `help:"Make the whole step of openpilot's modeld of a driving or driver-monitoring model: camera frames in, histories kept on the device. Implied with two models."`
	Camera     string     `help:"Largest camera picture that --modeld takes; 1928x1208 by default." placeholder:"WxH"`
	Sampling   string     `help:"How --modeld samples camera pictures; by default as openpilot does for the model." enum:"nearest,linear," default:"" placeholder:"nearest|linear"`
	MaxOutput  cli.Bounds `help:"Pad the outputs of a node whose number of outputs depends on data (NonMaxSuppression, NonZero, Unique, Compress) to N; the output NODE_count says how many there are." placeholder:"NODE=N" mapsep:"none"`
	Report     string     `help:"Write a JSON report." placeholder:"FILE.json" writes:""`
	Layers     bool       `help:"Print every layer, and every output on each set of inputs, not only the slowest and the least accurate."`
	Emit       string     `help:"Print the IR, PTX or program instead of writing a package." enum:"ir,ptx,program," default:"" placeholder:"ir|ptx|program"`
	Passes     []string   `help:"Run these passes instead of the defaults." placeholder:"LIST"`
	HelpPasses bool       `help:"Describe the passes and exit."`
	Cubin      bool       `help:"Add cubins that ptxas makes to the package, for each target. Without them the driver compiles the PTX on loading."`
	Adapter    string     `help:"Compile the model with this adapter merged into its weights." placeholder:"A.safetensors"`
	Slots      *int       `name:"adapter-slots" help:"Leave the model's adapter open: a session loads adapters into K slots and chooses one for each run." placeholder:"K"`
	SlotRank   int        `name:"adapter-rank" help:"Greatest rank of an adapter that fits into a slot; 16 by default." placeholder:"R"`
	SlotBase   string     `name:"adapter-base" help:"Store the frozen weights in ${calibrating}, rounded to nearest or, with --calibrate, fitted to inputs, as adapters may be trained." placeholder:"PRECISION"`
	Tune       bool       `help:"Search for faster schedules than the cost model chooses: times kernels on the target GPU if present; otherwise predicts."`
	TuneBudget string     `help:"How long to search: a time like 10m, the default, or a number of kernels to try, by which the result does not depend on the machine." placeholder:"10m|N"`
	TuneFile   []string   `help:"Take schedules from this file, and with --tune keep there what is found; of several, the faster." placeholder:"FILE.json" writes:""`
	Beam       *int       `help:"Schedules of a kernel from which the search goes on, 8 by default." placeholder:"N"`
	TuneWorker bool       `hidden:"" help:"Time the kernels that come on standard input: what --tune starts, so that one that hangs or faults can be killed."`
	Quiet      bool       `help:"Print only errors and warnings."`
}

// Summary is what the command does, in a sentence.
const Summary = "Compile an ONNX model to PTX kernels and a Go package."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	stdout = cli.Tables(args, stdout, stderr)
	if os.Getenv("GOGC") == "" {
		steadyHeap()
	}
	var f flags
	args, calibrate := cli.Inputs(args, "--calibrate")
	args, validate := cli.Inputs(args, "--validate")
	return cli.Main(&f, name, Summary, args, stdout, stderr,
		func(ctx context.Context) error {
			f.Calibrate, f.Validate = append(f.Calibrate, calibrate...), append(f.Validate, validate...)
			return f.run(ctx, stdout, stderr)
		}, slices.Concat(calibrate, validate)...)
}

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.HelpPasses {
		_, err := io.WriteString(stdout, passes.Help())
		return err
	}
	if f.TuneWorker {
		return timeKernels(ctx, stdout)
	}
	dir, name := "", ""
	place := func() (err error) {
		if dir, name, err = f.place(); err != nil {
			return err
		}
		return f.checkPlaces(dir)
	}
	tell, clear := cli.Progress(stderr, f.Quiet)
	defer clear()
	warn := func(text string) {
		clear()
		fmt.Fprintf(stderr, "warning: %s\n", text)
	}
	w, err := f.prepare(ctx, place, tell, warn)
	if err != nil {
		return err
	}
	tuner := w.tuner
	if tuner != nil {
		defer tuner.Close()
	}
	begin := time.Now()
	r, err := w.compile(ctx)
	if err != nil {
		return err
	}
	if f.Emit != "" {
		clear()
		return emit(stdout, f.Emit, r)
	}
	golden, err := r.Golden(ctx)
	if err != nil {
		return err
	}
	r.Program.Provenance = r.Provenance()
	r.Program.Provenance.Compiler, r.Program.Provenance.Flags = cli.Version(), f.decisive(&w.opt)
	files, err := gopkg.Files(name, r.Program, golden)
	if err != nil {
		return err
	}
	var rep *report.Report
	if f.Report != "" || !f.Quiet { // it takes time, so only if somebody reads it
		if rep, err = f.report(ctx, r, warn); err != nil {
			return err
		}
	}
	if err := f.write(ctx, dir, files, rep); err != nil {
		return err
	}
	clear()
	if !f.Quiet {
		summary(stdout, dir, name, r, rep, time.Since(begin))
		if tuner != nil {
			fmt.Fprintf(stdout, "tuning: %s\n", strings.Join(tuner.Found, "; "))
		}
		table := rep.Brief
		if f.Layers {
			table = rep.Table
		}
		if err := table(stdout); err != nil {
			return err
		}
		return f.next(stdout, dir, rep)
	}
	return nil
}

// work is a compilation that is ready to begin.
type work struct {
	flags  *flags
	opt    compile.Options
	loop   *openpilot.Options // nil: a model alone
	tuner  *tune.Tuner        // nil: nothing is searched for
	models []*onnx.Model
}

// prepare checks the flags and reads the models. place is called between: it refuses where nothing can be written.
func (f *flags) prepare(ctx context.Context, place func() error, tell func(console.Event), warn func(string)) (*work, error) {
	if len(f.Models) == 0 {
		return nil, errors.New("no model: give MODEL.onnx")
	}
	precision, err := cli.PrecisionOf(f.Precision, warn)
	if err != nil {
		return nil, err
	}
	if err := cli.CheckMinCosine(f.MinCosine); err != nil {
		return nil, err
	}
	if err := f.checkSlots(precision); err != nil {
		return nil, err
	}
	w := &work{flags: f}
	if w.loop, err = f.loop(); err != nil {
		return nil, err
	}
	if w.tuner, err = f.tuner(); err != nil {
		return nil, err
	}
	for i, name := range f.Models {
		if f.Models[i], err = cli.ONNX(name); err != nil {
			return nil, err
		}
	}
	if err := place(); err != nil {
		return nil, err
	}
	w.opt = compile.Options{Precision: precision, Targets: f.Target, Passes: f.Passes, Progress: tell, Warn: warn,
		Calibrate: f.Calibrate, CalibrationCache: f.Findings, Validate: f.Validate, Keep: f.Keep, Smaller: f.Prefer == "size", MinCosine: compile.Budget(precision, f.MinCosine)}
	if f.Machine != "" {
		if w.opt.Machine, err = cost.ReadFile(f.Machine); err != nil {
			return nil, err
		}
	}
	if err := f.tuning(ctx, &w.opt, w.tuner); err != nil {
		return nil, err
	}
	w.opt.Import.Shapes, w.opt.Import.Batch, w.opt.Import.MaxOutput = f.Shape, f.Batch, f.MaxOutput
	w.opt.GraphOnly = f.Emit == "ir"
	w.opt.F32Inputs, w.opt.F32Outputs = f.IO == "f32", f.IO == "f32"
	if f.Emit == "" {
		w.opt.Cubin = f.Cubin
		if w.opt.Assembler, err = toolchain.FindPtxas(ctx); err != nil && (f.Cubin || !errors.Is(err, toolchain.ErrNoPtxas)) {
			return nil, err
		}
	}
	if w.models, err = f.load(); err == nil && len(f.Input) > 0 {
		w.opt.Import.Constants, err = compile.InputValues(w.models[0], f.Input, f.Shape)
	}
	if err != nil && w.tuner != nil {
		w.tuner.Close()
	}
	return w, err
}

// compile compiles what was prepared.
func (w *work) compile(ctx context.Context) (*compile.Result, error) {
	if w.loop != nil {
		return compile.Loop(ctx, w.models, *w.loop, w.opt)
	}
	return w.flags.compiled(ctx, w.models[0], w.opt)
}

// load reads the models, and merges the adapter into the one that it fits.
func (f *flags) load() (models []*onnx.Model, err error) {
	for _, name := range f.Models {
		m, err := onnx.Load(name)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	if f.Adapter == "" {
		return models, nil
	}
	var failed []error
	for i, m := range models {
		merged, err := dora.MergedFrom(m, f.Adapter)
		if err == nil {
			models[i] = merged
			return models, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// loop is how the step of modeld is to be made, nil if only a model is.
func (f *flags) loop() (*openpilot.Options, error) {
	if len(f.Models) < 2 && !f.Modeld {
		if f.Camera != "" || f.Sampling != "" {
			return nil, errors.New("--camera and --sampling say how camera pictures are taken: give --modeld too")
		}
		return nil, nil
	}
	for _, other := range []struct {
		name  string
		given bool
	}{{"--batch", f.Batch > 1}, {"--adapter-slots", f.Slots != nil}, {"--shape", len(f.Shape) > 0}, {"--input", len(f.Input) > 0}, {"--max-output", len(f.MaxOutput) > 0}} {
		if other.given {
			return nil, fmt.Errorf("the step of modeld does not go with %s: compile the models alone, without --modeld", other.name)
		}
	}
	o := &openpilot.Options{Sampling: f.Sampling}
	if f.Camera == "" {
		return o, nil
	}
	var w, h int
	if n, err := fmt.Sscanf(f.Camera, "%dx%d", &w, &h); n != 2 || err != nil || fmt.Sprintf("%dx%d", w, h) != f.Camera {
		return nil, fmt.Errorf("--camera %s: want WIDTHxHEIGHT, such as 1928x1208", f.Camera)
	}
	o.Largest = generation.VisionIPC(w, h)
	if err := o.Largest.Validate(); err != nil {
		return nil, fmt.Errorf("--camera %s: %w", f.Camera, err)
	}
	return o, nil
}

// compiled compiles the model, with slots for adapters if they were asked for.
func (f *flags) compiled(ctx context.Context, m *onnx.Model, opt compile.Options) (*compile.Result, error) {
	if f.Slots == nil {
		return compile.Compile(ctx, m, opt)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	base, err := dora.Open(m, opt.Import)
	if err != nil {
		return nil, err
	}
	slots := dora.SlotOptions{Count: *f.Slots, Rank: f.SlotRank, Base: f.SlotBase}
	if len(f.Calibrate) > 0 {
		g, err := onnx.Import(m, opt.Import)
		if err != nil {
			return nil, err
		}
		inputs, _, err := calibrate.Load(f.Calibrate, g)
		if err != nil {
			return nil, fmt.Errorf("--calibrate: %w", err)
		}
		if slots.Base, err = base.RoundBase(ctx, f.SlotBase, inputs); err != nil {
			return nil, err
		}
		opt.Calibrate = nil // nothing else is fitted
	}
	return dora.Slots(ctx, base, slots, opt)
}

// checkSlots refuses what does not go with slots for adapters.
func (f *flags) checkSlots(in string) error {
	if f.Slots == nil {
		if f.SlotRank != 0 || f.SlotBase != "" {
			return fmt.Errorf("--adapter-rank and --adapter-base say what slots for adapters are like: give --adapter-slots too")
		}
		return nil
	}
	for _, other := range []struct {
		name  string
		given bool
	}{{"--adapter", f.Adapter != ""}, {"--calibrate without --adapter-base", len(f.Calibrate) > 0 && f.SlotBase == ""}, {"--validate", len(f.Validate) > 0}, {"--calibration", f.Findings != ""}, {"--machine", f.Machine != ""},
		{"--min-cosine", f.MinCosine != nil}, {"--keep", len(f.Keep) > 0}, {"--tune", f.Tune}, {"--tune-file", len(f.TuneFile) > 0},
		{"--passes", len(f.Passes) > 0}, {"--io f32", f.IO == "f32"}} {
		if other.given {
			return fmt.Errorf("--adapter-slots does not go with %s: leave one of them out", other.name)
		}
	}
	if precision.Calibrates(in) || in == precision.File {
		return fmt.Errorf("--adapter-slots does not go with --precision %s: take fp32, fp16 or bf16", in)
	}
	return nil
}

// decisive are the flags that decide what is compiled, as they were given; inputs are in the calibration's digest.
func (f *flags) decisive(opt *compile.Options) (list []string) {
	add := func(given bool, format string, args ...any) {
		if given {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(f.Precision != "", "--precision %s", f.Precision)
	add(len(f.Target) > 0, "--target %s", strings.Join(f.Target, ","))
	if f.MinCosine != nil {
		add(true, "--min-cosine %v", *f.MinCosine)
	}
	add(f.Prefer != "speed", "--prefer %s", f.Prefer)
	add(len(f.Keep) > 0, "--keep %s", strings.Join(f.Keep, ","))
	for _, name := range slices.Sorted(maps.Keys(f.Shape)) {
		add(true, "--shape %s=%s", name, strings.Trim(strings.ReplaceAll(fmt.Sprint(f.Shape[name]), " ", "x"), "[]"))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Input)) {
		value := f.Input[name]
		if strings.HasSuffix(value, ".npy") {
			value = fmt.Sprintf("sha256:%x", sha256.Sum256(opt.Import.Constants[name].Data))
		}
		add(true, "--input %s=%s", name, value)
	}
	add(f.Batch != 0, "--batch %d", f.Batch)
	add(f.Modeld, "--modeld")
	add(f.Camera != "", "--camera %s", f.Camera)
	add(f.Sampling != "", "--sampling %s", f.Sampling)
	for _, name := range slices.Sorted(maps.Keys(f.MaxOutput)) {
		add(true, "--max-output %s=%d", name, f.MaxOutput[name])
	}
	add(f.IO != "file", "--io %s", f.IO)
	add(len(f.Passes) > 0, "--passes %s", strings.Join(f.Passes, ","))
	if f.Slots != nil {
		add(true, "--adapter-slots %d", *f.Slots)
	}
	add(f.SlotRank != 0, "--adapter-rank %d", f.SlotRank)
	add(f.SlotBase != "", "--adapter-base %s", f.SlotBase)
	add(f.Cubin, "--cubin")
	if opt.Machine != nil {
		add(true, "--machine %s", opt.Machine.Digest())
	}
	if opt.Tuning != nil {
		add(true, "--tune-file %s", opt.Tuning.Digest())
	}
	return list
}

// write writes both package and report, or neither.
func (f *flags) write(ctx context.Context, dir string, files map[string][]byte, rep *report.Report) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.Report == "" {
		return gopkg.Write(dir, files)
	}
	s, err := rep.Stage(f.Report)
	if err != nil {
		return err
	}
	defer s.Discard()
	if err := gopkg.Write(dir, files); err != nil {
		return err
	}
	return s.Commit()
}

// checkPlaces reports before the long work whether package, report or findings could not be written.
func (f *flags) checkPlaces(dir string) error {
	if f.Emit == "" {
		if err := gopkg.CheckDir(dir, gopkg.Names(f.Target, f.Cubin)); err != nil {
			return err
		}
	}
	places := []string{f.Report, f.Findings}
	if f.Tune && len(f.TuneFile) > 0 {
		places = append(places, f.TuneFile[0])
	}
	for _, path := range places {
		if path == "" {
			continue
		}
		if err := report.CheckPath(path); err != nil {
			return err
		}
	}
	return nil
}

// named is what the package is named after: the model, or what the names of two begin with.
func (f *flags) named() string {
	name := filepath.Base(f.Models[0])
	for _, other := range f.Models[1:] {
		n := 0
		for other = filepath.Base(other); n < min(len(name), len(other)) && name[n] == other[n]; {
			n++
		}
		if name = name[:n]; strings.Trim(name, "_-.") == "" {
			name = "driving"
		}
	}
	return name
}

// place returns directory and name of the package. Go files that lie there decide the name.
func (f *flags) place() (dir, name string, err error) {
	if dir = f.Output; dir == "" {
		if name, err = gopkg.PackageName(f.named()); err != nil && f.Package == "" {
			return "", "", err
		}
		dir = name
	}
	theirs, err := gopkg.PackageOf(dir)
	if err != nil {
		return "", "", err
	}
	switch {
	case theirs != "" && f.Package != "" && f.Package != theirs:
		return "", "", fmt.Errorf("--package %s: the Go files in %s are of package %s", f.Package, dir, theirs)
	case theirs != "":
		return dir, theirs, nil
	case f.Package != "":
		name = f.Package
	case f.Output != "":
		abs, err := filepath.Abs(f.Output)
		if err != nil {
			return "", "", err
		}
		name = filepath.Base(abs)
	}
	return dir, name, gopkg.CheckPackageName(name)
}

// report describes the program, its accuracy and its predicted time, and warns if it is no faster than in fp16.
func (f *flags) report(ctx context.Context, r *compile.Result, warn func(string)) (*report.Report, error) {
	rep := report.Of(r.Program, &r.Program.Variants[0])
	rep.CompileMS, rep.PtxasMS = milliseconds(r.Compile), milliseconds(r.Ptxas)
	for _, b := range r.Fallbacks {
		rep.Fallbacks = append(rep.Fallbacks, report.Fallback(b))
	}
	if err := rep.Accuracy(ctx, r); err != nil || len(rep.Predicted) < 2 {
		return rep, err
	}
	if at16, here := rep.Predicted[0], rep.Predicted[1]; here.US >= at16.US && precision.Calibrates(here.Precision) {
		warn(fmt.Sprintf("%s is predicted to be no faster than fp16 on %s, %.1f µs against %.1f (with cold weights %.1f against %.1f): use --precision fp16 unless smaller weights are the goal",
			here.Precision, here.Device, here.US, at16.US, here.ColdUS, at16.ColdUS))
	}
	return rep, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func summary(w io.Writer, dir, name string, r *compile.Result, rep *report.Report, took time.Duration) {
	var targets []string
	for _, v := range r.Program.Variants {
		targets = append(targets, v.Target)
	}
	kept := ""
	switch {
	case rep.Kept == nil:
	case rep.Kept.Layers == 0:
		kept = fmt.Sprintf(", since no layer is faster in %s within the budget,", rep.Kept.Precision)
	default:
		kept = fmt.Sprintf(", since %s would be no faster,", rep.Kept.Precision)
	}
	fmt.Fprintf(w, "%s → %s (package %s): %s%s for %s\n", rep.Model, dir, name, rep.Precision, kept, strings.Join(targets, ", "))
	rep.PrintVerdict(w)
	switch {
	case rep.Fronts > 0:
		fmt.Fprintf(w, "%s, %d of the first layers: ", console.Count(max(1, rep.MicroBatches), "micro-batch"), rep.Fronts)
	case rep.MicroBatches > 1:
		fmt.Fprintf(w, "%d micro-batches: ", rep.MicroBatches)
	}
	fmt.Fprintf(w, "%s, %s, arena %.2f MB, weights %.2f MB, %s MMAC\n", console.Count(rep.Launches, "launch"), console.Count(len(rep.Kernels), "kernel"),
		float64(rep.ArenaBytes)/1e6, float64(rep.WeightsBytes)/1e6, rep.MMAC())
	fmt.Fprintf(w, "%.2f s: compiling %.2f", took.Seconds(), r.Compile.Seconds())
	if r.Ptxas > 0 {
		fmt.Fprintf(w, ", ptxas %.2f", r.Ptxas.Seconds())
	}
	fmt.Fprintf(w, ", golden run and report %.2f", (took - r.Compile - r.Ptxas).Seconds())
	if r.Ptxas == 0 {
		fmt.Fprint(w, "; ptxas not found: no registers in the report")
	}
	fmt.Fprintln(w)
}

// next prints what one would do next.
func (f *flags) next(w io.Writer, dir string, rep *report.Report) error {
	hint := "spark-run " + dir + " runs it and compares"
	switch {
	case f.Tune || len(f.TuneFile) > 0:
	case rep.Kept != nil:
		hint += "; --prefer size takes smaller weights, a lower --min-cosine more layers"
	case rep.Calibration != nil && rep.Calibration.Generated:
		hint += "; --calibrate DIR fits and measures on the model's own inputs"
	}
	fmt.Fprintf(w, "next: %s\n", hint)
	if known, err := moduleKnown(dir); err != nil || known {
		return err
	}
	_, err := fmt.Fprintf(w, "      to import it: go mod edit -replace %s=/path/to/its/checkout, then go mod tidy\n", gopkg.Module)
	return err
}

// moduleKnown reports whether the module that a directory is in, if it is in one, is this project's or names it.
func moduleKnown(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return bytes.Contains(text, []byte(gopkg.Module)), nil
		}
	}
}

func emit(w io.Writer, what string, r *compile.Result) error {
	switch what {
	case "ir":
		_, err := io.WriteString(w, r.Graph.String())
		return err
	case "ptx":
		_, err := io.WriteString(w, r.Program.Variants[0].PTX)
		return err
	}
	return cli.JSON(w, r.Program)
}
