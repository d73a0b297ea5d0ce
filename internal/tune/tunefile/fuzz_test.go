package tunefile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

func TestRead_FilesThatAskForMemory(t *testing.T) {
	defer memory.Limit(1 << 20)()
	path := filepath.Join(t.TempDir(), "t.json")
	for name, c := range map[string]struct{ text, want string }{
		"list":      {`{"format":1,"kernels":[` + strings.Repeat("{},", 9999) + `{}]}`, "JSON of 30024 bytes needs 9.8"},
		"depth":     {`{"format":1,"kernels":` + strings.Repeat(`[`, 1000), "not a tuning file"},
		"range":     {`{"format":1,"target":"sm_121","kernels":[{"us":1e999}]}`, "number 1e999 into Go struct field"},
		"two texts": {`{"format":1,"target":"sm_121","kernels":[]}{}`, "not a tuning file: invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o666))
			hostile.Bounded(t, len(c.text), 16, func() {
				_, err := Read(path)
				require.ErrorContains(t, err, path+": ")
				require.ErrorContains(t, err, c.want)
			})
		})
	}
}

// FuzzRead reads whatever there may be in a tuning file. What is read is the same after it was written.
func FuzzRead(f *testing.F) {
	good, err := json.Marshal(example())
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"format":1,"target":"sm_121","kernels":[]}`))
	f.Add([]byte(`{"format":1,"kernels":[{},{},{}]}`))
	defer memory.Limit(1 << 20)()
	f.Fuzz(func(t *testing.T, data []byte) {
		hostile.Bounded(t, len(data), 256, func() {
			x, err := parse(data)
			if err != nil {
				return
			}
			raw, err := json.Marshal(x)
			require.NoError(t, err)
			y, err := parse(raw)
			require.NoError(t, err)
			require.Equal(t, x.Digest(), y.Digest())
		})
	})
}
