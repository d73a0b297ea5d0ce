package passes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// fusedSiblings fuses a graph of elementwise nodes as that of a training step and returns its launches.
func fusedSiblings(t *testing.T, text string) int {
	t.Helper()
	g, err := ir.Parse(text)
	require.NoError(t, err)
	before := g.Clone()
	require.NoError(t, Run(&Context{Precision: precision.FP32, FuseOptions: FuseOptions{Siblings: true}}, g, []string{"fuse", "views"}, nil))
	requireContract(t, g)
	requireSameOutputs(t, before, g, 1e-9)
	return launches(g)
}

// steps are a chain of so many elementwise nodes from %x, of which every fifth is an output, and their outputs.
func steps(n int) (nodes, outputs string) {
	var b, o strings.Builder
	last := "x"
	for i := range n {
		fmt.Fprintf(&b, "  %%s%d: f32[64] = Sin(%%%s)\n", i, last)
		if last = fmt.Sprint("s", i); i%5 == 4 {
			fmt.Fprintf(&o, "  output %%%s\n", last)
		}
	}
	return b.String(), o.String()
}

// TestSiblings_AreOneKernelAsFarAsRegistersHold: hundreds of nodes with few values at a time are one loop; values
// that are all needed to the end are not, beyond what a thread has registers for.
func TestSiblings_AreOneKernelAsFarAsRegistersHold(t *testing.T) {
	nodes, outputs := steps(300)
	require.Equal(t, 1, fusedSiblings(t, "graph \"g\" {\n  input %x: f32[64]\n"+nodes+outputs+"}"))
	nodes, outputs = steps(5 * (maxLive + 20))
	require.Equal(t, 2, fusedSiblings(t, "graph \"g\" {\n  input %x: f32[64]\n"+nodes+outputs+"}"))
}

// TestSiblings_MoveWhatOthersCompute: an element that a kernel picks from an input by an index that it computes
// stands in its loop; one that it would pick from what its own threads compute does not.
func TestSiblings_MoveWhatOthersCompute(t *testing.T) {
	const text = `graph "g" {
  input %%x: f32[64]
  input %%table: f32[64]
  %%a: f32[64] = Sin(%%x)
  %%i: i32[64] = Cast(%%a) {to=i32}
  %%p: f32[64] = Gather(%%%s, %%i) {axis=0}
  %%b: f32[64] = Add(%%a, %%p)
  %%c: f32[64] = Mul(%%a, %%b)
  output %%a
  output %%b
  output %%c
}`
	require.Equal(t, 1, fusedSiblings(t, fmt.Sprintf(text, "table")))
	require.Equal(t, 2, fusedSiblings(t, fmt.Sprintf(text, "a")))
}

// TestSiblings_WriteRowsOfATable: rows that are computed from one another, of which one is an output too and one
// stands there twice, are results of one kernel.
func TestSiblings_WriteRowsOfATable(t *testing.T) {
	require.Equal(t, 1, fusedSiblings(t, `graph "g" {
  input %x: f32[64]
  %a: f32[64] = Sin(%x)
  %b: f32[64] = Cos(%a)
  %c: f32[64] = Sqrt(%b)
  %ra: f32[1,64] = Reshape(%a) {shape=[1,64]}
  %rb: f32[1,64] = Reshape(%b) {shape=[1,64]}
  %rc: f32[1,64] = Reshape(%c) {shape=[1,64]}
  %t: f32[4,64] = Concat(%ra, %rb, %rc, %rb) {axis=0}
  output %a
  output %t
}`))
}

// TestScatter_TakesIndicesIntoItsLoop where each update goes to a place of its own.
func TestScatter_TakesIndicesIntoItsLoop(t *testing.T) {
	require.Equal(t, 1, fusedSiblings(t, `graph "g" {
  input %x: f32[4,64]
  input %at: f32[1,8]
  input %u: f32[1,64]
  %i: i32[1,8] = Cast(%at) {to=i32}
  %r: i32[1,1,8] = Reshape(%i) {shape=[1,1,8]}
  %e: i32[1,8,8] = Expand(%r) {shape=[1,8,8]}
  %k: i32[1,64] = Reshape(%e) {shape=[1,64]}
  %y: f32[4,64] = ScatterElements(%x, %k, %u) {axis=0}
  output %y
}`))
}
