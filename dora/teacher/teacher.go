package teacher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options say how a teacher computes.
type Options struct {
	Precision string             // of internal/precision; fp16 by default
	Batch     int                // samples of a run; 8 by default. A run of fewer is filled up with its last one
	Values    []string           // inner values to return with the outputs, by their names in the file or as dora.Model.Inner has them
	Targets   []string           // of PTX; the default target if there is none
	Import    onnx.ImportOptions // shapes of one sample, where the file leaves them open; its Batch does not count

	// Calibrate are inputs that a precision which calibrates is fitted to, at least a batch of them; generated ones if there are none.
	Calibrate []map[string][]byte
	// MinCosine is the accuracy that a precision which calibrates keeps for every output; 0: what spark-compile does, 0.999;
	// below 0: none, every layer is quantised.
	MinCosine float64

	// CacheDir keeps what was computed, in at most CacheBytes, 4 GiB by default; "": nothing is kept.
	CacheDir   string
	CacheBytes int64

	Warn func(string) // what is worth knowing; nil: nobody wants to
}

// Stats is what a teacher has done.
type Stats struct {
	Inferences int     // samples that were computed, without what filled up batches
	Seconds    float64 // that computing them took
	Hits       int     // samples that came from the cache
	Damaged    int     // entries of the cache that were computed again, since their bytes had changed
}

// Rate is the number of inferences a second; 0 if there were none.
func (s Stats) Rate() float64 {
	if s.Seconds == 0 {
		return 0
	}
	return float64(s.Inferences) / s.Seconds
}

// Teacher is a compiled model on a device. Several goroutines may use it; it computes for one at a time.
type Teacher struct {
	Program *runtime.Program

	model   string // its path, for messages
	batch   int
	inputs  map[string]int // bytes of each, of a sample
	outputs []runtime.Port // of floats
	cache   *cache         // nil: none

	mu      sync.Mutex // of the session
	session *runtime.Session

	counts sync.Mutex // of stats
	stats  Stats
}

// Open compiles a model and loads it on a device.
func Open(ctx context.Context, file *onnx.Model, d hal.Device, opt Options) (*Teacher, error) {
	opt.defaults()
	r, err := compiled(ctx, file, &opt)
	if err != nil {
		return nil, fmt.Errorf("teacher: %w", err)
	}
	p := r.Program
	t := &Teacher{Program: p, model: file.Path, batch: opt.Batch, inputs: map[string]int{}}
	for _, q := range p.Outputs {
		if strings.HasPrefix(q.DType, "f") || q.DType == "bf16" {
			t.outputs = append(t.outputs, q)
		}
	}
	if len(t.outputs) == 0 {
		return nil, fmt.Errorf("teacher: %s has no output of floats", file.Path)
	}
	if opt.CacheDir != "" {
		if _, err := p.Files(); err != nil { // makes the identity
			return nil, err
		}
		on := d.Info() // kernels of one program may add in another order elsewhere
		t.cache = openCache(opt.CacheDir, opt.CacheBytes, fmt.Sprint(p.Identity, " ", on.Backend, " ", on.Target), opt.Warn)
	}
	if t.session, err = runtime.Open(ctx, p, d, runtime.ModelOptions{}); err != nil {
		return nil, errors.Join(err, t.cache.close())
	}
	for _, q := range p.Inputs {
		t.inputs[q.Name] = len(t.session.Input(q.Name)) / t.batch
	}
	return t, nil
}

// Close frees what the teacher runs with. What it has kept stays.
func (t *Teacher) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.session.Close(), t.cache.close())
}

// Stats is what the teacher has done so far. It does not wait for what is being computed.
func (t *Teacher) Stats() Stats {
	t.counts.Lock()
	defer t.counts.Unlock()
	return t.stats
}

func (t *Teacher) count(more Stats) {
	t.counts.Lock()
	defer t.counts.Unlock()
	t.stats.Inferences += more.Inferences
	t.stats.Seconds += more.Seconds
	t.stats.Hits += more.Hits
	t.stats.Damaged += more.Damaged
}

// Names are those of the values, the model's outputs of floats first.
func (t *Teacher) Names() []string {
	var out []string
	for _, q := range t.outputs {
		out = append(out, q.Name)
	}
	return out
}

