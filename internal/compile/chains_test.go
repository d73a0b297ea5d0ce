package compile

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// chainsOf are the chains of two windows.
func chainsOf(g *ir.Graph) (list []*ir.Node) {
	for _, n := range g.Nodes {
		if n.IsFamily(ir.FamilyChain) && !multiplies(n) {
			list = append(list, n)
		}
	}
	return list
}

// TestChainsChangeNoBit: in every precision the program whose chains are kernels has the outputs of the one whose windows are launches
// of their own, which they are where chains are refused.
func TestChainsChangeNoBit(t *testing.T) {
	refusing := maps.Clone(families)
	refusing[ir.FamilyChain] = func(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
		if multiplies(n) {
			return lowerChain(n, ctx)
		}
		return nil, errors.New("refused")
	}
	for _, row := range precision.All() {
		t.Run(row.Name, func(t *testing.T) {
			r, _ := generated(t, "vision", row.Name, "sm_121")
			chains := chainsOf(r.Graph)
			want := 10
			if row.Name == precision.File { // which does not stack the two towers
				want = 20
			}
			require.Len(t, chains, want)
			w := codegen.NewWeights()
			out, err := codegen.Generate(entries(r.Graph), target.Default(), refusing, w)
			require.NoError(t, err)
			require.Len(t, out.Fallbacks, len(chains))
			apart := *r.Program
			apart.Variants, apart.Weights = []runtime.Variant{out.Variant}, w.Bytes()
			require.Len(t, apart.Variants[0].Entry("run").Launches, len(r.Program.Variants[0].Entry("run").Launches)+len(chains))
			in := arrays(t, r.Source)
			two, _, _ := raw(t, &apart, in, emu.Auto)
			one, _, _ := raw(t, r.Program, in, emu.Auto)
			require.Equal(t, two, one)
		})
	}
}

// TestWindowsStayApartOnRequest: a tuner can say for each pair whether it becomes a chain.
func TestWindowsStayApartOnRequest(t *testing.T) {
	r, _ := generated(t, "vision", "fp16", "sm_121")
	chains := chainsOf(r.Graph)
	first, second := chains[0].Parts()[0].Name, chains[1].Parts()[1].Name
	apart, err := Compile(t.Context(), small(t, "vision"), Options{Precision: "fp16", Targets: []string{"sm_121"}, Apart: []string{first, second}})
	require.NoError(t, err)
	left := chainsOf(apart.Graph)
	require.Len(t, left, len(chains)-2)
	for _, n := range left {
		for _, part := range n.Parts() {
			require.False(t, slices.Contains([]string{first, second}, part.Name), part.Name)
		}
	}
}

// TestContractionsMultiplyWhatTheyCompute: the policy's products behind normalisations are one launch with them, but for those of a name
// that is to stay apart.
func TestContractionsMultiplyWhatTheyCompute(t *testing.T) {
	compiled := func(apart ...string) (*Result, int) {
		r, err := Compile(t.Context(), small(t, "policy"), Options{Precision: "fp16", Targets: []string{"sm_121"}, Apart: apart, Prologues: true})
		require.NoError(t, err)
		return r, len(r.Program.Variants[0].Entry("run").Launches)
	}
	r, launches := compiled()
	var names []string
	for _, n := range r.Graph.Nodes {
		if n.IsFamily(ir.FamilyChain) && multiplies(n) {
			names = append(names, n.Parts()[1].Name)
		}
	}
	require.NotEmpty(t, names)
	require.Empty(t, r.Fallbacks)
	_, one := compiled(names[0])
	require.Equal(t, launches+1, one)
	_, all := compiled(names...)
	require.Equal(t, launches+len(names), all)
}
