package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/runtime"
)

// run is a training.
type run struct {
	opt   Options
	group collectives.Group

	model   *dora.Model
	adapter *dora.Adapter
	step    *dora.Step
	trainer *dora.Trainer
	inputs  []string // of the step, but for its learning rate and count

	training, held dataset.Set
	teacher        *teacher.Teacher // nil without one
	teach          teach
	companions     []*runtime.Program // teacher and vision model
	close          []func() error

	schedule schedule
	each     int // updates of an epoch
	every    int // updates from checkpoint to checkpoint
	evaluate int // and from evaluation to evaluation
	pos      position

	log     *metrics
	records []Record

	waited   time.Duration // for data, of this update
	clock    time.Time
	shown    []*shown
	pictures []picture
	fault    error // of a checkpoint that was not written
	written  int   // update of the last one that was
}

// Result is what training came to.
type Result struct {
	Updates    int
	Base, Best *Evaluation // nil without samples that are kept from training
	BestUpdate int
	Output     string
}

// Run trains. When the context ends it finishes the update, writes a checkpoint and returns ErrInterrupted. Every rank of the group calls
// it with the same options; rank 0 writes.
func Run(ctx context.Context, opt Options, group collectives.Group) (result Result, err error) {
	r := &run{opt: opt, group: group}
	r.opt.defaults()
	if err := r.opt.check(); err != nil {
		return result, err
	}
	defer func() {
		for _, f := range slices.Backward(r.close) {
			err = errors.Join(err, f())
		}
	}()
	if err := r.prepare(ctx); err != nil {
		return result, err
	}
	if r.opt.DryRun {
		return result, r.rehearse(ctx)
	}
	err = r.train(ctx)
	result = Result{r.pos.Update, r.pos.Base, r.pos.Best, r.pos.BestAt, r.opt.Output}
	return result, err
}

// first reports whether this rank writes.
func (r *run) first() bool { return r.group.Rank() == 0 }

// train is the way from the position to the end.
func (r *run) train(ctx context.Context) (err error) {
	if r.first() {
		if r.records, err = readMetrics(r.opt.Output, r.pos.Update); err != nil {
			return err
		}
		if r.pos.Update == 0 && r.pos.Base == nil { // what is there is of a run without a checkpoint
			r.records = nil
		}
		if r.log, err = openMetrics(r.opt.Output, r.records); err != nil {
			return err
		}
		r.close = append(r.close, r.log.close)
	}
	if r.held != nil && r.pos.Base == nil {
		if err := r.evaluateBase(ctx); err != nil {
			return err
		}
	}
	if err := r.show(ctx); err != nil {
		return err
	}
	for r.pos.Epoch < r.opt.Epochs {
		if err := r.epoch(ctx); err != nil {
			return err
		}
	}
	return r.finish()
}

// epoch trains to the end of an epoch.
func (r *run) epoch(ctx context.Context) error {
	// An update that has begun is finished. Ranks stop after an update that all of them make, so none of them stops waiting for its data.
	work := context.WithoutCancel(ctx)
	waits := ctx
	if r.group.Size() > 1 {
		waits = work
	}
	order := dataset.Shard(dataset.Shuffle(r.opt.Seed, r.pos.Epoch, r.training.Len()), r.opt.BatchSize, r.group.Rank(), r.group.Size())
	lessons, stop := r.lessons(waits, r.training, order[r.pos.Batch*r.opt.BatchSize:], r.opt.BatchSize)
	defer stop()
	for last := false; !last; {
		r.clock, r.waited = time.Now(), 0 // an update's time has no evaluations and checkpoints in it
		l, err := r.next(waits, lessons)
		if waits.Err() != nil {
			r.checkpoint()
			return r.interrupted()
		}
		if err != nil {
			return err
		}
		stopped, err := r.update(work, l, ctx.Err() != nil)
		if err != nil {
			return err
		}
		last = r.pos.Batch == 0
		if ended := r.pos.Epoch == r.opt.Epochs; r.due(r.evaluate) || last && (r.evaluate == 0 || ended) { // the last adapter may be the best
			if err := r.evaluated(work); err != nil {
				return err
			}
		}
		if stopped || r.due(r.every) || last && r.every == 0 {
			r.checkpoint()
		}
		if stopped {
			return r.interrupted()
		}
	}
	return nil
}

// due reports whether something that is done at intervals is to be done.
func (r *run) due(every int) bool { return every > 0 && r.pos.Update%every == 0 }

