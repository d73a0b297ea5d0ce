package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestPortionsCountEachSampleOnce whatever the number of samples.
func TestPortionsCountEachSampleOnce(t *testing.T) {
	for count := 1; count < 20; count++ {
		for size := 1; size < 6; size++ {
			counted := make([]float64, count)
			for _, p := range portions(count, size) {
				require.Len(t, p.samples, size)
				for _, i := range p.samples {
					counted[i] += p.weight / float64(size)
				}
			}
			for i := range counted {
				assert.InDelta(t, 1/float64(count), counted[i], 1e-12, "sample %d of %d, %d at a time", i, count, size)
			}
		}
	}
}

// TestTheValidationLossIsTheMeanOfItsSamples, each counted once: the same where their number is a multiple of the micro-batch and where it is not.
func TestTheValidationLossIsTheMeanOfItsSamples(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24) // six are kept from training
	opt.Epochs = 1
	var losses []float64
	for _, micro := range []int{2, 4} {
		ctx, cancel := context.WithCancel(context.Background())
		one := opt
		one.MicroBatch, one.TeacherBatch, one.Output = micro, 2, fmt.Sprint(opt.Output, micro)
		one.Show = func(Progress) { cancel() }
		result, err := Run(ctx, one, alone(t))
		require.ErrorIs(t, err, context.Canceled)
		losses = append(losses, result.Base.Loss)
	}
	assert.InEpsilon(t, losses[0], losses[1], 1e-5)
}

// altered is a set of which samples are changed as they are read.
type altered struct {
	drawn
	change func(i int, s *dataset.Sample)
}

func (a altered) Sample(ctx context.Context, i int) (*dataset.Sample, error) {
	s, err := a.drawn.Sample(ctx, i)
	if err == nil {
		a.change(i, s)
	}
	return s, err
}

// spoil makes the last input of a sample no number, in f16 and in f32.
func spoil(key string) func(int, *dataset.Sample) {
	return func(_ int, s *dataset.Sample) {
		if s.Key == key {
			x := s.Inputs["features_buffer"]
			binary.LittleEndian.PutUint16(x[len(x)-2:], 0x7fc0)
		}
	}
}

// TestAValidationLossThatIsNotFinite_LaterIsNotTheBest: it ends training, and the adapter that was the best stays. Here
// the sample is spoilt after the first evaluation, which stands for an adapter under which values overflow.
func TestAValidationLossThatIsNotFinite_LaterIsNotTheBest(t *testing.T) {
	opt := lessonsOf(t, 24)
	opt.EvaluateEvery, opt.CheckpointEvery = 1, 1
	set := opt.Set.(drawn)
	_, held, err := dataset.Split(set, opt.Val, opt.Seed)
	require.NoError(t, err)
	first, err := held.Sample(t.Context(), 0)
	require.NoError(t, err)
	spoilt, change := atomic.Bool{}, spoil(first.Key)
	opt.Set = altered{set, func(i int, s *dataset.Sample) {
		if spoilt.Load() {
			change(i, s)
		}
	}}
	opt.Show = func(p Progress) { spoilt.Store(p.Update == 3) }
	result, err := Run(t.Context(), opt, alone(t))
	best := filepath.Join(opt.Output, bestFile)
	require.ErrorContains(t, err, "validation after update 3: the loss is not finite of sample "+first.Key+
		" or one of the 1 behind it, and it was without the adapter: ")
	assert.ErrorContains(t, err, fmt.Sprintf("begin anew with a smaller --lr or --clip, or in --precision fp32; "+
		"%s is the adapter of update %d", best, result.BestUpdate))
	records, err := readMetrics(opt.Output, 100)
	require.NoError(t, err)
	least, at := math.Inf(1), 0
	for _, r := range records {
		if r.Validation != nil && r.Update > 0 {
			require.Less(t, r.Update, 3)
			if r.Validation.Loss < least {
				least, at = r.Validation.Loss, r.Update
			}
		}
	}
	assert.Equal(t, at, result.BestUpdate)
	assert.Equal(t, least, result.Best.Loss)
	p, _ := checkpointAt(t, opt, 2)
	data, err := os.ReadFile(best)
	require.NoError(t, err)
	assert.Equal(t, p.BestFile, data)
	assert.NoDirExists(t, filepath.Join(opt.Output, checkpointName(3)), "what is not finite is not gone on from")
}

