package regionrand

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/internal/roundoff"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

var (
	first = flag.Uint64("first", 0, "seed of the first random region")
	stop  = flag.Bool("stop", false, "end at the first fault, without shrinking it")
	count = flag.Int("count", 0, "number of random regions; 0: as many as the tests want")
)

// context is what a case is lowered for.
func (c *Case) context() (*kernel.Context, error) {
	t, err := target.Lookup(c.Target)
	if err != nil {
		return nil, err
	}
	as := *t
	if c.SMs > 0 {
		as.SMs = c.SMs
	}
	ctx := &kernel.Context{Target: &as}
	if c.Align > 0 {
		ctx.Align = func(v *ir.Value) int {
			if v.IsConst() {
				return 256
			}
			return c.Align
		}
	}
	return ctx, nil
}

// lower is the way of the driver: the region's family, then those of its parts, then loops.
func (c *Case) lower() (specs []*kernel.Spec, ctx *kernel.Context, fallback, err error) {
	if ctx, err = c.context(); err != nil {
		return nil, nil, nil, err
	}
	n := c.Region()
	if n.IsFamily(ir.FamilyFused) && !c.Loop {
		var spec *kernel.Spec
		if spec, fallback = families.New(nil).Lower(n, ctx); spec != nil {
			return []*kernel.Spec{spec}, ctx, nil, nil
		}
	}
	for _, part := range n.Parts() {
		more, why, err := c.lowerPart(part, ctx)
		if err != nil {
			return nil, ctx, why, err
		}
		if fallback == nil {
			fallback = why
		}
		specs = append(specs, more...)
	}
	return specs, ctx, fallback, nil
}

func (c *Case) lowerPart(n *ir.Node, ctx *kernel.Context) (specs []*kernel.Spec, fallback, err error) {
	var spec *kernel.Spec
	if !c.Loop && !n.IsFamily(ir.FamilyLoop) {
		spec, fallback = families.New(nil).Lower(n, ctx)
	}
	if spec != nil {
		return []*kernel.Spec{spec}, nil, nil
	}
	for _, part := range n.BySize() {
		spec, err := loop.Family.Lower(part, ctx)
		if err != nil {
			return nil, fallback, err
		}
		specs = append(specs, spec)
	}
	return specs, fallback, nil
}

// trial is a test that ends alone.
type trial struct {
	testing.TB
	failed bool
	log    strings.Builder
}

func (t *trial) Helper()                      {}
func (t *trial) Logf(string, ...any)          {}
func (t *trial) Errorf(f string, args ...any) { t.failed = true; fmt.Fprintf(&t.log, f, args...) }
func (t *trial) FailNow()                     { t.failed = true; runtime.Goexit() }

// result is what became of a case.
type result struct {
	fault    string // "": none
	schedule string
	fallback error
	refused  error
	exact    int // elements of which the range holds one number
	elements int
}

var errTarget = []string{"has no conversion to", "codes of"} // what a target lacks; no fault

// run lowers a case, runs its kernel on the CPU device with all checks, twice, and holds every element to its range.
func (c *Case) run(t testing.TB) (r result) {
	done := make(chan struct{})
	tr := &trial{TB: t}
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				buf := make([]byte, 4<<10)
				r.fault = fmt.Sprintf("panic: %v\n%s", p, buf[:runtime.Stack(buf, false)])
			}
		}()
		specs, ctx, fallback, err := c.lower()
		r.fallback = fallback
		if err != nil {
			if r.refused = err; !slices.ContainsFunc(errTarget, func(s string) bool { return strings.Contains(err.Error(), s) }) {
				r.fault = err.Error()
			}
			return
		}
		var schedules []string
		for _, spec := range specs {
			schedules = append(schedules, spec.Family+" "+spec.Stem+" "+spec.Schedule)
		}
		r.schedule = strings.Join(schedules, ", ")
		data := Fill(c.Graph, 1)
		n := c.Region()
		in := make([]roundoff.Range, len(n.Inputs))
		for i, v := range n.Inputs {
			x := data[v]
			if v.IsConst() {
				x = v.Const
			}
			in[i] = roundoff.Exactly(x.Array())
		}
		want, err := roundoff.Model{}.Node(n, in)
		if err != nil {
			r.fault = err.Error()
			return
		}
		got := map[*ir.Value]*ir.Tensor{}
		for _, spec := range specs {
			maps.Copy(got, kerneltest.Run(tr, spec, ctx.Target, data))
			maps.Copy(data, got) // another part of a chain reads it
		}
		for k, v := range n.Outputs {
			r.compare(fmt.Sprintf("output %d (%v) of %s", k, v.Type, r.schedule), got[v].Array(), want[k])
		}
	}()
	<-done
	if tr.failed && r.fault == "" {
		r.fault = tr.log.String()
	}
	return r
}

func (r *result) compare(what string, got *ir.Array, want roundoff.Range) {
	lo, hi, xs := want.Lo.Floats(), want.Hi.Floats(), got.Floats()
	r.elements += len(xs)
	for i, x := range xs {
		if lo[i] == hi[i] {
			r.exact++
		}
		if !(lo[i] <= x && x <= hi[i]) && !(math.IsNaN(x) && math.IsNaN(lo[i]+hi[i])) && r.fault == "" {
			r.fault = fmt.Sprintf("%s: element %d is %v, rounding allows [%v, %v]", what, i, x, lo[i], hi[i])
		}
	}
}

