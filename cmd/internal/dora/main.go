// Package dora is spark-dora, which makes adapters of ONNX models, trains them, shows them and merges them into the file.
//
//	spark-dora init driving_policy.onnx -o rain.safetensors
//	spark-dora inspect rain.safetensors
//	spark-dora merge driving_policy.onnx rain.safetensors -o driving_policy_rain.onnx
//	spark-dora diff driving_policy.onnx driving_policy_rain.onnx
//	spark-dora train --data routes --model driving_policy.onnx --teacher teacher.onnx
package dora

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// flags is the command line.
type flags struct {
	Init    initFlags    `cmd:"" help:"Make an adapter that changes nothing yet."`
	Inspect inspectFlags `cmd:"" help:"Show what an adapter holds."`
	Merge   mergeFlags   `cmd:"" help:"Write the model with the adapter's weights in place of its own."`
	Diff    diffFlags    `cmd:"" help:"Show the initializers in which two models differ; exit with 1 if anything else does."`
	Data    dataFlags    `cmd:"" help:"Read training data and say what is in it, or write synthetic routes."`
	Train   trainFlags   `cmd:"" help:"Train an adapter on route logs, towards a teacher."`
}

// command is one of them: kong calls AfterApply of the one that was chosen.
type command struct{ chosen bool }

// AfterApply marks the command.
func (c *command) AfterApply() error { c.chosen = true; return nil }

type initFlags struct {
	command   `kong:"-"`
	Model     string            `arg:"" help:"ONNX file."`
	Output    string            `short:"o" required:"" help:"Adapter to write." placeholder:"A.safetensors" writes:""`
	Rank      *int              `help:"Greatest rank of a layer (default 16). Given alone, every target gets it, whatever the size." placeholder:"R"`
	Alpha     float64           `help:"Scale of the product of low rank, times the rank." default:"1" placeholder:"A"`
	RSLoRA    bool              `name:"rslora" help:"Divide alpha by the root of the rank instead of the rank."`
	Targets   []string          `help:"Layers, initializers or nodes: globs, or regular expressions between slashes; default: every weight of MatMul, Gemm and Conv." placeholder:"PATTERNS"`
	MaxSize   string            `help:"Greatest size of the adapter, as a share of the model's weights (default 1%, unless --rank is given)." placeholder:"1%"`
	Calibrate []string          `help:"Choose layers and ranks by how strongly the outputs depend on them for these inputs: .npz files or directories of them. Without it the norms of the weights choose." placeholder:"PATHS"`
	Kind      string            `help:"dora, lora or magnitude." enum:"dora,lora,magnitude" default:"dora" placeholder:"dora|lora|magnitude"`
	FullNorm  bool              `help:"Let gradients pass through the norms too; the paper takes these as constants."`
	Seed      uint64            `help:"Seed of the first factors." placeholder:"S"`
	Car       string            `help:"Label: the car." placeholder:"NAME"`
	Condition string            `help:"Label: weather, light, road." placeholder:"TEXT"`
	User      string            `help:"Label: whose." placeholder:"NAME"`
	Label     map[string]string `help:"Any other label." placeholder:"KEY=VALUE"`
}

type inspectFlags struct {
	command `kong:"-"`
	Adapter string `arg:"" help:"Adapter."`
}

type mergeFlags struct {
	command   `kong:"-"`
	Model     string   `arg:"" help:"ONNX file, of which the adapter was made."`
	Adapter   string   `arg:"" help:"Adapter."`
	Output    string   `short:"o" required:"" help:"ONNX file to write." placeholder:"OUT.onnx" writes:""`
	Calibrate []string `help:"Inputs that the frozen weights were fitted to, if the adapter was trained on fitted ones: .npz files or directories of them." placeholder:"PATHS"`
}

type diffFlags struct {
	command `kong:"-"`
	Model   string `arg:"" help:"ONNX file."`
	Other   string `arg:"" help:"ONNX file to compare with it."`
}

// Summary is what the command does, in a sentence.
const Summary = "Make, train, show and merge adapters of ONNX models."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	stdout = cli.Tables(args, stdout, stderr)
	var f flags
	args, calibrate := cli.Inputs(args, "--calibrate")
	return cli.Main(&f, name, Summary, args, stdout, stderr, func(ctx context.Context) error {
		switch {
		case f.Init.chosen:
			f.Init.Calibrate = append(f.Init.Calibrate, calibrate...)
			return f.Init.run(ctx, stdout, stderr)
		case f.Inspect.chosen:
			return f.Inspect.run(stdout)
		case f.Merge.chosen:
			f.Merge.Calibrate = append(f.Merge.Calibrate, calibrate...)
			return f.Merge.run(ctx, stdout, stderr)
		case f.Diff.chosen:
			return f.Diff.run(stdout)
		case f.Data.chosen:
			return f.Data.run(ctx, stdout, stderr)
		case f.Train.chosen:
			return detect.Explain(f.Train.run(ctx, stdout, stderr))
		}
		return errors.New("no command: init, inspect, merge, diff, data or train")
	}, calibrate...)
}

// open reads a model, and prints what ONNX Runtime would warn about.
func open(path string, stderr io.Writer) (*dora.Model, error) {
	m, err := onnx.Load(path)
	if err != nil {
		return nil, err
	}
	m.Warn = func(text string) { fmt.Fprintln(stderr, "warning: "+text) }
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return dora.Open(m, onnx.ImportOptions{})
}

