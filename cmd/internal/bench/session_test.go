package bench

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestAnInterruptEndsTheComparison with ONNX Runtime, and is not told as a fault of that.
func TestAnInterruptEndsTheComparison(t *testing.T) {
	dir := t.TempDir()
	m, err := driving.Made("policy", driving.Tiny)
	require.NoError(t, err)
	model, python, begun := filepath.Join(dir, "policy.onnx"), filepath.Join(dir, "python"), filepath.Join(dir, "python.begun")
	require.NoError(t, os.WriteFile(model, m.ONNX, 0o600))
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\n>\"$0.begun\"\nexec sleep 1000\n"), 0o755))
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for _, err := os.Stat(begun); err != nil && ctx.Err() == nil; _, err = os.Stat(begun) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	s := &session{err: io.Discard, device: d, target: "sm_121", python: python, options: bench.Options{Runs: 1}, report: &bench.Report{}}
	require.ErrorIs(t, s.model(ctx, model, []string{"fp32"}), context.Canceled)
}
