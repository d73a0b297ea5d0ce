package sim

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommands_EndAnImportOnAnInterrupt, which cli.Main ends with its exit code.
func TestCommands_EndAnImportOnAnInterrupt(t *testing.T) {
	drive := filepath.Join(t.TempDir(), "drive.csv")
	text := "t,vEgo,roll,targetLateralAcceleration\n0,20,0,0\n1,20,0,0\n"
	require.NoError(t, os.WriteFile(drive, []byte(text), 0o644))
	n := 1
	for name, run := range map[string]func(ctx context.Context) error{
		"list": func(ctx context.Context) error { return (&listFlags{File: drive}).run(ctx, io.Discard, io.Discard) },
		"show": func(ctx context.Context) error {
			return (&showFlags{Scenario: drive, N: 1}).run(ctx, io.Discard, io.Discard)
		},
		"run": func(ctx context.Context) error {
			_, err := (&runFlags{Scenarios: []string{drive}, N: &n}).plan(ctx, func(string) {})
			return err
		},
	} {
		require.NoError(t, run(t.Context()), name)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, run(ctx), context.Canceled, name)
	}
}

// TestReadReport_CleansPaths of reports that were written before paths were cleaned.
func TestReadReport_CleansPaths(t *testing.T) {
	f := shortRun(t, t.TempDir())
	require.NoError(t, f.run(t.Context(), io.Discard, io.Discard))
	raw, err := os.ReadFile(f.JSON)
	require.NoError(t, err)
	raw = bytes.Replace(raw, []byte(`"seed"`), []byte(`"route": "./drive/", "seed"`), 1)
	raw = bytes.Replace(raw, []byte(`"pid"`), []byte(`"./a.onnx+b//c.onnx:fp16"`), 1)
	require.NoError(t, os.WriteFile(f.JSON, raw, 0o644))
	r, err := readReport(f.JSON)
	require.NoError(t, err)
	require.Equal(t, []string{"drive", "a.onnx+b/c.onnx:fp16"}, []string{r.Route, r.Algorithm})
}
