package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTrainingThatCannotBegin: each error names the flag and the remedy, and nothing is written.
func TestTrainingThatCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no model":        {func(o *Options) { o.Model = "" }, "--model: name the ONNX file"},
		"absent model":    {func(o *Options) { o.Model += "x" }, "car.onnxx: file does not exist"},
		"micro-batch":     {func(o *Options) { o.MicroBatch = 3 }, "--micro-batch 3: want a divisor of --batch-size 4"},
		"too few samples": {func(o *Options) { o.BatchSize, o.MicroBatch = 32, 4 }, "drawn: 18 samples to train on, and an update takes 32: give more data or a smaller --batch-size"},
		"all held":        {func(o *Options) { o.Val = 1 }, "--val 1: want a share"},
		"no checkpoint":   {func(o *Options) { o.Resume = true }, "has no checkpoint: leave --resume out to begin"},
		"no output":       {func(o *Options) { o.Output = "" }, "--output: name a directory"},
		"schedule":        {func(o *Options) { o.Schedule = "step" }, `--schedule "step": want one of`},
		"long warm-up":    {func(o *Options) { o.Warmup = 8 }, "--warmup 8: there are 8 updates in all"},
		"divergence":      {func(o *Options) { o.Diverge = 0.5 }, "--diverge 0.5: want a factor greater than 1"},
		"absent adapter":  {func(o *Options) { o.Adapter = "none.safetensors" }, "none.safetensors"},
		"no teacher":      {func(o *Options) { o.Teacher = "" }, "--teacher: the loss compares outputs with a teacher's"},
		"not clipped":     {func(o *Options) { o.Clip = math.NaN() }, "--clip NaN: want"},
		"decay":           {func(o *Options) { o.Decay = math.Inf(1) }, "--weight-decay +Inf: want"},
		"rate":            {func(o *Options) { o.Rate = math.NaN() }, "--lr NaN: want"},
		"absent teacher":  {func(o *Options) { o.Teacher += "x" }, "--teacher: "},
		"targets":         {func(o *Options) { o.Targets = []string{"nothing*"} }, `target "nothing*" matches none`},
	} {
		t.Run(name, func(t *testing.T) {
			opt := lessonsOf(t, 24)
			c.change(&opt)
			_, err := Run(context.Background(), opt, alone(t))
			assert.ErrorContains(t, err, c.want)
			for _, name := range []string{bestFile, lastFile, metricsFile} {
				assert.NoFileExists(t, filepath.Join(opt.Output, name))
			}
		})
	}
}

