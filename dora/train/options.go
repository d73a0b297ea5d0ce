package train

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/passes"
)

// Options say what is trained, on what, and how. Zero values of numbers are the defaults that the fields name, but for counts that
// say otherwise.
type Options struct {
	Model   string      // ONNX file whose adapter is trained
	Teacher string      // ONNX file whose outputs it learns; "": what was measured is all there is to learn from
	Vision  string      // ONNX file that makes the features which a policy reads; "": the logs have them, or the model needs none
	Data    string      // as dataset.Open takes it
	Set     dataset.Set // instead of Data, which names it then
	Output  string      // directory

	Epochs     int // 10
	BatchSize  int // samples of an update, of each rank; 32
	MicroBatch int // samples that are computed at a time; a divisor of BatchSize. 0: the greatest up to 8
	Rate       float64
	Schedule   string // Cosine
	Warmup     int    // updates

	Adapter string // file to go on from, at update 0; "": one that changes nothing
	Kind    string // dora, lora or magnitude
	Rank    int    // 16
	Alpha   float64
	MaxSize float64 // share of the model's weights; 0: no bound
	Targets []string

	Precision        string // of the step; bf16
	Base             string // how frozen weights are stored: dora.StepOptions.Base
	TeacherPrecision string // fp16
	TeacherBatch     int    // 0: MicroBatch
	Memory           int    // bytes that the step keeps between launches; 0: no bound

	Loss  string  // weights of terms, as loss.Parse takes them; "": all at 1
	Clip  float64 // of the gradient's norm; 0: none
	Decay float64
	Seed  uint64
	Val   float64 // share of the routes that is kept from training; 0: none

	CheckpointEvery int     // updates; 0: an epoch
	EvaluateEvery   int     // updates; 0: an epoch
	Keep            int     // checkpoints; 3
	Diverge         float64 // training ends where the smoothed loss is that many times its least; 0: never

	Resume bool
	DryRun bool // a few updates, nothing is written

	Cache      string // directory of decoded frames and teachers' outputs; "": the output's
	CacheBytes int64  // 0: the teacher's default
	Workers    int    // that read samples; 2

	Device  hal.Device
	Target  string             // of PTX; "": the device's
	Show    func(Progress)     // after each update; may be nil
	Message func(string)       // a line for the user; may be nil
	Reading func(done, of int) // segments of routes, while the data is opened; may be nil
}

func (o *Options) defaults() {
	number := func(x *int, v int) {
		if *x == 0 {
			*x = v
		}
	}
	text := func(x *string, v string) {
		if *x == "" {
			*x = v
		}
	}
	number(&o.Epochs, 10)
	number(&o.BatchSize, 32)
	number(&o.Rank, 16)
	number(&o.Keep, 3)
	number(&o.Workers, 2)
	text(&o.Schedule, Cosine)
	text(&o.Kind, string(dora.DoRA))
	text(&o.Precision, precision.BF16)
	text(&o.TeacherPrecision, precision.FP16)
	if o.Rate == 0 {
		o.Rate = 1e-4
	}
	if o.Alpha == 0 {
		o.Alpha = 1
	}
	for k := min(o.BatchSize, 8); o.MicroBatch == 0; k-- {
		if o.BatchSize%k == 0 {
			o.MicroBatch = k
		}
	}
	number(&o.TeacherBatch, o.MicroBatch)
	if o.Show == nil {
		o.Show = func(Progress) {}
	}
	if o.Message == nil {
		o.Message = func(string) {}
	}
}

