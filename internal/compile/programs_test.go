package compile

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

var update = flag.Bool("update", false, "record the programs' digests anew")

// programDigests is the file of digests: "MODEL PRECISION TARGETS: program, weights, and PTX of each target".
const programDigests = "testdata/programs.txt"

// digests describes a program in one line: what --emit program prints, the weights file, and the PTX of each variant without
// its kernels' documentation, which names nodes and computes nothing.
func digests(t *testing.T, p *runtime.Program) string {
	t.Helper()
	bare := *p
	bare.Format, bare.Identity, bare.Digests, bare.Provenance = 1, "", nil, runtime.Provenance{} // 1 as in the first digests
	text, err := json.Marshal(bare)
	require.NoError(t, err)
	parts := []string{"program " + digest(text), "weights " + digest(p.Weights)}
	for _, v := range p.Variants {
		parts = append(parts, v.Target+" "+digest([]byte(ptx.Undocumented(v.PTX))))
	}
	return strings.Join(parts, ", ")
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:16] }

// TestProgramsStayTheSame compares compiled programs with recorded digests: a change that is to leave programs alone
// leaves them alone, byte for byte. A change that is meant to alter them records them anew with -update, and its commit
// says why. SPARK_FULL adds what takes long to calibrate: the full-size models and supercombo in precisions that calibrate,
// vision for several targets. What they add is size and a recurrent state, which fp16 has as well.
func TestProgramsStayTheSame(t *testing.T) {
	var keys []string
	now := map[string]string{}
	add := func(name, in string, r *Result) {
		var targets []string
		for _, v := range r.Program.Variants {
			targets = append(targets, v.Target)
		}
		key := fmt.Sprintf("%s %s %s", name, in, strings.Join(targets, ","))
		keys, now[key] = append(keys, key), digests(t, r.Program)
	}
	everything := fulltest.Runs(t.Name())
	for _, name := range names {
		for _, row := range precision.All() {
			in := row.Name
			if row.Calibrates() && name == "supercombo" && !everything {
				continue
			}
			r, _ := generated(t, name, in, "sm_121")
			add(name, in, r)
		}
	}
	several := []string{"policy"}
	if everything {
		several = append(several, "vision")
	}
	for _, name := range several {
		r, _ := generated(t, name, "fp8", target.Names()...)
		add(name, "fp8", r)
	}
	for _, name := range []string{"dmonitoring_model", "driving_policy", "driving_vision"} {
		path := "../../../shared/models/" + name + ".onnx"
		if _, err := os.Stat(path); err != nil {
			t.Logf("%s is missing: %s is not compared", path, name)
			continue
		}
		for _, row := range precision.All() {
			in := row.Name
			if row.Calibrates() && !everything {
				continue
			}
			m, err := onnx.Load(path)
			require.NoError(t, err)
			opt := Options{Precision: in, Targets: []string{"sm_121"}}
			if precision.Calibrates(in) {
				files, err := filepath.Glob("../../../shared/models/calibration/" + name + "/*.npz")
				require.NoError(t, err)
				opt.Calibrate = files[:2]
			}
			add(name, in, once(t, m, opt))
		}
	}
	for _, c := range quantisedFiles {
		path := "../../../shared/models/quantised/" + c.name + ".onnx"
		if _, err := os.Stat(path); err != nil {
			t.Logf("%s is missing: it is not compared", path)
			continue
		}
		add(c.name, "fp16", compiledFile(t, path, "fp16"))
	}
	recorded := readDigests(t)
	if *update {
		for _, key := range keys {
			recorded.set(key, now[key])
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(programDigests), 0o755))
		require.NoError(t, os.WriteFile(programDigests, []byte(recorded.String()), 0o644))
	}
	for _, key := range keys {
		if want := recorded.of[key]; now[key] != want {
			t.Errorf("%s:\n now  %s\n then %s", key, now[key], want)
		}
	}
}

// digestFile is the recorded digests in the order of the file.
type digestFile struct {
	keys []string
	of   map[string]string
}

func readDigests(t *testing.T) *digestFile {
	t.Helper()
	f := &digestFile{of: map[string]string{}}
	text, err := os.ReadFile(programDigests)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, ok, "%s: %q", programDigests, line)
		f.set(key, value)
	}
	return f
}

func (f *digestFile) set(key, value string) {
	if _, ok := f.of[key]; !ok {
		f.keys = append(f.keys, key)
	}
	f.of[key] = value
}

func (f *digestFile) String() string {
	var b strings.Builder
	for _, key := range f.keys {
		fmt.Fprintf(&b, "%s: %s\n", key, f.of[key])
	}
	return b.String()
}
