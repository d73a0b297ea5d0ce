package train

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/runtime"
)

// Prefixes of a step's inputs that are not the model's.
var (
	targetPrefix = dora.Target("")
	truthPrefix  = "truth:"
)

// teach computes what a teacher gives for samples, by name of its outputs and inner values.
type teach func(ctx context.Context, keys []string, inputs []map[string][]byte) ([]map[string][]float32, error)

// lesson is what the step is shown at once, and what it should say.
type lesson struct {
	samples []*dataset.Sample
	values  []map[string][]float32 // the teacher's; nil without one
	err     error
}

// prefetched is the number of lessons that are made while the step computes.
const prefetched = 2

// lessons gives samples of a set in their order, size at a time, with what the teacher says of them. The channel is closed at the end,
// or after a lesson with an error. Stop ends it and waits until nobody uses set and teacher any more, which may then be closed.
func (r *run) lessons(ctx context.Context, set dataset.Set, order []int, size int) (lessons <-chan lesson, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan lesson, prefetched)
	go func() {
		defer close(out)
		var l lesson
		give := func() bool {
			if l.err == nil && r.teach != nil && len(l.samples) > 0 {
				l.values, l.err = r.taught(ctx, l.samples)
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return false
			}
			ok := l.err == nil
			l = lesson{}
			return ok
		}
		for s, err := range dataset.Load(ctx, set, order, r.opt.Workers, prefetched*size) {
			if err != nil {
				l.err = err
				give()
				return
			}
			if l.samples = append(l.samples, s); len(l.samples) == size && !give() {
				return
			}
		}
		if len(l.samples) > 0 {
			give()
		}
	}()
	return out, func() {
		cancel()
		for range out {
		}
	}
}

func (r *run) taught(ctx context.Context, samples []*dataset.Sample) ([]map[string][]float32, error) {
	var keys []string
	var inputs []map[string][]byte
	for _, s := range samples {
		keys, inputs = append(keys, s.Key), append(inputs, s.Inputs)
	}
	return r.teach(ctx, keys, inputs)
}

// next waits for a lesson. It adds the time to r.waited.
func (r *run) next(ctx context.Context, from <-chan lesson) (lesson, error) {
	begun := time.Now()
	defer func() { r.waited += time.Since(begun) }()
	select {
	case l, ok := <-from:
		if !ok {
			return l, fmt.Errorf("%s: the samples ended early", r.opt.Data)
		}
		return l, l.err
	case <-ctx.Done():
		return lesson{}, ctx.Err()
	}
}

// set shows a micro-batch to the step, its samples concatenated.
func (r *run) set(l lesson) error {
	for _, name := range r.inputs {
		into := r.trainer.Session().Input(name)
		each := len(into) / len(l.samples)
		for i, s := range l.samples {
			data, err := r.value(l, i, name)
			if err == nil && len(data) != each {
				err = fmt.Errorf("%d bytes, the model takes %d", len(data), each)
			}
			if err != nil {
				return fmt.Errorf("%s: sample %s: %s: %w", r.opt.Data, s.Key, name, err)
			}
			copy(into[i*each:], data)
		}
	}
	return nil
}

// value is what a sample has for an input of the step.
func (r *run) value(l lesson, i int, name string) ([]byte, error) {
	s := l.samples[i]
	if output, ok := strings.CutPrefix(name, targetPrefix); ok {
		x, ok := l.values[i][output]
		if !ok {
			return nil, fmt.Errorf("the teacher has no value %q", output)
		}
		return runtime.Bytes(x), nil
	}
	if output, ok := strings.CutPrefix(name, truthPrefix); ok {
		x, ok := s.Truth[output]
		if !ok {
			return nil, fmt.Errorf("nothing was measured: leave the term out of --loss, or take data that has it")
		}
		return runtime.Bytes(x), nil
	}
	data, ok := s.Inputs[name]
	if !ok {
		return nil, fmt.Errorf("the data has no such input")
	}
	return data, nil
}

// part is micro-batch k of a lesson.
func (l lesson) part(k, size int) lesson {
	p := lesson{samples: l.samples[k*size : (k+1)*size]}
	if l.values != nil {
		p.values = l.values[k*size : (k+1)*size]
	}
	return p
}
