package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// outputFlags are flags as commands have them.
type outputFlags struct {
	Files     []string          `arg:"" optional:"" names:""`
	Algorithm string            `names:""`
	Input     []string          `sep:"none"`
	Value     map[string]string `mapsep:"none"`
	Resume    string
	Precision string
	Frames    string   `placeholder:"DIR"`
	JSON      string   `name:"json" writes:"" over:"resume"`
	HTML      string   `name:"html" writes:""`
	TuneFile  []string `writes:""`
}

func TestParse_RefusesOutputsThatReplaceAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"own.yaml", "own.csv", "a.onnx", "b.onnx", "curve", "x.npz", "was.json"} {
		require.NoError(t, os.WriteFile(name, nil, 0o644))
	}
	require.NoError(t, os.Mkdir("model", 0o755))
	require.NoError(t, os.WriteFile("model/only.onnx", nil, 0o644))
	require.NoError(t, os.Symlink("own.yaml", "symlink"))
	require.NoError(t, os.Link("own.yaml", "hardlink"))
	require.NoError(t, os.Symlink("nowhere", "dangling"))
	require.NoError(t, os.Symlink(".", "here"))
	require.NoError(t, unix.Mkfifo("fifo.yaml", 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	refused := func(args ...string) {
		t.Helper()
		require.ErrorContains(t, Parse(&outputFlags{}, "tool", args), "give another name", "%q", args)
	}
	taken := func(args ...string) {
		t.Helper()
		require.NoError(t, Parse(&outputFlags{}, "tool", args), "%q", args)
	}
	require.EqualError(t, Parse(&outputFlags{}, "tool", []string{"own.yaml", "--json", "own.yaml"}),
		"--json own.yaml: it is an input too ([<files> ...]), which would be overwritten: give another name")
	require.EqualError(t, Parse(&outputFlags{}, "tool", []string{"--json", "x", "--html", "./x"}),
		"--json and --html are both ./x: give another name to one of them")
	for _, out := range []string{"./own.yaml", "symlink", "hardlink", filepath.Join(here, "own.yaml"), "here/own.yaml"} {
		refused("curve", "own.yaml", "--html", out)
	}
	for _, args := range [][]string{{"-"}, {"curve", "-"}, {"--algorithm", "-"}, {"--input", "-"}, {"--frames", "-"}, {"--value", "image=-"}} {
		require.ErrorContains(t, Parse(&outputFlags{}, "tool", args), ": - is neither standard input nor output here: give a path")
	}
	taken("curve", "--json", "-")
	taken("--input", "./-")
	refused("./symlink", "--html", "hardlink")
	refused("--algorithm", "a.onnx+b.onnx:fp16", "--json", "b.onnx")
	refused("--algorithm", "a.onnx:fp16", "--json", "a.onnx")
	refused("--input", "image=x.npz", "--json", "x.npz")
	refused("--value", "image=x.npz", "--json", "x.npz")
	refused("model/", "--json", "model/only.onnx")
	refused("--resume", "was.json", "--html", "was.json")
	refused("--json", "dangling", "--html", "nowhere")
	refused("--json", "here/new", "--html", "new")
	refused("--tune-file", "x.npz", "--html", "x.npz")
	refused("--frames", "model", "--json", "model")
	refused("./model", "--json", "model")
	taken("--precision", "model", "--json", "model") // a precision, and a directory of before
	taken("--precision", "new", "--json", "new")
	taken("--resume", "was.json", "--json", "was.json")
	taken("curve", "--json", "curve") // the name of a scenario, and a file of before
	taken("own.yaml", "--json", "other", "--html", "another")
	taken("own.yaml", "--json", "-", "--html", "/dev/stdout")
	taken("fifo.yaml", "--json", "fifo.yaml")
	taken("--json", "/dev/null", "--html", "/dev/null")
	refusedBefore := Main(&outputFlags{}, "tool", "", []string{"--json", "x.npz"}, os.Stdout, os.Stderr, nil, "x.npz")
	require.Equal(t, BadInput, refusedBefore)
}
