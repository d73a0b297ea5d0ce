package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// described are flags of every kind.
type described struct {
	Model     []string `arg:"" optional:"" name:"model" help:"Files."`
	Precision string   `help:"How exact."`
	Output    string   `short:"o" help:"Where: [a 'new' file] for what's made." placeholder:"FILE"`
	Emit      string   `help:".Begins with a dot \\ and such." enum:",ir,ptx" default:"" placeholder:"ir|ptx"`
	Keep      []string `help:"Nodes to keep." placeholder:"NODE"`
	Check     bool     `help:"Check."`
	Peer      bool     `help:"Compare with others." default:"true" negatable:""`
}

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	ran := func(context.Context) error { t.Error("the command ran"); return nil }
	require.Equal(t, Done, Main(&described{}, "spark-tool", "A tool.", args, &out, &errs, ran), errs.String())
	return out.String()
}

// shell runs a script in a shell that reads completions from a file.
func shell(t *testing.T, name, completion, script string) []string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(name + " is missing")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "_spark-tool"), []byte(completion), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "afile"), nil, 0o600))
	cmd := exec.Command(name, "-c", script)
	if name == "zsh" {
		cmd = exec.Command(name, "-f", "-c", script)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	completion := printed(t, "--completion", "bash")
	complete := func(words ...string) []string {
		script := "source ./_spark-tool; COMP_WORDS=('" + strings.Join(words, "' '") + "'); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _spark_tool; echo \"${COMPREPLY[@]}\""
		return shell(t, "bash", completion, script)
	}
	require.Equal(t, []string{"--precision"}, complete("spark-tool", "--prec"))
	require.Equal(t, []string{"fp32", "fp16", "fp8", "fp6"}, complete("spark-tool", "--precision", "fp"))
	require.Equal(t, []string{"fp32", "fp16", "fp8", "fp6"}, complete("spark-tool", "--precision", "=", "fp"), "--precision=fp")
	require.Equal(t, []string{"ir", "ptx"}, complete("spark-tool", "--emit", "=")) // cut at =, where bash ends a word
	require.Equal(t, []string{"--no-peer"}, complete("spark-tool", "--check", "--n"))
	require.Empty(t, complete("spark-tool", "-o", "af"), "files are bash's own")
	require.Empty(t, complete("spark-tool", "af"), "files are bash's own")
	require.Contains(t, completion, "complete -o default -F _spark_tool spark-tool\n")
}

func TestFishCompletes(t *testing.T) {
	completion := printed(t, "--completion", "fish")
	complete := func(line string) []string {
		return shell(t, "fish", completion, "source ./_spark-tool; complete -C '"+line+"'")
	}
	require.Contains(t, complete("spark-tool --prec"), "--precision")
	require.Contains(t, complete("spark-tool --precision fp1"), "fp16")
	require.NotContains(t, complete("spark-tool --precision a"), "afile")
	require.Contains(t, complete("spark-tool -o a"), "afile")
	require.Contains(t, complete("spark-tool --no"), "--no-peer")
}

// TestZshReadsItsCompletions: what zsh would offer needs a terminal, so _arguments is one that prints what it is given.
func TestZshReadsItsCompletions(t *testing.T) {
	completion := printed(t, "--completion", "zsh")
	words := shell(t, "zsh", completion, "compdef() { : }; source ./_spark-tool; _arguments() { print -rl -- \"$@\" }; _spark-tool")
	text := strings.Join(words, " ")
	require.Contains(t, text, "--precision=[How exact.]:STRING:(")
	require.Contains(t, text, `--output=[Where\: \[a 'new' file\] for what's made.]:FILE:_files -o+[Where`)
	require.Contains(t, text, "*--keep=[Nodes to keep.]:NODE,...:_files")
	require.Contains(t, text, "*:model:_files")
	// As a file of $fpath it defines the function of that name.
	words = shell(t, "zsh", completion, "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[spark-tool]")
	require.Equal(t, []string{"_spark-tool"}, words)
}

