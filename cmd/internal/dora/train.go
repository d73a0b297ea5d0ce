package dora

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/train"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
)

type trainFlags struct {
	command `kong:"-"`

	Data    string `help:"What to train on: a directory of routes or of .npz files, ci:DIR, or synthetic, with settings as in synthetic:routes=2,seconds=20; with --dry-run synthetic by default." placeholder:"KIND|DIR"`
	Model   string `required:"" help:"ONNX file whose adapter is trained." placeholder:"M.onnx"`
	Teacher string `help:"ONNX file whose outputs it learns." placeholder:"T.onnx"`
	Vision  string `help:"ONNX file that makes the features which a policy reads, where the logs have none." placeholder:"V.onnx"`
	Output  string `short:"o" help:"Directory of checkpoints, metrics.jsonl, report.html, best.safetensors and last.safetensors; default checkpoints." default:"checkpoints" placeholder:"DIR"`
	Resume  bool   `help:"Go on from the last checkpoint of --output."`
	DryRun  bool   `help:"Read, compile and train for a few updates, say how long all would take, and write nothing."`

	Epochs          int     `help:"Times that every sample is seen; default 10." default:"10" placeholder:"N"`
	BatchSize       int     `help:"Samples of an update, of each rank; default 32." default:"32" placeholder:"N"`
	MicroBatch      int     `help:"Samples that are computed at a time, a divisor of --batch-size; default: the greatest up to 8." placeholder:"N"`
	LR              float64 `name:"lr" help:"Greatest learning rate; default 1e-4." default:"1e-4" placeholder:"RATE"`
	Schedule        string  `help:"How it falls after the warm-up: ${enum}; default cosine." enum:"cosine,linear,constant" default:"cosine" placeholder:"NAME"`
	Warmup          int     `help:"Updates over which it rises from zero." placeholder:"N"`
	Clip            float64 `help:"Greatest norm of a gradient; default 1; 0: any." default:"1" placeholder:"NORM"`
	WeightDecay     float64 `help:"Decoupled, of AdamW." placeholder:"X"`
	Loss            string  `help:"Weights of the loss's terms, as plan=1,lead=0.5; default: all of the model's at 1." placeholder:"TERMS"`
	Val             float64 `help:"Share of the routes that is kept from training, to judge on; default 0.1." default:"0.1" placeholder:"SHARE"`
	Seed            uint64  `help:"Of the first factors and of the order of samples." placeholder:"S"`
	CheckpointEvery int     `help:"Updates from checkpoint to checkpoint; default: an epoch." placeholder:"N"`
	EvaluateEvery   int     `help:"Updates from evaluation to evaluation; default: an epoch." placeholder:"N"`
	Keep            int     `help:"Checkpoints that are kept; default 3." default:"3" placeholder:"N"`
	Diverge         float64 `help:"End where the loss, smoothed, is that many times its least; default 10; 0: never." default:"10" placeholder:"X"`

	Adapter   string   `help:"Adapter to go on from; default: one that changes nothing." placeholder:"A.safetensors"`
	DoraRank  *int     `help:"Greatest rank of a layer; default 16, within --max-size." placeholder:"R"`
	DoraAlpha float64  `help:"Scale of the product of low rank, times the rank; default 1." default:"1" placeholder:"A"`
	Kind      string   `help:"dora, lora or magnitude." enum:"dora,lora,magnitude" default:"dora" placeholder:"dora|lora|magnitude"`
	MaxSize   string   `help:"Greatest size of the adapter, as a share of the model's weights (default 1%, unless --dora-rank is given)." placeholder:"1%"`
	Targets   []string `help:"Layers, initializers or nodes: globs, or regular expressions between slashes; default: every weight of MatMul, Gemm and Conv." placeholder:"PATTERNS"`

	Precision        string `help:"Of the step's values: fp32, fp16 or bf16; default bf16." enum:"fp32,fp16,bf16" default:"bf16" placeholder:"P"`
	Base             string `help:"How frozen weights are stored: fp8, fp6 or nvfp4; default: as in the file." placeholder:"P"`
	TeacherPrecision string `help:"Of the teacher and of --vision; default fp16." default:"fp16" placeholder:"P"`
	TeacherBatch     int    `help:"Samples that these compute at a time; default: --micro-batch." placeholder:"N"`
	Memory           int    `help:"Greatest number of megabytes that a step keeps between launches, by computing values again; default: any." placeholder:"MB"`

	Cache     string `help:"Directory of decoded frames and of what the teacher said; default: cache in --output." placeholder:"DIR"`
	CacheSize int64  `help:"Greatest size of what the teacher said, in megabytes; default 4096." default:"4096" placeholder:"MB"`
	Workers   int    `help:"Samples that are read at a time; default 2." default:"2" placeholder:"N"`
	Device    string `help:"auto, cuda, cuda:N or emu." default:"auto" placeholder:"NAME"`
	Quiet     bool   `short:"q" help:"Show no progress."`
}

