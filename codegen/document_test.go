package codegen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// layersOf is a graph of Relus in sequence, each from a node of the file with such a name.
func layersOf(t *testing.T, names ...string) *ir.Graph {
	g := ir.NewGraph("g")
	b := builder{t, g}
	v := g.AddInput("x", ir.T(ir.Float32, 4))
	for i := range names {
		v = b.region("loop", "Relu", nil, v)
		v.Def.Region.Body.Nodes[0].From = []ir.Origin{{At: i, Name: names[i]}}
	}
	v.Name = "y"
	g.Outputs = []*ir.Value{v}
	return g
}

// docs are the documentations of a PTX text's kernels.
func docs(t *testing.T, text string) (all [][]string) {
	t.Helper()
	m, err := ptx.Parse(text)
	require.NoError(t, err)
	require.Equal(t, text, m.String(), "the documentation is read back as it was written")
	for _, k := range m.Kernels {
		all = append(all, k.Doc)
	}
	return all
}

func TestAKernelsDocumentationNamesTheNodesOfEachLaunch(t *testing.T) {
	g := layersOf(t, "/a/Relu", "/b/Relu")
	v := generate(t, g)
	require.Equal(t, [][]string{{
		"touch: loop",
		"run 0, Relu: f32[4] -> f32[4]",
		"  of /a/Relu",
		"run 1, Relu: f32[4] -> f32[4]",
		"  of /b/Relu",
	}}, docs(t, v.PTX), "kernels that differ by their documentation alone are one")
	require.Equal(t, ptx.Undocumented(v.PTX), ptx.Undocumented(generate(t, layersOf(t, "other", "names")).PTX))
	require.NotContains(t, ptx.Undocumented(v.PTX), "/a/Relu")

	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprint("step", i)
	}
	d := docs(t, generate(t, layersOf(t, names...)).PTX)[0]
	require.Len(t, d, 1+2*docLaunches+1)
	require.Equal(t, "and 24 more launches", d[len(d)-1])

	g = layersOf(t, names[:1]...)
	many := &g.Nodes[0].Region.Body.Nodes[0].From
	*many = nil
	for i := range 100 {
		*many = append(*many, ir.Origin{At: i, Name: fmt.Sprintf("a_name_of_some_length_%03d", i)})
	}
	d = docs(t, generate(t, g).PTX)[0]
	for _, line := range d {
		require.LessOrEqual(t, len(line), docWidth+1, line)
	}
	require.Contains(t, d[len(d)-1], "and 36 more nodes")
}

// TestNamesOfNodesCannotLeaveTheirComment: names of a file may hold any bytes.
func TestNamesOfNodesCannotLeaveTheirComment(t *testing.T) {
	names := []string{
		"two\nlines\n.visible .entry evil() { ret; }", "carriage\rreturn", "null\x00byte", "ends in a backslash\\", `"quoted"`,
		"/* opens", "*/ closes", "größe", "line\u2028separator", "\xff\xfe", "", " ", "a, b", "#define ret exit", strings.Repeat("/long", 100) + "/end",
	}
	v := generate(t, layersOf(t, names...))
	d := docs(t, v.PTX)
	require.Len(t, d, 1)
	for _, line := range d[0] {
		require.Less(t, len(line), 2*docWidth, line)
		for _, c := range []byte(line) {
			require.True(t, c >= ' ' && c < 0x7f, "%q", line)
		}
		require.False(t, strings.HasSuffix(line, `\`), line)
	}
	text := strings.Join(d[0], "\n")
	for _, want := range []string{`"two\nlines\n.visible .entry evil() { ret; }"`, `"ends in a backslash\\"`, `"gr\u00f6\u00dfe"`, `"\xff\xfe"`, `""`, `"a, b"`, "..."} {
		require.Contains(t, text, "  of "+want)
	}
	require.Contains(t, text, "/long/end")
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	named, err := tool.Assemble(context.Background(), v.PTX, "sm_121")
	require.NoError(t, err)
	bare, err := tool.Assemble(context.Background(), ptx.Undocumented(v.PTX), "sm_121")
	require.NoError(t, err)
	require.Equal(t, bare, named, "documentation does not reach the cubin")
}
