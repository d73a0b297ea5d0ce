package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/nodecases"
	"github.com/spark-compile/spark-compile/internal/suite"
	"github.com/spark-compile/spark-compile/ir"
)

// errCases says that cases failed: exit code 1.
var errCases = fmt.Errorf("%w: cases failed", errMiss)

// suite runs ONNX test cases and prints a line a failure, the refusals by reason, and the count.
func (f *flags) suite(ctx context.Context, w io.Writer) error {
	if f.Model != "" {
		return errors.New("--suite takes directories and no model")
	}
	opt := suite.Options{Precision: f.Precision, Target: f.Target, Tolerance: f.tolerance(), Open: func(ctx context.Context) (hal.Device, error) {
		d, _, err := detect.Open(ctx, detect.Options{Name: f.Device, Check: f.Check})
		return d, err
	}}
	results, err := suite.Run(ctx, f.Suite, opt)
	if err != nil {
		return err
	}
	reasons := map[string]int{}
	for _, r := range results {
		switch r.Outcome {
		case suite.Failed:
			fmt.Fprintf(w, "FAILED %s: %v\n", r.Name, r.Err)
		case suite.Skipped:
			reasons[r.Reason()]++
		}
	}
	var names []string
	for n := range reasons {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool {
		if reasons[names[i]] != reasons[names[j]] {
			return reasons[names[i]] > reasons[names[j]]
		}
		return names[i] < names[j]
	})
	for _, n := range names {
		fmt.Fprintf(w, "skipped %4d  %s\n", reasons[n], n)
	}
	passed, failed, skipped := suite.Count(results)
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 {
		return errCases
	}
	return nil
}

// tolerance is that of the flags where they are given, else that of the element type.
func (f *flags) tolerance() func(ir.DType) nodecases.Tolerance {
	return func(d ir.DType) nodecases.Tolerance {
		t := nodecases.For(d)
		if f.Rtol != nil {
			t.Rel = *f.Rtol
		}
		if f.Atol != nil {
			t.Abs = *f.Atol
		}
		return t
	}
}