func TestTheManualPageIsOne(t *testing.T) {
	page := printed(t, "--man")
	for _, want := range []string{".TH \"SPARK-TOOL\" 1", "\n.SH OPTIONS\n", "\n\\fB\\-\\-output\\fR, \\fB\\-o\\fR \\fIFILE\\fR\nWhere", "\n\\&.Begins with a dot \\e and such.\n", "\\-\\-no\\-peer"} {
		require.Contains(t, page, want)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("groff is missing")
	}
	cmd := exec.Command("groff", "-man", "-Tascii", "-ww")
	cmd.Stdin = strings.NewReader(page)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Empty(t, warnings.String())
	require.Contains(t, string(out), "Begins with a dot \\ and such.")
}

func TestDescribe_WithoutARequiredArgument(t *testing.T) {
	var flags struct {
		File string `arg:"" help:"What to read."`
	}
	for _, args := range [][]string{{"--man"}, {"--completion=bash"}, {"--completion", "zsh"}} {
		var out, errs bytes.Buffer
		require.Equal(t, Done, Main(&flags, "spark tool", "A tool.", args, &out, &errs, nil), errs.String())
		require.Contains(t, strings.ToLower(out.String()), "spark-tool", args)
	}
}

// several is a command with commands.
type several struct {
	Make struct {
		Model  string `arg:"" help:"What to read."`
		Output string `short:"o" help:"Where." placeholder:"FILE"`
	} `cmd:"" help:"Make one."`
	Show struct {
		Files []string `arg:"" optional:"" help:"What to show."`
		Rank  *int     `help:"How many." placeholder:"R"`
	} `cmd:"" help:"What's in it."`
}

func TestCommandsOfACommandAreDescribed(t *testing.T) {
	about := func(args ...string) string {
		var out, errs bytes.Buffer
		require.Equal(t, Done, Main(&several{}, "spark tool", "A tool.", args, &out, &errs, nil), errs.String())
		return out.String()
	}
	page := about("--man")
	for _, want := range []string{".TH \"SPARK-TOOL\" 1", "\\fBspark\\-tool\\fR \\fIcommand\\fR [\\fIflags\\fR]\n.SH OPTIONS\n",
		".SH COMMANDS\n.SS \\fBmake\\fR \\fImodel\\fR [\\fIflags\\fR]\nMake one.\n.TP\n\\fImodel\\fR\nWhat to read.\n.TP\n\\fB\\-\\-output\\fR, \\fB\\-o\\fR \\fIFILE\\fR\nWhere.\n",
		".SS \\fBshow\\fR [\\fIfiles\\fR]... [\\fIflags\\fR]\n"} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "ARGUMENTS")
	t.Run("bash", func(t *testing.T) {
		completion := about("--completion", "bash")
		for line, want := range map[string][]string{"spark-tool s": {"show"}, "spark-tool make s": nil, "spark-tool make --o": {"--output"}} {
			script := "source ./_spark-tool; COMP_WORDS=(" + line + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _spark_tool; echo \"${COMPREPLY[@]}\""
			require.ElementsMatch(t, want, shell(t, "bash", completion, script), line)
		}
	})
	t.Run("fish", func(t *testing.T) {
		completion := about("--completion", "fish")
		require.Contains(t, shell(t, "fish", completion, "source ./_spark-tool; complete -C 'spark-tool s'"), "show")
		require.NotContains(t, shell(t, "fish", completion, "source ./_spark-tool; complete -C 'spark-tool make s'"), "show")
	})
	t.Run("zsh", func(t *testing.T) {
		words := shell(t, "zsh", about("--completion", "zsh"), "compdef() { : }; source ./_spark-tool; _arguments() { print -rl -- \"$@\" }; _spark-tool")
		require.Contains(t, strings.Join(words, " "), "1:command:(make show) *::_files")
	})
}

func TestAnUnknownShellIsRefused(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, BadInput, Main(&described{}, "spark-tool", "A tool.", []string{"--completion", "csh"}, &out, &errs, nil))
	require.Contains(t, errs.String(), "csh")
	require.Empty(t, out.String())
}
