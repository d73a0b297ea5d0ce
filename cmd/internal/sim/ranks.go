package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/internal/cli"
)

// job is the processes that share a run: ranks that mpirun, torchrun or Slurm has started, or this one alone.
type job struct {
	group collectives.Group // nil: alone
}

// join joins the ranks.
func (f *runFlags) join(ctx context.Context, stderr io.Writer) (*job, error) {
	if !f.Ranks {
		return &job{}, nil
	}
	g, err := collectives.Join(ctx, collectives.Options{Message: func(text string) { fmt.Fprintln(stderr, "spark-sim:", text) }})
	return &job{g}, err
}

func (j *job) rank() int {
	if j.group == nil {
		return 0
	}
	return j.group.Rank()
}

func (j *job) size() int {
	if j.group == nil {
		return 1
	}
	return j.group.Size()
}

// end leaves the job. An error that is no interrupt, which all ranks see, ends the others.
func (j *job) end(err error) error {
	if j.group == nil {
		return err
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, cli.ErrInterrupted) {
		j.group.Abort(err)
	}
	return errors.Join(err, j.group.Close())
}

// same reports flags of ranks that differ, but for what a rank may have of its own: where it runs, and what it writes.
func (j *job) same(ctx context.Context, f *runFlags) error {
	if j.group == nil {
		return nil
	}
	given := map[string]string{}
	for _, x := range reflect.VisibleFields(reflect.TypeOf(*f)) {
		own := slices.Contains([]string{"Device", "Ranks", "Times", "Quiet"}, x.Name)
		if _, writes := x.Tag.Lookup("writes"); x.Anonymous || !x.IsExported() || own || writes {
			continue
		}
		value := reflect.ValueOf(*f).FieldByIndex(x.Index)
		if value.IsZero() {
			continue
		}
		given[strings.ToLower(x.Name)] = fmt.Sprint(reflect.Indirect(value))
	}
	return collectives.Agree(ctx, j.group, given)
}

// start is what the first rank tells the others of a run.
type start struct {
	Report      *report               `json:"report"` // without metrics
	Ended       int                   `json:"ended"`  // loops that have some
	Checkpoints []scenario.Checkpoint `json:"checkpoints,omitempty"`
}

// others adds to the checkpoints that a run left those that it began with and did not come to.
func (s *start) others(left []scenario.Checkpoint) []scenario.Checkpoint {
	for _, c := range s.Checkpoints {
		if c.First >= len(s.Report.Metrics) && !slices.ContainsFunc(left, func(l scenario.Checkpoint) bool {
			return c.First < l.First+l.Loops && l.First < c.First+c.Loops
		}) {
			left = append(left, c)
		}
	}
	return left
}

// share gives all ranks what the first one has planned.
func (j *job) share(ctx context.Context, s *start) (*start, error) {
	if j.group == nil {
		return s, nil
	}
	var data []byte
	if j.rank() == 0 {
		told := *s
		r := *s.Report
		r.Metrics, told.Report = nil, &r
		var err error
		if data, err = json.Marshal(told); err != nil {
			return nil, err
		}
	}
	all, err := j.group.Gather(ctx, data)
	if err != nil || j.rank() == 0 {
		return s, err
	}
	s = &start{}
	return s, json.Unmarshal(all[0], s)
}

// agree reports in what ranks differ that would give other bits.
func (j *job) agree(ctx context.Context, r *report, a scenario.Algorithm) error {
	if j.group == nil {
		return nil
	}
	own, err := digest(a)
	if err != nil {
		return err
	}
	route, err := r.pictures(ctx)
	if err != nil {
		return err
	}
	return collectives.Agree(ctx, j.group, map[string]string{"version of spark-sim": cli.Version(), "device": r.Device,
		"SHA-256 of the file of algorithm " + r.Algorithm: own, "SHA-256 of the recorded route": route})
}

// part is what a rank did in a round.
type part struct {
	Metrics    [][]float64          `json:"metrics,omitempty"` // of its loops of the round, which ended
	Stopped    bool                 `json:"stopped,omitzero"`  // it was interrupted
	Checkpoint *scenario.Checkpoint `json:"checkpoint,omitempty"`
}

// exchange gives all ranks what each did in a round.
func (j *job) exchange(ctx context.Context, p part) ([]part, error) {
	if j.group == nil {
		return []part{p}, nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	all, err := j.group.Gather(context.WithoutCancel(ctx), data) // ranks stop after a round that all of them know
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(all))
	for rank, data := range all {
		if err := json.Unmarshal(data, &parts[rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return parts, nil
}

// watched is a context that also ends when another rank does.
func (j *job) watched(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if g, ok := j.group.(interface {
		Failed() (<-chan struct{}, func() error)
	}); ok {
		failed, _ := g.Failed()
		go func() {
			select {
			case <-failed:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}