// Values are the outputs and inner values, by name, of samples with the given inputs, each the bytes of an input's type and shape for one
// sample. Keys name the samples; they decide where the cache keeps them, not what is computed.
func (t *Teacher) Values(ctx context.Context, keys []string, inputs []map[string][]byte) ([]map[string][]float32, error) {
	if len(keys) != len(inputs) {
		return nil, fmt.Errorf("teacher: %d keys for %d samples", len(keys), len(inputs))
	}
	for i, in := range inputs {
		if err := t.check(in); err != nil {
			return nil, fmt.Errorf("teacher: %s: sample %s: %w", t.model, keys[i], err)
		}
	}
	ids := t.cache.ids(keys, inputs)
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]map[string][]float32, len(inputs))
	missing := t.kept(ids, out)
	for part := range slices.Chunk(missing, t.batch) {
		all, err := t.run(ctx, part, inputs)
		if err != nil {
			return nil, fmt.Errorf("teacher: %s: %w", t.model, err)
		}
		var made []entry
		for k, i := range part {
			out[i] = t.split(all[k])
			made = append(made, entry{ids[i], all[k]})
		}
		t.cache.put(made)
	}
	return out, nil
}

// kept takes what the cache has, and returns which samples it lacks.
func (t *Teacher) kept(ids []entryID, out []map[string][]float32) (missing []int) {
	t.cache.refresh()
	var s Stats
	for i := range out {
		data, damaged := t.cache.get(ids[i], t.numbers())
		if damaged {
			s.Damaged++
		}
		if data == nil {
			missing = append(missing, i)
			continue
		}
		out[i] = t.split(data)
		s.Hits++
	}
	t.count(s)
	return missing
}

// numbers is how many numbers a sample has.
func (t *Teacher) numbers() int {
	n := 0
	for _, q := range t.outputs {
		n += elements(q) / t.batch
	}
	return n
}

// split is one sample's values by name.
func (t *Teacher) split(all []float32) map[string][]float32 {
	out := map[string][]float32{}
	for _, q := range t.outputs {
		n := elements(q) / t.batch
		out[q.Name], all = all[:n:n], all[n:]
	}
	return out
}

func elements(q runtime.Port) int {
	n := 1
	for _, d := range q.Shape {
		n *= d
	}
	return n
}

// check says what is wrong with one sample's inputs.
func (t *Teacher) check(in map[string][]byte) error {
	for _, q := range t.Program.Inputs {
		data, ok := in[q.Name]
		want := t.inputs[q.Name]
		switch {
		case !ok:
			return fmt.Errorf("it has no input %q; it has %s", q.Name, strings.Join(slices.Sorted(maps.Keys(in)), ", "))
		case len(data) != want:
			return fmt.Errorf("input %q has %d bytes, want %d", q.Name, len(data), want)
		}
	}
	return nil
}

// run computes at most a batch of samples: the numbers of each, outputs concatenated.
func (t *Teacher) run(ctx context.Context, samples []int, inputs []map[string][]byte) ([][]float32, error) {
	if err := t.session.Wait(ctx); err != nil { // somebody else's context may have ended in a run
		return nil, err
	}
	for _, q := range t.Program.Inputs {
		to := make([]byte, 0, t.batch*len(inputs[samples[0]][q.Name]))
		for k := range t.batch {
			to = append(to, inputs[samples[min(k, len(samples)-1)]][q.Name]...)
		}
		if err := t.session.Set(q.Name, to); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	if err := t.session.Run(ctx); err != nil {
		return nil, err
	}
	t.count(Stats{Inferences: len(samples), Seconds: time.Since(begin).Seconds()})
	out := make([][]float32, len(samples))
	for _, q := range t.outputs {
		x, err := floats(q, t.session.Output(q.Name))
		if err != nil {
			return nil, err
		}
		n := len(x) / t.batch
		for k := range out {
			out[k] = append(out[k], x[k*n:(k+1)*n]...)
		}
	}
	return out, nil
}

// floats are the numbers of an output in f32.
func floats(q runtime.Port, data []byte) ([]float32, error) {
	if q.DType == "f32" {
		return runtime.View[float32](data), nil
	}
	wide, err := runtime.Float64s(q.DType, data)
	if err != nil {
		return nil, fmt.Errorf("output %q: %w", q.Name, err)
	}
	out := make([]float32, len(wide))
	for i, x := range wide {
		out[i] = float32(x)
	}
	return out, nil
}
