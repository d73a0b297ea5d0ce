package suite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFoundCases_PassInFilePrecision runs models that were wrong once, where they lie beside the repository. Cases with an
// adapter expect what the merged model gives.
func TestFoundCases_PassInFilePrecision(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "found", "*", "*", "model.onnx"))
	require.NoError(t, err)
	var cases []string
	for _, path := range dirs {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "adapter_config.json")); err == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "test_data_set_0")); err == nil {
			cases = append(cases, dir)
		}
	}
	if len(cases) == 0 {
		t.Skip("no models that were wrong once in ../shared/found")
	}
	results, err := Run(context.Background(), cases, Options{Open: checked, Workers: 1})
	require.NoError(t, err)
	for _, r := range results {
		if r.Outcome == Failed {
			t.Errorf("%s: %v", r.Name, r.Err)
		}
	}
}
