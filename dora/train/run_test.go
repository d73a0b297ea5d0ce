package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	recoverable "github.com/spark-compile/spark-compile/testdata/gen/damage"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// drawn is a set of inputs that are drawn at random, as many of each of eight routes.
type drawn struct {
	model *driving.Model
	count int
}

func (d drawn) Len() int            { return d.count }
func (d drawn) Route(i int) string  { return fmt.Sprint(i * 8 / d.count) }
func (d drawn) Fingerprint() string { return fmt.Sprintf("%064x", d.count) }
func (d drawn) Close() error        { return nil }

func (d drawn) Sample(_ context.Context, i int) (*dataset.Sample, error) {
	s := &dataset.Sample{Key: fmt.Sprint("drawn/", i), Inputs: map[string][]byte{}}
	for _, in := range d.model.Inputs {
		s.Inputs[in.Name] = in.Draw(uint64(i)).Dense()
	}
	return s, nil
}

// settings are what tests of several ranks vary.
type settings struct {
	Count, Batch, Epochs, Every int
	Micro                       int // 2 by default; -1: the trainer's default
	Resume                      bool
	Output                      string
	Other                       float64 // what the second rank multiplies its learning rate by
	Rate, Diverge               float64 // 2e-3 and never by default
	Warmup                      int     // 2 by default
	Wrong                       string  // key of a sample that is not finite
}

// options are those of training in a directory that lessonsOf has filled.
func (s settings) options(dir string, d hal.Device) (Options, error) {
	src, err := driving.Made("policy", driving.Tiny)
	path := func(name string) string { return filepath.Join(dir, name) }
	micro := max(cmp.Or(s.Micro, 2), 0)
	var set dataset.Set = drawn{src, s.Count}
	if s.Wrong != "" {
		set = altered{drawn{src, s.Count}, spoil(s.Wrong)}
	}
	return Options{Model: path("car.onnx"), Teacher: path("policy.onnx"), Data: "drawn", Set: set,
		Output: path(s.Output), Cache: path("cache"), Epochs: s.Epochs, BatchSize: s.Batch, MicroBatch: micro,
		Rate: cmp.Or(s.Rate, 2e-3), Warmup: cmp.Or(s.Warmup, 2), Rank: 2, Precision: "fp32", TeacherPrecision: "fp32",
		Val: 0.25, Clip: 1, Device: d,
		CheckpointEvery: s.Every, Resume: s.Resume, Diverge: s.Diverge}, err
}

// lessonsOf writes a tiny policy and a damaged one, and says how to train the second towards the first.
func lessonsOf(t *testing.T, count int) Options {
	t.Helper()
	dir := t.TempDir()
	src, err := driving.Made("policy", driving.Tiny)
	require.NoError(t, err)
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("policy.onnx"), src.ONNX, 0o644))
	file, err := onnx.Load(path("policy.onnx"))
	require.NoError(t, err)
	m, err := dora.Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	chosen, err := recoverable.Undone(m, 1, 1)
	require.NoError(t, err)
	damaged, err := m.WithRows(recoverable.Mendable.Rows(m, chosen, 0.2, 1))
	require.NoError(t, err)
	require.NoError(t, damaged.Save(path("car.onnx")))
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	opt, err := settings{Count: count, Batch: 4, Epochs: 2, Output: "out"}.options(dir, d)
	require.NoError(t, err)
	opt.Message = func(text string) { t.Log(text) }
	return opt
}

// alone is a group of one.
func alone(t *testing.T) collectives.Group {
	t.Helper()
	g, err := collectives.Join(context.Background(), collectives.Options{})
	require.NoError(t, err)
	return g
}

// sum is a digest of a file of the output.
func sum(t *testing.T, opt Options, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(opt.Output, name))
	require.NoError(t, err)
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// TestAStoppedRunGoesOnWithTheSameBits: stopped once by its context, once as if it were killed between two checkpoints, it ends with the adapter, the best
// adapter and the state of one that ran through, and with its metrics.
func TestAStoppedRunGoesOnWithTheSameBits(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	opt.CheckpointEvery, opt.EvaluateEvery = 2, 3
	through, parts := opt, opt
	through.Output, parts.Output = opt.Output+"1", opt.Output+"2"
	want, err := Run(context.Background(), through, alone(t))
	require.NoError(t, err)
	assert.Equal(t, 8, want.Updates) // 18 of 24 samples in batches of 4, twice
	assert.Less(t, want.Best.Loss, want.Base.Loss)

	ctx, cancel := context.WithCancel(context.Background())
	parts.Show = func(p Progress) {
		if p.Update == 3 {
			cancel()
		}
	}
	_, err = Run(ctx, parts, alone(t))
	require.ErrorIs(t, err, context.Canceled)
	parts.Resume = true
	killed := errors.New("killed")
	parts.Show = func(p Progress) {
		if p.Update == 6 {
			panic(killed)
		}
	}
	func() {
		defer func() { assert.Equal(t, killed, recover()) }()
		_, _ = Run(context.Background(), parts, alone(t))
	}()
	parts.Show = nil
	got, err := Run(context.Background(), parts, alone(t))
	require.NoError(t, err)
	got.Output = want.Output
	assert.Equal(t, want, got)
	for _, name := range []string{lastFile, bestFile, "update-000008/" + adapterFile, "update-000008/" + stateFile} {
		assert.Equal(t, sum(t, through, name), sum(t, parts, name), name)
	}
	a, err := readMetrics(through.Output, 100)
	require.NoError(t, err)
	b, err := readMetrics(parts.Output, 100)
	require.NoError(t, err)
	assert.Equal(t, timeless(a), timeless(b))
	assert.Len(t, a, 8+1+3, "the last adapter is judged too")
}