// ErrInterrupted is a training's that stopped with a checkpoint, since its context ended or that of another rank. It is a context.Canceled too.
var ErrInterrupted = fmt.Errorf("training was interrupted: %w", context.Canceled)

func (r *run) interrupted() error {
	if r.fault != nil {
		return r.fault
	}
	if r.first() {
		r.opt.Message(fmt.Sprintf("stopped after update %d; --resume goes on from there", r.pos.Update))
	}
	return ErrInterrupted
}

// update makes an update from a lesson and records it. It reports whether a rank has been told to stop.
func (r *run) update(ctx context.Context, l lesson, stop bool) (stopped bool, err error) {
	rate := r.schedule.at(r.pos.Update)
	sums, result, stopped, err := r.learn(ctx, l, rate, stop)
	if err != nil {
		return false, err
	}
	r.pos.Update++
	if r.pos.Batch++; r.pos.Batch == r.each {
		r.pos.Epoch, r.pos.Batch = r.pos.Epoch+1, 0
	}
	if err := r.record(rate, result, sums); err != nil {
		return false, err
	}
	return stopped, r.pos.Watch.see(sums.loss, r.opt.Diverge)
}

// learn updates the adapter by a lesson, at a learning rate.
func (r *run) learn(ctx context.Context, l lesson, rate float64, stop bool) (s *sums, result dora.Result, stopped bool, err error) {
	micro := r.opt.BatchSize / r.opt.MicroBatch
	s = newSums(micro)
	for k := range micro {
		if err := r.set(l.part(k, r.opt.MicroBatch)); err != nil {
			return s, result, false, err
		}
		var loss float64
		if alone := r.group.Size() == 1; alone && k == micro-1 {
			result, err = r.trainer.Step(ctx, rate)
			loss = result.Loss
		} else {
			loss, err = r.trainer.Accumulate(ctx)
		}
		if err != nil {
			return s, result, false, err
		}
		s.add(loss, r.trainer.Terms())
	}
	if r.group.Size() > 1 {
		result, stop, err = r.exchange(ctx, rate, s, stop)
	}
	return s, result, stop, err
}

// exchange takes the mean of what the ranks found, and applies it.
func (r *run) exchange(ctx context.Context, rate float64, s *sums, stop bool) (dora.Result, bool, error) {
	gradient, err := r.trainer.Gradient()
	if err != nil {
		return dora.Result{}, false, err
	}
	flag := float32(0)
	if stop {
		flag = 1
	}
	all := append(slices.Clip(gradient), flag)
	all = append(all, s.numbers()...)
	if err := r.group.Mean(ctx, all); err != nil {
		return dora.Result{}, false, err
	}
	rest := all[len(gradient):]
	s.set(rest[1:])
	result, err := r.trainer.Apply(ctx, rate, all[:len(gradient)])
	return result, rest[0] > 0, err
}

// record tells of an update.
func (r *run) record(rate float64, result dora.Result, s *sums) error {
	took := time.Since(r.clock)
	rec := Record{Update: r.pos.Update, Epoch: float64(r.pos.Update) / float64(r.each), Loss: finite(s.loss), Terms: s.terms(), Rate: rate, Norm: finite(result.Norm),
		Skipped: !result.Applied, Seconds: took.Seconds(), Samples: float64(r.opt.BatchSize*r.group.Size()) / took.Seconds(), Waited: r.waited.Seconds() / took.Seconds()}
	if !r.first() {
		return nil
	}
	r.opt.Show(Progress{rec, r.each * r.opt.Epochs})
	return r.keep(rec)
}

func (r *run) keep(rec Record) error {
	r.records = append(r.records, rec)
	return r.log.write(rec)
}

// finite is x, or 0 where that is no number that JSON has.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// sums are means over an update's micro-batches.
type sums struct {
	count int
	loss  float64
	names []string
	term  map[string]float64
}

func newSums(count int) *sums { return &sums{count: count, term: map[string]float64{}} }

func (s *sums) add(loss float64, terms map[string]float64) {
	s.loss += loss / float64(s.count)
	for name, x := range terms {
		if _, ok := s.term[name]; !ok {
			s.names = append(s.names, name)
		}
		s.term[name] += x / float64(s.count)
	}
	slices.Sort(s.names)
}

