package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/internal/localranks"
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

// apart is the relative L2 of two adapters' numbers; "" is the one that training starts from.
func apart(t *testing.T, opt Options, a, b string) float64 {
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
		d := apart(t, opt, name, "one")
		t.Logf("%s ranks and one: relative L2 %.2g", name, d)
		assert.LessOrEqual(t, d, 1e-6)
	}
	assert.Greater(t, apart(t, opt, "", "one"), 1e-3, "training changes the adapter")
	a, err := readMetrics(dir("one").Output, 100)
	require.NoError(t, err)
	b, err := readMetrics(dir("three").Output, 100)
	require.NoError(t, err)
	require.Len(t, b, len(a))
	for i := range a {
		assert.InEpsilon(t, max(a[i].Loss, 1), max(b[i].Loss, 1), 1e-4, "update %d", a[i].Update)
	}
}

// TestRanksUnderMPITrainAsOverTCP: the same bits.
func TestRanksUnderMPITrainAsOverTCP(t *testing.T) {
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
			assert.LessOrEqual(t, apart(t, opt, s.Output, "through"), 1e-6)
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
	assert.LessOrEqual(t, apart(t, opt, "fewer", "more"), 1e-6)
}

// TestRanksWithOtherSettingsAreRefused before the first update, on all of them.
func TestRanksWithOtherSettingsAreRefused(t *testing.T) {
	opt := lessonsOf(t, 48)
	for _, r := range job(t, opt, 2, settings{Count: 48, Batch: 6, Epochs: 1, Output: "out", Other: 2}).Wait() {
		assert.Equal(t, 3, r.Code)
		assert.Contains(t, r.Output, `rank 1 differs: --lr is "0.004" and was "0.002" on rank 0`)
	}
}
