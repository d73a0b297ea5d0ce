package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/localranks"
)

// write tells ranks how to train, in the directory of opt.
func write(t *testing.T, opt Options, s settings) (dir string) {
	t.Helper()
	dir = filepath.Dir(opt.Output)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "options.json"), data, 0o644))
	return dir
}

// job trains on n ranks.
func job(t *testing.T, opt Options, n int, s settings) *localranks.Job {
	t.Helper()
	dir := write(t, opt, s)
	return localranks.Start(t, n, []string{rankVariable + "=" + dir}, os.Args[0])
}

func trained(t *testing.T, opt Options, n int, s settings) {
	t.Helper()
	for rank, r := range job(t, opt, n, s).Wait() {
		require.Zero(t, r.Code, "rank %d: %s", rank, r.Output)
	}
}

// distance is the relative L2 of two adapters' numbers; "" is the one that training starts from.
func distance(t *testing.T, opt Options, a, b string) float64 {
	t.Helper()
	file, err := onnx.Load(opt.Model)
	require.NoError(t, err)
	m, err := dora.Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	load := func(name string) (x []float32) {
		adapter, err := opt.init(m)
		require.NoError(t, err)
		if name != "" {
			adapter, err = dora.Load(filepath.Join(filepath.Dir(opt.Output), name, lastFile), m)
			require.NoError(t, err)
		}
		for _, l := range adapter.Layers {
			x = append(append(append(x, l.A...), l.B...), l.M...)
		}
		return x
	}
	var difference, all float64
	y := load(b)
	for i, v := range load(a) {
		d := float64(v) - float64(y[i])
		difference += d * d
		all += float64(y[i]) * float64(y[i])
	}
	return math.Sqrt(difference / all)
}

// TestRanksTrainAsOne: two ranks give what one gives with the doubled batch, up to rounding, and the same bits in a second run. So do three.
func TestRanksTrainAsOne(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 48)
	dir := func(name string) Options {
		o := opt
		o.Output = filepath.Join(filepath.Dir(opt.Output), name)
		return o
	}
	s := settings{Count: 48, Epochs: 2}
	with := func(batch int, output string) settings { s.Batch, s.Output = batch, output; return s }
	trained(t, opt, 1, with(12, "one"))
	trained(t, opt, 2, with(6, "two"))
	trained(t, opt, 2, with(6, "again"))
	trained(t, opt, 3, with(4, "three"))
	if fulltest.Runs(t.Name()) {
		trained(t, opt, 3, with(4, "third"))
		assert.Equal(t, sum(t, dir("three"), lastFile), sum(t, dir("third"), lastFile))
	}
	assert.Equal(t, sum(t, dir("two"), lastFile), sum(t, dir("again"), lastFile))
	assert.Equal(t, sum(t, dir("two"), bestFile), sum(t, dir("again"), bestFile))
	for _, name := range []string{"two", "three"} {
		d := distance(t, opt, name, "one")
		t.Logf("%s ranks and one: relative L2 %.2g", name, d)
		assert.LessOrEqual(t, d, 7.6e-9)
	}
	assert.Greater(t, distance(t, opt, "", "one"), 1e-3, "training changes the adapter")
	a, err := readMetrics(dir("one").Output, 100)
	require.NoError(t, err)
	for name, n := range map[string]float64{"two": 2, "three": 3} {
		b, err := readMetrics(dir(name).Output, 100)
		require.NoError(t, err)
		require.Len(t, b, len(a))
		// Micro-batches are the same ones, and so are their losses. Ranks round their mean to f32, and the sum of it, 1/n and
		// the product; losses are positive.
		bound := (n + 2) * 0x1p-24
		worst := 0.0
		for i := range a {
			x, y := a[i].Loss, b[i].Loss
			if a[i].Validation != nil {
				x, y = a[i].Validation.Loss, b[i].Validation.Loss
			}
			require.Greater(t, x, 0.0)
			assert.InEpsilon(t, x, y, bound, "%s ranks, update %d", name, a[i].Update)
			worst = max(worst, math.Abs(x-y)/x)
		}
		t.Logf("%s ranks and one: losses apart by at most %.2g, bound %.2g", name, worst, bound)
	}
}

