package sim

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/cli"
)

// TestCompare_SaysThatAStoppedRunIsLost.
func TestCompare_SaysThatAStoppedRunIsLost(t *testing.T) {
	run := shortRun(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var errs bytes.Buffer
	f := compareFlags{A: "pid", B: "feedforward", Scenarios: run.Scenarios, N: 2, Device: "emu", Quiet: true,
		JSON: filepath.Join(t.TempDir(), "compared.json")}
	require.ErrorIs(t, f.run(ctx, io.Discard, &errs), context.Canceled)
	require.Contains(t, errs.String(), "0 loops of pid had run, and nothing is kept: to go on after a stop, run each algorithm with spark-sim run --json FILE")
	require.NoFileExists(t, f.JSON)
}

// TestHelp_NamesDefaults of all flags that have one.
func TestHelp_NamesDefaults(t *testing.T) {
	for _, command := range reflect.VisibleFields(reflect.TypeFor[flags]()) {
		for _, f := range reflect.VisibleFields(command.Type) {
			value, ok := f.Tag.Lookup("default")
			if !ok {
				continue
			}
			require.Contains(t, f.Tag.Get("help"), "Default: "+value+".", "%s of %s", f.Name, command.Name)
		}
	}
	var out, errs bytes.Buffer
	require.Equal(t, cli.Done, Main("spark-sim", []string{"compare", "--help"}, &out, &errs))
	require.Contains(t, strings.Join(strings.Fields(out.String()), " "), "without openpilot's maneuvers")
}
