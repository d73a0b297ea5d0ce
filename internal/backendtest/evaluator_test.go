package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// nodeCases is $NODECASES if set, a folder of test-case directories; else the cases of the onnx package.
func nodeCases(t *testing.T) string {
	if dir := os.Getenv("NODECASES"); dir != "" {
		return dir
	}
	return written(t, "nodecases")
}

func written(t *testing.T, kind string) string {
	t.Helper()
	dir, err := Written("../..", kind)
	if errors.Is(err, ErrNoPython) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// evaluate runs a case; an error that is an *onnx.Error with Unsupported set is a refusal.
func evaluate(dir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	c, err := Load(dir)
	if err != nil {
		return err
	}
	for _, set := range c.Sets {
		g, err := c.Import(set)
		if err != nil {
			return err
		}
		if err := g.Verify(); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		inputs := map[string]*ir.Array{}
		for name, v := range c.Inputs(set) {
			inputs[name] = v.Array()
		}
		outs, err := ir.Evaluate(context.Background(), g, inputs, ir.EvalOptions{Round: true})
		if err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
		for i, o := range c.Model.Proto.Graph.Output {
			want := set.Outputs[i]
			if want == nil {
				return fmt.Errorf("output %q has no tensor", o.GetName())
			}
			if err := Compare(Unpadded(outs[o.GetName()].Tensor(), want), want, For(want.DType)); err != nil {
				return fmt.Errorf("output %q: %w", o.GetName(), err)
			}
		}
	}
	return nil
}

// TestNodeCases imports every node case of the onnx package and evaluates it: none may give a wrong answer or crash.
func TestNodeCases(t *testing.T) {
	dirs, err := List(nodeCases(t))
	if err != nil {
		t.Fatal(err)
	}
	passed, failed := 0, 0
	refusals := map[string][]string{}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if only := os.Getenv("NODECASE"); only != "" && !strings.Contains(name, only) {
			continue
		}
		if reason := Disputed[name]; reason != "" {
			if err := evaluate(dir); err == nil {
				t.Errorf("%s passes: it is not disputed (%s)", name, reason)
			}
			refusals[reason] = append(refusals[reason], name)
			continue
		}
		err := evaluate(dir)
		var e *onnx.Error
		switch {
		case err == nil:
			passed++
		case errors.As(err, &e) && e.Unsupported:
			refusals[e.Class()] = append(refusals[e.Class()], name)
		default:
			failed++
			t.Errorf("%s: %v", name, err)
		}
	}
	skipped := 0
	var reasons []string
	for r, names := range refusals {
		skipped += len(names)
		reasons = append(reasons, fmt.Sprintf("%4d %s (%s)", len(names), r, names[0]))
	}
	sort.Strings(reasons)
	t.Logf("refused:\n%s", strings.Join(reasons, "\n"))
	t.Logf("%d passed, %d failed, %d skipped", passed, failed, skipped)
	if os.Getenv("NODECASE")+os.Getenv("NODECASES") == "" && passed < 1782 {
		t.Errorf("%d cases pass, want at least 1782", passed)
	}
}

// TestLightModels evaluates well-known networks with constant weights; all nine of them only if SPARK_FULL is set.
func TestLightModels(t *testing.T) {
	if testing.Short() {
		t.Skip("half a GMAC in float64")
	}
	dir := written(t, "light")
	names := LightModels()
	if !fulltest.Runs(t.Name()) {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if err := evaluate(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		})
	}
}