// TestAnAdapterIsTrainedOn: from another training's end, with its layers and ranks, and resumed with it.
func TestAnAdapterIsTrainedOn(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 16)
	opt.Epochs, opt.Rank, opt.CheckpointEvery = 1, 1, 1
	_, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	first := opt.Output
	more := opt
	more.Output, more.Adapter, more.Rank = opt.Output+"2", filepath.Join(first, lastFile), 16
	ctx, cancel := context.WithCancel(context.Background())
	more.Show = func(Progress) { cancel() }
	_, err = Run(ctx, more, alone(t))
	require.ErrorIs(t, err, context.Canceled)
	more.Show, more.Resume = nil, true
	got, err := Run(context.Background(), more, alone(t))
	require.NoError(t, err)
	assert.Less(t, got.Best.Loss, got.Base.Loss)
	assert.NotEqual(t, sum(t, opt, lastFile), sum(t, more, lastFile))
	more.Adapter = ""
	_, err = Run(context.Background(), more, alone(t))
	assert.ErrorContains(t, err, "was trained with other settings: --adapter was ")
	assert.ErrorContains(t, err, " and is not given")
}

// TestAStudentReachesItsTeacher: from routes, whose features a vision model computes; on a route that is kept from training the loss falls to less than a fifth.
func TestAStudentReachesItsTeacher(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	opt.Set, opt.Data = nil, "synthetic:routes=3,seconds=14,width=96,height=60"
	opt.Epochs, opt.BatchSize, opt.MicroBatch, opt.Rate, opt.Val = 3, 8, 8, 1e-2, 0.34
	vision, err := driving.Made("vision", driving.Tiny)
	require.NoError(t, err)
	opt.Vision = filepath.Join(filepath.Dir(opt.Model), "vision.onnx")
	require.NoError(t, os.WriteFile(opt.Vision, vision.ONNX, 0o644))
	result, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	t.Log(result.Base.Loss, result.Best.Loss, result.BestUpdate)
	assert.Greater(t, result.Base.Loss, 5*result.Best.Loss)
	assert.FileExists(t, filepath.Join(opt.Output, sampleFile))
	page, err := os.ReadFile(filepath.Join(opt.Output, reportFile))
	require.NoError(t, err)
	assert.Contains(t, string(page), "<polyline")
	assert.Contains(t, string(page), "without the adapter")
	assert.Equal(t, 4, strings.Count(string(page), "data:image/png;base64,"), "frames with paths")
}

// timeless are records without what depends on the clock.
func timeless(records []Record) (out []Record) {
	for _, r := range records {
		r.Seconds, r.Samples, r.Waited = 0, 0, 0
		out = append(out, r)
	}
	return out
}

// rankVariable makes the test's program a rank that trains; its value is the scenario.
const rankVariable = "SPARK_TRAIN_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) == "" {
		os.Exit(m.Run())
	}
	if err := trainAsRank(); err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
}

// trainAsRank trains in the directory of $SPARK_TRAIN_RANK, by the settings in its options.json.
func trainAsRank() (err error) {
	dir := os.Getenv(rankVariable)
	var s settings
	data, err := os.ReadFile(filepath.Join(dir, "options.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	g, err := collectives.Join(ctx, collectives.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			g.Abort(err)
		}
		err = errors.Join(err, g.Close())
	}()
	d, err := emu.Open(emu.Options{Workers: 1})
	if err != nil {
		return err
	}
	defer d.Close()
	opt, err := s.options(dir, d)
	if err != nil {
		return err
	}
	if g.Rank() == 1 && s.Other != 0 {
		opt.Rate *= s.Other
	}
	opt.Show = func(p Progress) { fmt.Println("update", p.Update) }
	result, err := Run(ctx, opt, g)
	fmt.Printf("ended after %d\n", result.Updates)
	return err
}