// kind distinguishes faults that have different causes.
func kind(fault string) string {
	word, _, _ := strings.Cut(fault, " ")
	return word
}

// text is a case as the corpus has it: what to compile for in the graph's name, and constants in full.
func (c *Case) text() string {
	g := c.Graph.Clone()
	g.Name = fmt.Sprintf("%s %d %d %v", c.Target, c.SMs, c.Align, c.Loop)
	var b strings.Builder
	if err := g.Print(&b, ir.PrintOptions{Full: true}); err != nil {
		return err.Error()
	}
	return b.String()
}

func parse(text string) (*Case, error) {
	g, err := ir.Parse(text)
	if err != nil {
		return nil, err
	}
	c := &Case{Graph: g}
	if _, err := fmt.Sscanf(g.Name, "%s %d %d %t", &c.Target, &c.SMs, &c.Align, &c.Loop); err != nil {
		return nil, errors.New("the graph's name is no target, SMs, alignment and whether it is a loop")
	}
	return c, nil
}

// TestRandomRegions holds kernels of random regions to what rounding allows, element by element.
func TestRandomRegions(t *testing.T) {
	n := 1000
	switch {
	case *count > 0:
		n = *count
	case fulltest.All():
		n = 20000
	case !fulltest.Some():
		n = 250
	}
	families, fallbacks, refused, faults := map[string]int{}, map[string]int{}, map[string]int{}, 0
	var rejected, elements, exact int
	for seed := *first; seed < *first+uint64(n); seed++ {
		c, err := Draw(seed)
		if err != nil {
			rejected++
			refused[err.Error()]++
			continue
		}
		r := c.run(t)
		elements, exact = elements+r.elements, exact+r.exact
		family, _, _ := strings.Cut(r.schedule, " ")
		families[c.Region().Region.Family+" → "+family]++
		for _, kind := range []string{"splitk", "e4m3", "e2m1", "e3m2", "bf16", "attention_", "attention_matmul", "attentiongrad"} {
			if strings.Contains(r.schedule, kind) {
				families[kind]++
			}
		}
		if n := c.Region(); len(n.Region.Results) > 1 && n.IsFamily(ir.FamilyContraction) {
			families["several results"]++
		}
		if n := c.Region(); n.IsFamily(ir.FamilyContraction) && len(n.BySize()) > 1 {
			families["sums of rows"]++
		}
		if parts := c.Region().Parts(); len(parts) == 3 && parts[1].IsFamily(ir.FamilyWindow) {
			families["inverted residuals"]++
			if r.fallback == nil {
				families["inverted residuals in one kernel"]++
			}
		}
		if parts := c.Region().Parts(); len(parts) > 1 && parts[len(parts)-2].IsFamily(ir.FamilyContraction) {
			families[fmt.Sprintf("products behind products, %d regions", len(parts))]++
			if r.fallback == nil {
				families["products behind products in one kernel"]++
			}
		}
		if parts := c.Region().Parts(); r.fallback == nil && len(parts) > 1 && len(parts[0].Outputs)+len(parts[len(parts)-2].Outputs) > 2 && parts[len(parts)-1].IsFamily(ir.FamilyContraction) {
			families[fmt.Sprintf("blocks of a %s in one kernel, %d regions", parts[len(parts)-2].Region.Family, len(parts))]++
		}
		if r.fallback != nil {
			fallbacks[r.fallback.Error()]++
		}
		if r.fault == "" {
			continue
		}
		if faults++; *stop {
			t.Fatalf("seed %d, region %d: %s", seed, seed-*first+1, r.fault)
		}
		small := c.Shrink(500, func(d *Case) bool { return kind(d.run(t).fault) == kind(r.fault) })
		t.Errorf("seed %d: %s\nshrunk, to be put into a file of testdata/corpus: %s\n%s", seed, r.fault, small.run(t).fault, small.text())
		if faults == 5 {
			break
		}
	}
	t.Logf("%d regions, %d contradict themselves; %v; %d elements, %.0f %% with one number in their range", n, rejected, families, elements, 100*float64(exact)/float64(max(1, elements)))
	for _, m := range []map[string]int{fallbacks, refused} {
		for reason, k := range m {
			t.Logf("%4d %s", k, reason)
		}
	}
	require.LessOrEqual(t, 20*rejected, n)
}

// TestCorpus runs what was once wrong.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.ir")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			c, err := parse(string(text))
			require.NoError(t, err)
			require.Empty(t, c.run(t).fault)
		})
	}
}

// TestTapesMakeTheSameRegion: of a region's tape, and of its text.
func TestTapesMakeTheSameRegion(t *testing.T) {
	for seed := range uint64(50) {
		c, err := Draw(seed)
		if err != nil {
			continue
		}
		again, err := Replay(c.Tape)
		require.NoError(t, err)
		require.Equal(t, c.text(), again.text())
		read, err := parse(c.text())
		require.NoError(t, err)
		require.Equal(t, c.text(), read.text())
	}
}
