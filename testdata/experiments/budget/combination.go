package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/runtime"
)

// combination is what a person could ask the compiler for.
type combination struct {
	*network
	precision string
	fitted    int // calibration inputs
	budget    float64
	smaller   bool // --prefer size, with which more layers go down
	number    uint64
}

var (
	precisions = []string{"fp8", "fp6", "nvfp4"}
	budgets    = []float64{0.99, 0.999, 0.9995}
)

// combinations are six of a network: every precision with two budgets and two numbers of inputs, one for speed and one for size. Networks
// begin at different places, so that all pairs occur.
func combinations(at int, n *network) (out []*combination) {
	for k := range 2 * len(precisions) {
		round := k / len(precisions)
		out = append(out, &combination{n, precisions[k%3], n.counts[(k+at)%len(n.counts)], budgets[(k+round+at)%3], (round+at)%2 == 1, uint64(at<<8 + k)})
	}
	return out
}

func (c *combination) String() string {
	return fmt.Sprintf("%s %s %d inputs %g prefer %s", c.name, c.precision, c.fitted, c.budget, c.prefer())
}

func (c *combination) prefer() string {
	if c.smaller {
		return "size"
	}
	return "speed"
}

// verdict is what came of a combination.
type verdict string

const (
	met     verdict = "met"
	missing verdict = "missed"
	half    verdict = "kept fp16"
	refused verdict = "refused"
)

// row is a combination with its measurements.
type row struct {
	*combination
	verdict  verdict
	promised calibrate.Quality // by the compiler, of the worst slice and set
	unseen   calibrate.Quality // on the rest of the pool, of the worst slice
	judged   int               // inputs of it
	wide     int               // layers of 16 bits
	layers   int
}

func (r *row) String() string {
	head := fmt.Sprintf("%s,%s,%d,%g,%s", r.name, r.precision, r.fitted, r.budget, r.prefer())
	if r.verdict == refused {
		return head + ",,,,,,,,refused"
	}
	return fmt.Sprintf("%s,%d,%d,%.6f,%s,%d,%.6f,%s,%s", head, r.wide, r.layers, r.promised.Cosine, r.promised.Set, r.judged, r.unseen.Cosine, r.unseen.Name, r.verdict)
}

// split parts the pool into inputs to calibrate with and the rest, otherwise in each combination.
func (c *combination) split(seed uint64) (fitted, unseen []int) {
	order := rand.New(rand.NewPCG(seed, c.number)).Perm(len(c.files))
	return order[:c.fitted], order[c.fitted:]
}

// judge compiles a combination with some of the pool and runs it on the rest.
func (c *combination) judge(ctx context.Context, seed uint64) (*row, error) {
	fitted, unseen := c.split(seed)
	opt := compile.Options{Precision: c.precision, Targets: []string{"sm_121"}, MinCosine: c.budget, Smaller: c.smaller}
	for _, i := range fitted {
		opt.Calibrate = append(opt.Calibrate, c.files[i])
	}
	r := &row{combination: c, judged: len(unseen)}
	result, err := compile.Compile(ctx, c.model, opt)
	if err != nil && strings.Contains(err.Error(), "min-cosine") {
		r.verdict = refused
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := c.evaluate(ctx, result.Source); err != nil {
		return nil, err
	}
	all, err := c.run(ctx, result.Program, unseen)
	if err != nil {
		return nil, err
	}
	r.promised, r.unseen = lowest(result.Accuracy.Slices), lowest(all)
	r.layers = len(result.Accuracy.Layers)
	for _, l := range result.Accuracy.Layers {
		if l.Precision == "fp16" {
			r.wide++
		}
	}
	switch {
	case result.Accuracy.Fallback != nil || r.wide == r.layers:
		r.verdict = half
	case r.unseen.Cosine < c.budget-allowed:
		r.verdict = missing
	default:
		r.verdict = met
	}
	return r, nil
}

// run measures a program on inputs of the pool, by the definitions of the compiler's report.
func (c *combination) run(ctx context.Context, p *runtime.Program, which []int) (_ []calibrate.Quality, err error) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	got, want := map[string][][]float64{}, map[string][][]float64{}
	for _, i := range which {
		for name, a := range c.inputs[i] {
			if err := s.Set(name, a.Tensor().Dense()); err != nil {
				return nil, err
			}
		}
		if err := s.Run(ctx); err != nil {
			return nil, err
		}
		out, err := s.Float64s()
		if err != nil {
			return nil, err
		}
		for name, x := range out {
			got[name], want[name] = append(got[name], x), append(want[name], c.exact[name][i])
		}
	}
	return calibrate.MeasureAll(calibrate.SlicesOf(p), got, want)
}

// lowest is the slice of the lowest cosine.
func lowest(all []calibrate.Quality) calibrate.Quality {
	worst := all[0]
	for _, q := range all {
		if q.Cosine < worst.Cosine {
			worst = q
		}
	}
	return worst
}
