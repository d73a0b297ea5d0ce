package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/dora/collectives"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/runtime"
)

// together is a run on several ranks, each of which takes its part of the inputs. Nil: this process takes them all.
type together struct {
	group collectives.Group
	begun time.Time
	total int
}

// part is what a rank did.
type part struct {
	Inputs  int
	Seconds float64
	Missed  bool
}

// join joins the ranks that mpirun, torchrun or Slurm has started, and takes every N-th case of N ranks.
func (f *flags) join(ctx context.Context, p *runtime.Program, cases []testCase, stderr io.Writer) (*together, []testCase, error) {
	if !f.Ranks {
		return nil, cases, nil
	}
	if cases[0].name == "" {
		return nil, nil, errors.New("--ranks splits a directory of inputs: give one as --input")
	}
	g, err := collectives.Join(ctx, collectives.Options{Message: func(text string) { fmt.Fprintln(stderr, "spark-run:", text) }})
	if err != nil {
		return nil, nil, err
	}
	what := map[string]string{"model": p.Model, "precision": p.Precision, "file": p.Provenance.SHA256, "number of inputs": fmt.Sprint(len(cases))}
	if err := collectives.Agree(ctx, g, what); err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	var own []testCase
	for i := g.Rank(); i < len(cases); i += g.Size() {
		own = append(own, cases[i])
	}
	return &together{g, time.Now(), len(cases)}, own, nil
}

// out is where this rank prints: the first one alone does.
func (t *together) out(w io.Writer) io.Writer {
	if t != nil && t.group.Rank() != 0 {
		return io.Discard
	}
	return w
}

// end waits for the other ranks, and lets the first one say how fast all were. An error of this rank ends the others.
func (t *together) end(ctx context.Context, w io.Writer, inputs int, failed error) error {
	if t == nil {
		return failed
	}
	if failed != nil && !errors.Is(failed, errMiss) {
		t.group.Abort(failed)
		return errors.Join(failed, t.group.Close())
	}
	data, err := json.Marshal(part{inputs, time.Since(t.begun).Seconds(), failed != nil})
	if err != nil {
		return err
	}
	all, err := t.group.Gather(ctx, data)
	if err != nil {
		return errors.Join(err, t.group.Close())
	}
	var missed []string
	slowest := 0.0
	for rank, data := range all {
		var p part
		if err := json.Unmarshal(data, &p); err != nil {
			return err
		}
		slowest = max(slowest, p.Seconds)
		if p.Missed {
			missed = append(missed, fmt.Sprint(rank))
		}
	}
	if t.group.Rank() == 0 {
		fmt.Fprintf(w, "%s: %s in %.3g s, %.4g a second\n", collectives.Describe(t.group), console.Count(t.total, "input"), slowest, float64(t.total)/slowest)
		if len(missed) > 0 {
			fmt.Fprintf(w, "outputs differ from the expected ones on rank %s\n", strings.Join(missed, ", "))
		}
	}
	if len(missed) > 0 && failed == nil {
		failed = errMiss
	}
	return errors.Join(failed, t.group.Close())
}