// TestTeachersAndVisionModelsThatDoNotFit are refused before any data is read, with what is wrong with them.
func TestTeachersAndVisionModelsThatDoNotFit(t *testing.T) {
	opt := lessonsOf(t, 24)
	opt.Set, opt.Data = nil, filepath.Join(t.TempDir(), "absent")
	dir := filepath.Dir(opt.Model)
	write := func(name, model string, size driving.Size) string {
		src, err := driving.Make(model, size)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, src.ONNX, 0o644))
		return path
	}
	vision, small := write("vision.onnx", "vision", driving.Tiny), write("small.onnx", "vision", driving.Small)
	for name, c := range map[string]struct {
		change func(o *Options)
		want   []string
	}{
		"other inputs":   {func(o *Options) { o.Teacher = vision }, []string{"--teacher: ", `vision.onnx: it takes "`, "which the model does not: name a teacher with the inputs and outputs of "}},
		"other shapes":   {func(o *Options) { o.Teacher = write("large.onnx", "policy", driving.Small) }, []string{"--teacher: ", `large.onnx: its input "features_buffer" is `, "the model's"}},
		"other features": {func(o *Options) { o.Vision = small }, []string{"--vision: ", "small.onnx makes ", " features, and ", "name the vision model that belongs to it"}},
		"no features":    {func(o *Options) { o.Vision = o.Model }, []string{"--vision: ", "car.onnx: it has no output hidden_state"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := opt
			o.Vision = vision
			c.change(&o)
			_, err := Run(context.Background(), o, alone(t))
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

// TestPartsOfATeacherThatAreElsewhere are named: their numbers would be taken for others.
func TestPartsOfATeacherThatAreElsewhere(t *testing.T) {
	own := []onnx.Slice{{Name: "plan", Start: 0, End: 990}, {Name: "lead", Start: 990, End: 1134}, {Name: "pad", Start: 1134, End: 1136}}
	assert.NoError(t, sameParts(own, own))
	assert.NoError(t, sameParts(own, nil), "it does not say")
	assert.NoError(t, sameParts(nil, own))
	assert.NoError(t, sameParts(own, []onnx.Slice{own[1], own[0]}))
	assert.EqualError(t, sameParts(own, []onnx.Slice{{Name: "plan", Start: 144, End: 1134}, {Name: "lead", Start: 0, End: 144}}), `its part "plan" is 144 to 1134, the model's 0 to 990`)
	assert.EqualError(t, sameParts(own, own[:1]), `it has no part "lead"`)
}

// TestResumingWithOtherSettingsIsRefused: the error says which, and the files stay as they are.
func TestResumingWithOtherSettingsIsRefused(t *testing.T) {
	opt := lessonsOf(t, 12)
	opt.Epochs, opt.Val = 1, 0
	_, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	before := sum(t, opt, lastFile)
	_, err = Run(context.Background(), opt, alone(t))
	assert.ErrorContains(t, err, "has checkpoints, the last of update 3: give --resume to go on from there, or choose another --output")
	opt.Resume, opt.Rate, opt.Seed = true, 1, 4
	_, err = Run(context.Background(), opt, alone(t))
	assert.ErrorContains(t, err, "was trained with other settings: --lr was 0.002 and is 1; --seed was 0 and is 4: give the same ones, or another --output")
	assert.Equal(t, before, sum(t, opt, lastFile))
	opt.Set, opt.Data = nil, "none"
	_, err = Run(context.Background(), opt, alone(t))
	assert.ErrorContains(t, err, "--lr was 0.002 and is 1", "before data are read")
}

// TestAFullDiskKeepsTheLastCheckpoint: training goes on without it, and ends with the error.
func TestAFullDiskKeepsTheLastCheckpoint(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 16)
	opt.Epochs, opt.Val, opt.CheckpointEvery = 2, 0, 2
	require.NoError(t, os.Mkdir(opt.Output, 0o755))
	if err := syscall.Mount("tmpfs", opt.Output, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("mounting a small disk needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(opt.Output, 0)) })
	full := filepath.Join(opt.Output, "full")
	var said []string
	opt.Message = func(text string) { said = append(said, text) }
	opt.Show = func(p Progress) {
		if p.Update == 3 { // after the first checkpoint
			_ = os.WriteFile(full, make([]byte, 4<<20), 0o644)
		}
	}
	_, err := Run(context.Background(), opt, alone(t))
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.ErrorContains(t, err, "earlier checkpoints are kept")
	require.NotEmpty(t, said)
	require.NoError(t, os.Remove(full))
	updates, err := checkpoints(opt.Output)
	require.NoError(t, err)
	assert.Equal(t, []int{2}, updates)
	opt.Resume, opt.Show = true, nil
	result, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	assert.Equal(t, 8, result.Updates)
}

// TestDivergenceEndsTraining with the best adapter kept.
func TestDivergenceEndsTraining(t *testing.T) {
	opt := lessonsOf(t, 128)
	opt.Rate, opt.Diverge, opt.Clip, opt.Warmup, opt.Schedule = 3, 1.5, 0, 25, Linear
	opt.EvaluateEvery = 5
	_, err := Run(context.Background(), opt, alone(t))
	assert.ErrorContains(t, err, "training diverges")
	assert.FileExists(t, filepath.Join(opt.Output, bestFile))
	assert.NoFileExists(t, filepath.Join(opt.Output, lastFile))
}

// TestADryRunWritesNothing: not even the directory.
func TestADryRunWritesNothing(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	var said []string
	opt.DryRun, opt.Cache = true, ""
	opt.Message = func(text string) { said = append(said, text) }
	_, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	assert.NoDirExists(t, opt.Output)
	assert.Regexp(t, `^adapter: 9 of the 9 weights that take one, \d+ numbers: \d+\.\d\d % of the model's weights$`, said[0])
	assert.Contains(t, said[1], "18 samples to train on, 6 to judge on")
	assert.Contains(t, said[len(said)-1], "all updates would take about")
}

// TestOneTrainingWritesToADirectory: another one is refused while it does, and changes nothing.
func TestOneTrainingWritesToADirectory(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 12)
	opt.Epochs, opt.Val, opt.CheckpointEvery = 1, 0, 1
	second := func(resume bool) error {
		o := opt
		o.Show, o.Resume = nil, resume
		_, err := Run(context.Background(), o, alone(t))
		return err
	}
	refused := 0
	opt.Show = func(p Progress) {
		for _, resume := range []bool{false, true} {
			require.EqualError(t, second(resume), "--output: another training writes to "+opt.Output+": wait for its end, or give another directory")
			refused++
		}
	}
	_, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	assert.Positive(t, refused)
	assert.NoError(t, second(true), "it has ended")
	opt.Output = filepath.Join(t.TempDir(), "none")
	assert.ErrorContains(t, second(true), "has no checkpoint")
	assert.NoDirExists(t, opt.Output)
}