// numbers are what ranks exchange: the loss, and the terms by name.
func (s *sums) numbers() []float32 {
	out := []float32{float32(s.loss)}
	for _, name := range s.names {
		out = append(out, float32(s.term[name]))
	}
	return out
}

func (s *sums) set(x []float32) {
	s.loss = float64(x[0])
	for i, name := range s.names {
		s.term[name] = float64(x[i+1])
	}
}

// terms are those of the loss that are finite, as JSON has them; nil if there are none.
func (s *sums) terms() map[string]float64 {
	if len(s.names) == 0 {
		return nil
	}
	out := map[string]float64{}
	for _, name := range s.names {
		if x := s.term[name]; finite(x) == x {
			out[name] = x
		}
	}
	return out
}

// checkpoint writes one, if this is the rank that does. A fault is reported at the end too, unless a later one is written.
func (r *run) checkpoint() {
	if !r.first() {
		return
	}
	if r.fault = r.writeCheckpoint(); r.fault != nil {
		r.opt.Message(r.fault.Error())
	}
}

func (r *run) writeCheckpoint() error {
	s, err := r.trainer.Snapshot()
	if err != nil {
		return err
	}
	if err := r.trainer.Read(); err != nil {
		return err
	}
	adapter, err := r.adapter.Encode()
	if err != nil {
		return err
	}
	r.pos.Applied, r.pos.Refused = s.Updates, s.Refused
	state, err := encodeState(r.pos, s)
	if err != nil {
		return err
	}
	if err := writeCheckpoint(r.opt.Output, r.pos.Update, adapter, state); err != nil {
		return err
	}
	r.written = r.pos.Update
	return errors.Join(prune(r.opt.Output, r.opt.Keep), r.report())
}

// finish writes what training came to.
func (r *run) finish() error {
	if !r.first() {
		return nil
	}
	if r.written != r.pos.Update {
		r.checkpoint()
	}
	if r.teacher != nil {
		s := r.teacher.Stats()
		r.opt.Message(fmt.Sprintf("teacher: %d inferences, %.4g a second, and %d from the cache", s.Inferences, s.Rate(), s.Hits))
	}
	if err := r.trainer.Read(); err != nil {
		return err
	}
	return errors.Join(r.fault, r.adapter.Save(filepath.Join(r.opt.Output, lastFile)), r.saveSample(), r.report())
}

// saveBest keeps the adapter as it is now, which has the least validation loss so far.
func (r *run) saveBest(e *Evaluation) error {
	r.pos.Best, r.pos.BestAt = e, r.pos.Update
	if err := r.trainer.Read(); err != nil {
		return err
	}
	data, err := r.adapter.Encode()
	if err != nil {
		return err
	}
	r.pos.BestFile = data
	return atomicfile.Write(filepath.Join(r.opt.Output, bestFile), data)
}

// alone makes the directory of checkpoints, unless they are to be there already, and keeps other trainings out of it until this one is closed or killed.
func (r *run) alone() error {
	if r.opt.Output == "" {
		return errors.New("--output: name a directory for checkpoints")
	}
	if _, err := os.Stat(r.opt.Output); r.opt.Resume && errors.Is(err, fs.ErrNotExist) {
		return nil // which is said where checkpoints are looked for
	}
	if err := os.MkdirAll(r.opt.Output, 0o755); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	lock := flock.New(filepath.Join(r.opt.Output, lockName))
	switch locked, err := lock.TryLock(); {
	case err != nil && !errors.Is(err, errors.ErrUnsupported):
		return errors.Join(fmt.Errorf("--output: %s: %w", r.opt.Output, err), lock.Close())
	case err == nil && !locked:
		return errors.Join(fmt.Errorf("--output: another training writes to %s: wait for its end, or give another directory", r.opt.Output), lock.Close())
	}
	r.close = append(r.close, lock.Close)
	return nil
}

// lockName is the file that the training that writes to a directory has locked.
const lockName = ".lock"

// mayBegin refuses a directory with checkpoints unless they are resumed from.
func (r *run) mayBegin(found bool) error {
	if r.opt.Resume && !found {
		return fmt.Errorf("--resume: %s has no checkpoint: leave --resume out to begin", r.opt.Output)
	}
	if updates, err := checkpoints(r.opt.Output); err != nil {
		return err
	} else if len(updates) > 0 && !r.opt.Resume {
		return fmt.Errorf("%s has checkpoints, the last of update %d: give --resume to go on from there, or choose another --output", r.opt.Output, updates[0])
	}
	return nil
}