// TestRanksUnderMPITrainAsOverTCP: the same bits.
func TestRanksUnderMPITrainAsOverTCP(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	s := settings{Count: 24, Batch: 2, Epochs: 2, Output: "tcp"}
	trained(t, opt, 2, s)
	s.Output = "mpi"
	dir := write(t, opt, s)
	r := localranks.MPI(t, 2, []string{rankVariable + "=" + dir}, os.Args[0]).Wait()[0]
	require.Zero(t, r.Code, r.Output)
	digest := func(name string) string {
		o := opt
		o.Output = filepath.Join(dir, name)
		return sum(t, o, lastFile)
	}
	assert.Equal(t, digest("tcp"), digest("mpi"))
}

// TestARankThatIsKilledEndsTraining: the others end within seconds and name it, and training goes on from the last checkpoint: on as many ranks with the bits
// of a run that went through, on fewer up to rounding.
func TestARankThatIsKilledEndsTraining(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 48)
	s := settings{Count: 48, Batch: 6, Epochs: 4, Every: 2, Output: "through"}
	trained(t, opt, 2, s)
	resumed := []int{2, 1}
	if !fulltest.Runs(t.Name()) {
		resumed = resumed[:1]
	}
	for _, n := range resumed {
		s.Output, s.Resume = fmt.Sprint("killed", n), false
		j := job(t, opt, 2, s)
		j.Until(0, "update 5\n")
		begun := time.Now()
		j.Kill(1)
		r := j.Wait()[0]
		assert.Less(t, time.Since(begun), 10*time.Second)
		assert.Equal(t, 3, r.Code)
		assert.Contains(t, r.Output, "error: rank 1 on ")
		s.Resume = true
		trained(t, opt, n, s)
		if n == 1 {
			assert.LessOrEqual(t, distance(t, opt, s.Output, "through"), 1e-6)
			continue
		}
		o := opt
		o.Output = filepath.Join(filepath.Dir(opt.Output), s.Output)
		whole := o
		whole.Output = filepath.Join(filepath.Dir(opt.Output), "through")
		assert.Equal(t, sum(t, whole, lastFile), sum(t, o, lastFile))
	}
}

// TestFewerRanksGoOnWithOtherMicroBatches: where the batch of all divides into others.
func TestFewerRanksGoOnWithOtherMicroBatches(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("a long test")
	}
	opt := lessonsOf(t, 48)
	s := settings{Count: 48, Batch: 4, Epochs: 1, Output: "more", Micro: -1}
	trained(t, opt, 3, s)
	s.Epochs, s.Every, s.Output = 1, 1, "fewer"
	j := job(t, opt, 3, s)
	j.Until(0, "update 2\n")
	j.Kill(1)
	j.Wait()
	s.Resume = true
	trained(t, opt, 2, s) // six samples each, at once
	assert.LessOrEqual(t, distance(t, opt, "fewer", "more"), 1e-6)
}

// TestRanksWithOtherSettingsAreRefused before the first update, on all of them.
func TestRanksWithOtherSettingsAreRefused(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 48)
	for _, r := range job(t, opt, 2, settings{Count: 48, Batch: 6, Epochs: 1, Output: "out", Other: 2}).Wait() {
		assert.Equal(t, 3, r.Code)
		assert.Contains(t, r.Output, `rank 1 differs: --lr is "0.004" and was "0.002" on rank 0`)
	}
}

// TestRanksJudgeAlike: one, two and three ranks have the same validation loss, to the bit, since its parts are added in
// the order of the samples. Their number divides neither by the ranks nor by the micro-batch: of five samples, three at
// a time, the third rank takes away what the second one has too much; of three samples, two at a time, the third rank
// has none.
func TestRanksJudgeAlike(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 12)
	for _, c := range []struct {
		count, held, micro int
		ranks              []int
	}{{20, 5, 3, []int{1, 2, 3}}, {12, 3, 2, []int{1, 3}}} {
		o, err := settings{Count: c.count}.options(filepath.Dir(opt.Output), opt.Device)
		require.NoError(t, err)
		_, held, err := dataset.Split(o.Set, o.Val, o.Seed)
		require.NoError(t, err)
		require.Equal(t, c.held, held.Len())
		var first *Evaluation
		for _, n := range c.ranks {
			name := fmt.Sprintf("%d-%d", c.held, n)
			trained(t, opt, n, settings{Count: c.count, Batch: c.micro, Micro: c.micro, Epochs: 2, Warmup: 1, Output: name})
			records, err := readMetrics(filepath.Join(filepath.Dir(opt.Output), name), 0)
			require.NoError(t, err)
			require.Len(t, records, 1)
			if first == nil {
				first = records[0].Validation
				require.Greater(t, first.Loss, 0.0)
			}
			assert.Equal(t, first, records[0].Validation, "%d samples on %d ranks", c.held, n)
		}
	}
}