// TestAValidationLossThatIsNotFiniteNamesItsSample.
func TestAValidationLossThatIsNotFiniteNamesItsSample(t *testing.T) {
	opt := lessonsOf(t, 24)
	set := opt.Set.(drawn)
	_, held, err := dataset.Split(set, opt.Val, opt.Seed)
	require.NoError(t, err)
	last, err := held.Sample(context.Background(), held.Len()-1)
	require.NoError(t, err)
	before, err := held.Sample(context.Background(), held.Len()-2)
	require.NoError(t, err)
	opt.Set = altered{set, spoil(last.Key)}
	_, err = Run(context.Background(), opt, alone(t))
	assert.ErrorContains(t, err, "validation: the loss is not finite of sample "+before.Key+" or one of the 1 behind it: take it out of drawn")
}

// TestTheLastAdapterIsJudgedToo: also where the end comes before the next evaluation.
func TestTheLastAdapterIsJudgedToo(t *testing.T) {
	opt := lessonsOf(t, 24)
	opt.Epochs, opt.EvaluateEvery = 1, 100
	result, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	require.NotNil(t, result.Best)
	assert.Equal(t, result.Updates, result.BestUpdate)
	assert.False(t, math.IsNaN(result.Best.Loss))
	assert.FileExists(t, filepath.Join(opt.Output, bestFile))
}

// TestARunThatStopsBeforeItsFirstUpdateGoesOn: with its metrics, of which the model without adapter is the first.
func TestARunThatStopsBeforeItsFirstUpdateGoesOn(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	opt.Epochs = 1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read := 0 // samples after the first evaluation: those that the report shows, then the first to train on
	set := opt.Set.(drawn)
	opt.Workers = 1
	opt.Set = altered{set, func(int, *dataset.Sample) {
		if records, err := readMetrics(opt.Output, 0); err == nil && len(records) > 0 {
			if read++; read == mostShown+1 {
				cancel()
			}
		}
	}}
	_, err := Run(ctx, opt, alone(t))
	require.ErrorIs(t, err, ErrInterrupted)
	require.DirExists(t, filepath.Join(opt.Output, checkpointName(0)))
	opt.Set, opt.Resume = set, true
	result, err := Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	records, err := readMetrics(opt.Output, 100)
	require.NoError(t, err)
	require.Len(t, records, 1+result.Updates+1)
	assert.Equal(t, result.Base, records[0].Validation)
	_, err = os.Stat(filepath.Join(opt.Output, reportFile))
	assert.NoError(t, err)
}

// renamed is a set of other data.
type renamed struct{ dataset.Set }

func (r renamed) Fingerprint() string { return fmt.Sprintf("%064x", 7) }

// TestResumingWithAnotherDivisionIsNamed: what only divides the work gives other bits too.
func TestResumingWithAnotherDivisionIsNamed(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 12)
	opt.Epochs, opt.Val = 1, 0
	ctx, cancel := context.WithCancel(context.Background())
	opt.Show = func(Progress) { cancel() }
	_, err := Run(ctx, opt, alone(t))
	require.ErrorIs(t, err, ErrInterrupted)
	opt.Resume, opt.Show = true, nil
	for want, change := range map[string]func(*Options){
		"--micro-batch was 2 and is 4; --teacher-batch was 2 and is 4: give": func(o *Options) { o.MicroBatch = 4 },
		"--teacher-batch was 2 and is 1: give":                               func(o *Options) { o.TeacherBatch = 1 },
		"other settings: --teacher has other contents: give":                 func(o *Options) { o.Teacher = o.Model },
		"other settings: --data has other contents: give":                    func(o *Options) { o.Set = renamed{o.Set} },
	} {
		other := opt
		change(&other)
		_, err := Run(context.Background(), other, alone(t))
		assert.ErrorContains(t, err, want)
	}
}

// TestASampleThatIsNotFiniteCostsItsUpdatesAlone: neither the variation that errors are related to, nor the training.
func TestASampleThatIsNotFiniteCostsItsUpdatesAlone(t *testing.T) {
	opt := lessonsOf(t, 24)
	opt.Epochs, opt.Loss = 1, "plan=1,features:outputs=1"
	set := opt.Set.(drawn)
	training, _, err := dataset.Split(set, opt.Val, opt.Seed)
	require.NoError(t, err)
	wrong, err := training.Sample(context.Background(), dataset.Shuffle(opt.Seed, 0, training.Len())[1])
	require.NoError(t, err)
	opt.Set = altered{set, spoil(wrong.Key)}
	_, err = Run(context.Background(), opt, alone(t))
	require.NoError(t, err)
	records, err := readMetrics(opt.Output, 100)
	require.NoError(t, err)
	var skipped []int
	for _, r := range records {
		if r.Skipped {
			skipped = append(skipped, r.Update)
			assert.Empty(t, r.Terms)
		}
	}
	assert.Equal(t, []int{1}, skipped)
}