func (f *initFlags) run(ctx context.Context, w, stderr io.Writer) error {
	opt := dora.InitOptions{Kind: passes.AdapterKind(f.Kind), Alpha: f.Alpha, RS: f.RSLoRA, Targets: f.Targets, FullNorm: f.FullNorm, Seed: f.Seed, Labels: map[string]string{}}
	var err error
	if opt.Rank, opt.MaxSize, err = extent("--rank", f.Rank, f.MaxSize); err != nil {
		return err
	}
	for k, v := range f.Label {
		opt.Labels[k] = v
	}
	for k, v := range map[string]string{"car": f.Car, "condition": f.Condition, "user": f.User} {
		if v != "" {
			opt.Labels[k] = v
		}
	}
	m, err := open(f.Model, stderr)
	if err != nil {
		return err
	}
	if len(f.Calibrate) > 0 {
		if opt.MaxSize == 0 {
			return errors.New("--calibrate: with --rank alone every layer gets that rank: give --max-size, under which inputs choose")
		}
		if opt.Sensitivity, err = sensitivity(ctx, m, f.Calibrate); err != nil {
			return err
		}
	}
	a, err := dora.Init(m, opt)
	if err != nil {
		return err
	}
	if err := a.Save(f.Output); err != nil {
		return err
	}
	if err := table(w, a); err != nil {
		return err
	}
	st, err := os.Stat(f.Output)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %d of the %d weights that take an adapter, %d numbers, %d bytes: %.2f %% of the model's weights\n",
		f.Output, len(a.Layers), len(m.Weights), a.Params(), st.Size(), 100*float64(st.Size())/float64(m.Bytes))
	return err
}

// sensitivity is that of the outputs for inputs in files.
func sensitivity(ctx context.Context, m *dora.Model, paths []string) (_ map[string]float64, err error) {
	inputs, err := arrays(m, paths)
	if err != nil {
		return nil, err
	}
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return m.OutputSensitivity(ctx, d, calibrate.Bytes(inputs))
}

// arrays are the inputs in files.
func arrays(m *dora.Model, paths []string) ([]map[string]*ir.Array, error) {
	g, err := onnx.Import(m.File, onnx.ImportOptions{})
	if err != nil {
		return nil, err
	}
	inputs, _, err := calibrate.Load(paths, g)
	if err != nil {
		return nil, fmt.Errorf("--calibrate: %w", err)
	}
	return inputs, nil
}

// extent is how large an adapter may be, by the flags of its rank and its size: if neither is given 1 % of the model.
func extent(flag string, rank *int, maxSize string) (r int, share float64, err error) {
	if rank != nil {
		if r = *rank; r < 1 {
			return 0, 0, fmt.Errorf("%s %d: want at least 1", flag, r)
		}
	}
	if maxSize != "" || rank == nil {
		share, err = percent(maxSize)
	}
	return r, share, err
}

// percent reads 1% or 0.01; "" is 1 %.
func percent(text string) (float64, error) {
	if text == "" {
		return 0.01, nil
	}
	number, scaled := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x > 0) {
		return 0, fmt.Errorf("--max-size %s: want a share of the model, such as 1%% or 0.01", text)
	}
	if scaled {
		x /= 100
	}
	return x, nil
}

// table lists the layers.
func table(w io.Writer, a *dora.Adapter) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "layer\tkind\tweight\trank\tnumbers")
	for _, l := range a.Layers {
		fmt.Fprintf(t, "%s\t%s\t%d×%d\t%d\t%d\n", l.Module, l.Kind, l.Out, l.Row, l.Rank, l.Params())
	}
	return t.Flush()
}

func (f *inspectFlags) run(w io.Writer) error {
	text, err := dora.Inspect(f.Adapter)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

func (f *mergeFlags) run(ctx context.Context, w, stderr io.Writer) error {
	m, err := open(f.Model, stderr)
	if err != nil {
		return err
	}
	a, err := dora.Load(f.Adapter, m)
	if err != nil {
		return err
	}
	if st, err := os.Stat(filepath.Dir(f.Output)); err != nil || !st.IsDir() {
		return fmt.Errorf("-o %s: there is no folder %s", f.Output, filepath.Dir(f.Output))
	}
	if len(f.Calibrate) > 0 {
		inputs, err := arrays(m, f.Calibrate)
		if err != nil {
			return err
		}
		if err := m.RoundAgain(ctx, a, inputs); err != nil {
			return err
		}
	}
	if err := dora.Merge(m, a, f.Output); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %d of %d initializers changed\n", f.Output, len(a.Layers), len(m.File.Proto.Graph.Initializer))
	return err
}

func (f *diffFlags) run(w io.Writer) error {
	a, err := onnx.Load(f.Model)
	if err != nil {
		return err
	}
	b, err := onnx.Load(f.Other)
	if err != nil {
		return err
	}
	changes, others, err := dora.Diff(a, b)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(changes) > 0 {
		fmt.Fprintln(t, "initializer\tshape\trelative change\tgreatest")
	}
	for _, c := range changes {
		fmt.Fprintf(t, "%s\t%v\t%.3g\t%.3g\n", c.Name, c.Shape, c.Relative, c.Greatest)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d of %d initializers differ\n", len(changes), len(a.Proto.GetGraph().GetInitializer()))
	if len(others) > 0 {
		return cli.Failure("the models differ elsewhere too: " + strings.Join(others, "; "))
	}
	return nil
}