// check reports what is wrong with the options, by the names of the command's flags.
func (o *Options) check() error {
	switch {
	case o.Model == "":
		return fmt.Errorf("--model: name the ONNX file whose adapter is trained")
	case o.Epochs < 1:
		return fmt.Errorf("--epochs %d: want at least 1", o.Epochs)
	case o.BatchSize < 1:
		return fmt.Errorf("--batch-size %d: want at least 1", o.BatchSize)
	case o.MicroBatch < 1 || o.BatchSize%o.MicroBatch != 0:
		return fmt.Errorf("--micro-batch %d: want a divisor of --batch-size %d", o.MicroBatch, o.BatchSize)
	case !(o.Val >= 0 && o.Val < 1):
		return fmt.Errorf("--val %v: want a share of the routes from 0 to less than 1", o.Val)
	case o.Clip < 0:
		return fmt.Errorf("--clip %v: want the greatest norm of a gradient, or 0", o.Clip)
	case o.Decay < 0:
		return fmt.Errorf("--weight-decay %v: want 0 or more", o.Decay)
	case o.Diverge != 0 && !(o.Diverge > 1):
		return fmt.Errorf("--diverge %v: want a factor greater than 1, or 0", o.Diverge)
	case o.CheckpointEvery < 0 || o.EvaluateEvery < 0 || o.Keep < 1:
		return fmt.Errorf("--checkpoint-every %d, --evaluate-every %d, --keep %d: want 0 or more updates, and at least 1 checkpoint", o.CheckpointEvery, o.EvaluateEvery, o.Keep)
	}
	return schedule{o.Schedule, o.Rate, o.Warmup, 0}.check()
}

// batchSetting is the name of the batch of all ranks among the settings.
const batchSetting = "batch of all ranks"

// settings are what the trained numbers depend on, by the names of the command's flags. Ranks and their batches are one setting, the
// batch of all: they may change between runs, which then agree up to rounding.
func (o *Options) settings(ranks int) map[string]string {
	float := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	return map[string]string{
		"--epochs":            strconv.Itoa(o.Epochs),
		batchSetting:          strconv.Itoa(o.BatchSize * ranks),
		"--lr":                float(o.Rate),
		"--schedule":          o.Schedule,
		"--warmup":            strconv.Itoa(o.Warmup),
		"--dora-rank":         strconv.Itoa(o.Rank),
		"--dora-alpha":        float(o.Alpha),
		"--kind":              o.Kind,
		"--max-size":          float(o.MaxSize),
		"--targets":           strings.Join(o.Targets, " "),
		"--precision":         o.Precision,
		"--base":              o.Base,
		"--teacher-precision": o.TeacherPrecision,
		"--loss":              o.Loss,
		"--clip":              float(o.Clip),
		"--weight-decay":      float(o.Decay),
		"--seed":              strconv.FormatUint(o.Seed, 10),
		"--val":               float(o.Val),
		"--evaluate-every":    strconv.Itoa(o.EvaluateEvery),
		"--micro-batch":       strconv.Itoa(o.MicroBatch),
		"--teacher-batch":     strconv.Itoa(o.TeacherBatch),
		memorySetting:         strconv.Itoa(o.Memory >> 20),
	}
}

// dividing are settings that follow from how the batch of all is divided among the ranks.
func dividing() []string { return []string{programSetting, "--micro-batch", "--teacher-batch"} }

// init is the adapter that training starts from.
func (o *Options) init(m *dora.Model) (*dora.Adapter, error) {
	if o.Adapter != "" {
		return dora.Load(o.Adapter, m)
	}
	return dora.Init(m, dora.InitOptions{Kind: passes.AdapterKind(o.Kind), Rank: o.Rank, Alpha: o.Alpha, MaxSize: o.MaxSize, Targets: o.Targets, Seed: o.Seed})
}

// Progress is where training stands after an update.
type Progress struct {
	Record
	Updates int // of the whole training
}

// Term is one of the loss.
type Term struct {
	Name  string
	Value float64
}

// Largest are the n largest terms of an update, the largest first.
func (p Progress) Largest(n int) []Term {
	var out []Term
	for _, name := range slices.Sorted(maps.Keys(p.Terms)) {
		out = append(out, Term{name, p.Terms[name]})
	}
	slices.SortStableFunc(out, func(a, b Term) int { return cmp.Compare(b.Value, a.Value) })
	return out[:min(n, len(out))]
}