// run trains.
func (f *trainFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if f.Data == "" {
		if !f.DryRun {
			return errors.New("--data: name a directory of routes or of .npz files, or a kind of data (spark-dora train --help)")
		}
		f.Data = "synthetic"
	}
	opt := f.options()
	if opt.Rank, opt.MaxSize, err = extent("--dora-rank", f.DoraRank, f.MaxSize); err != nil {
		return err
	}
	g, err := collectives.Join(ctx, collectives.Options{Message: func(text string) { fmt.Fprintln(stderr, "spark-dora:", text) }})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) { // ranks stop together, and the first one writes
			g.Abort(err)
		}
		err = errors.Join(err, g.Close())
	}()
	d, why, err := detect.Open(ctx, detect.Options{Name: f.Device, Called: "--device"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	on, err := collectives.OnDevice(ctx, g, d, os.Getenv)
	if err != nil {
		return err
	}
	g = on
	opt.Device = d
	tell, clear := cli.Progress(stderr, f.Quiet || g.Rank() != 0)
	defer clear()
	opt.Message = func(text string) {
		clear()
		if g.Rank() == 0 {
			fmt.Fprintln(stderr, "spark-dora:", text)
		}
	}
	if why != "" {
		opt.Message(why)
	}
	opt.Reading = reading(tell)
	if tell != nil {
		first := 0 // update that this run shows: it may have been resumed
		opt.Show = func(p train.Progress) {
			if first == 0 {
				first = p.Update
			}
			tell(event(p, first))
		}
	}
	result, err := train.Run(ctx, opt, g)
	clear()
	if errors.Is(err, train.ErrInterrupted) { // the signal may have been another rank's
		err = errors.Join(err, cli.ErrInterrupted)
	}
	if err != nil || g.Rank() != 0 || f.DryRun {
		return err
	}
	return f.summary(stdout, result)
}

func (f *trainFlags) options() train.Options {
	return train.Options{
		Model: f.Model, Teacher: f.Teacher, Vision: f.Vision, Data: f.Data, Output: f.Output,
		Epochs: f.Epochs, BatchSize: f.BatchSize, MicroBatch: f.MicroBatch, Rate: f.LR, Schedule: f.Schedule, Warmup: f.Warmup,
		Adapter: f.Adapter, Kind: f.Kind, Alpha: f.DoraAlpha, Targets: f.Targets,
		Precision: f.Precision, Base: f.Base, TeacherPrecision: f.TeacherPrecision, TeacherBatch: f.TeacherBatch, Memory: f.Memory << 20,
		Loss: f.Loss, Clip: f.Clip, Decay: f.WeightDecay, Seed: f.Seed, Val: f.Val,
		CheckpointEvery: f.CheckpointEvery, EvaluateEvery: f.EvaluateEvery, Keep: f.Keep, Diverge: f.Diverge,
		Resume: f.Resume, DryRun: f.DryRun, Cache: f.Cache, CacheBytes: f.CacheSize << 20, Workers: f.Workers,
	}
}

// event is progress as a terminal shows it. The time left is estimated from the updates after the first one.
func event(p train.Progress, first int) console.Event {
	var terms strings.Builder
	for _, t := range p.Largest(3) {
		fmt.Fprintf(&terms, " %s %.3g", t.Name, t.Value)
	}
	phase := fmt.Sprintf("loss %.4g%s, rate %.2g, %.3g samples/s, update", p.Loss, terms.String(), p.Rate, p.Samples)
	if p.Skipped {
		phase = fmt.Sprintf("left out, since its gradient is not finite, rate %.2g, %.3g samples/s, update", p.Rate, p.Samples)
	}
	all := float64(p.Updates)
	return console.Event{Phase: phase, Step: p.Update, Steps: p.Updates, Part: float64(p.Update) / all, From: float64(first) / all}
}

func (f *trainFlags) summary(w io.Writer, r train.Result) error {
	path := func(name string) string { return filepath.Join(f.Output, name) }
	if r.Best != nil {
		fmt.Fprintf(w, "%s: %s\n", train.Verdict(r.Base, r.Best, r.BestUpdate), path("best.safetensors"))
	}
	_, err := fmt.Fprintf(w, "%d updates: %s, %s\n", r.Updates, path("last.safetensors"), path("report.html"))
	return err
}
