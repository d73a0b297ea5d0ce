package train

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		"schedule":        {func(o *Options) { o.Schedule = "step" }, `schedule "step": want one of`},
		"long warm-up":    {func(o *Options) { o.Warmup = 8 }, "--warmup 8: there are 8 updates in all"},
		"divergence":      {func(o *Options) { o.Diverge = 0.5 }, "--diverge 0.5: want a factor greater than 1"},
		"absent adapter":  {func(o *Options) { o.Adapter = "none.safetensors" }, "none.safetensors"},
		"no teacher":      {func(o *Options) { o.Teacher = "" }, "--teacher: the loss compares outputs with a teacher's"},
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
	opt := lessonsOf(t, 24)
	var said []string
	opt.DryRun, opt.Cache = true, ""
	opt.Message = func(text string) { said = append(said, text) }
	_, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	assert.NoDirExists(t, opt.Output)
	assert.Contains(t, said[0], "18 samples to train on, 6 to judge on")
	assert.Contains(t, said[len(said)-1], "all updates would take about")
}
