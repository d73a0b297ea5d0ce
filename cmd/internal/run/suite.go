package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/backendtest"
	"github.com/spark-compile/spark-compile/ir"
)

// suite runs ONNX test cases and prints each failure, the skipped cases by reason, and the counts.
func (f *flags) suite(ctx context.Context, w, stderr io.Writer) error {
	if f.Model != "" {
		return errors.New("--suite takes directories, not a model")
	}
	opt := backendtest.Options{Precision: f.Precision, Target: f.Target, Tolerance: f.tolerance(), Open: func(ctx context.Context) (hal.Device, error) {
		d, _, err := detect.Open(ctx, detect.Options{Name: f.Device, Called: "--device", Check: f.Check})
		return d, err
	}}
	results, err := backendtest.Run(ctx, f.Suite, opt)
	if err != nil {
		return err
	}
	reasons := map[string]int{}
	for _, r := range results {
		for _, text := range r.Warnings {
			fmt.Fprintf(stderr, "warning: %s\n", text)
		}
		switch r.Outcome {
		case backendtest.Failed:
			fmt.Fprintf(w, "FAILED %s: %v\n", r.Name, r.Err)
		case backendtest.Skipped:
			reasons[r.Reason()]++
		}
	}
	most := func(a, b string) int { return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b)) }
	for _, n := range slices.SortedFunc(maps.Keys(reasons), most) {
		fmt.Fprintf(w, "skipped %4d  %s\n", reasons[n], n)
	}
	count := backendtest.CountOutcomes(results)
	bound := 0
	for _, r := range results {
		if r.Outcome == backendtest.Passed && r.Bound {
			bound++
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped; inputs that decide shapes are compiled in as constants: in %d of those passed\n", count[backendtest.Passed], count[backendtest.Failed], count[backendtest.Skipped], bound)
	if count[backendtest.Failed] > 0 {
		return errCases
	}
	return nil
}

// tolerance is the default for an element type, overridden by the flags.
func (f *flags) tolerance() func(ir.DType) backendtest.Tolerance {
	return func(d ir.DType) backendtest.Tolerance {
		t := backendtest.For(d)
		if f.Rtol != nil {
			t.Rel = *f.Rtol
		}
		if f.Atol != nil {
			t.Abs = *f.Atol
		}
		return t
	}
}