// TestARankThatIsInterruptedStopsAll after the same update, with one checkpoint, from which they go on with the bits of
// ranks that ran through.
func TestARankThatIsInterruptedStopsAll(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 48)
	s := settings{Count: 48, Batch: 6, Epochs: 4, Every: 1000, Output: "through"}
	trained(t, opt, 2, s)
	through := opt
	through.Output = filepath.Join(filepath.Dir(opt.Output), "through")
	for rank, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s.Output, s.Resume = fmt.Sprint("stopped", rank), false
		o := opt
		o.Output = filepath.Join(filepath.Dir(opt.Output), s.Output)
		j := job(t, opt, 2, s)
		j.Until(0, "update 2\n")
		j.Signal(rank, signal)
		ended := ""
		for rank, r := range j.Wait() {
			assert.Equal(t, 3, r.Code)
			assert.Contains(t, r.Output, "error: training was interrupted: context canceled\n", "rank %d", rank)
			_, after, ok := strings.Cut(r.Output, "ended after ")
			require.True(t, ok, r.Output)
			after, _, _ = strings.Cut(after, "\n")
			if rank == 0 {
				ended = after
			}
			assert.Equal(t, ended, after, "both end after the same update")
		}
		updates, err := checkpoints(o.Output)
		require.NoError(t, err)
		require.Len(t, updates, 1)
		assert.Equal(t, ended, fmt.Sprint(updates[0]))
		assert.Less(t, updates[0], 12)
		if rank == 0 {
			continue
		}
		s.Resume = true
		trained(t, opt, 2, s)
		assert.Equal(t, sum(t, through, lastFile), sum(t, o, lastFile))
	}
}

// TestAGradientThatIsNotFiniteOnOneRank is left out by all: the adapter is that of one rank with as large a batch,
// which leaves out the same update.
func TestAGradientThatIsNotFiniteOnOneRank(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	set := opt.Set.(drawn)
	training, _, err := dataset.Split(set, opt.Val, opt.Seed)
	require.NoError(t, err)
	second := dataset.Shuffle(opt.Seed, 0, training.Len())[6+4] // of the second update, which is the second rank's
	wrong, err := training.Sample(t.Context(), second)
	require.NoError(t, err)
	s := settings{Count: 24, Batch: 6, Epochs: 2, Output: "one", Wrong: wrong.Key}
	trained(t, opt, 1, s)
	s.Batch, s.Micro, s.Output = 3, 1, "two"
	trained(t, opt, 2, s)
	for _, name := range []string{"one", "two"} {
		records, err := readMetrics(filepath.Join(filepath.Dir(opt.Output), name), 100)
		require.NoError(t, err)
		skipped := 0
		for _, r := range records {
			if r.Skipped {
				skipped++
			}
		}
		assert.Equal(t, 2, skipped, "%s: an update of each epoch", name)
	}
	assert.LessOrEqual(t, distance(t, opt, "two", "one"), 1e-6)
	assert.Greater(t, distance(t, opt, "", "one"), 1e-3)
}

// TestRanksThatDivergeStopAfterTheSameUpdate, by the loss of all: each for itself, with the same words.
func TestRanksThatDivergeStopAfterTheSameUpdate(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	s := settings{Count: 24, Batch: 2, Micro: 2, Epochs: 40, Every: 10, Output: "out", Rate: 2, Warmup: 60, Diverge: 1.5}
	var last []string
	for rank, r := range job(t, opt, 2, s).Wait() {
		assert.Equal(t, 3, r.Code)
		_, after, _ := strings.Cut(r.Output, "ended after ")
		assert.Contains(t, after, "error: training diverges: the loss, smoothed over 20 updates, is ", "rank %d", rank)
		last = append(last, after)
	}
	assert.Equal(t, last[0], last[1])
}
