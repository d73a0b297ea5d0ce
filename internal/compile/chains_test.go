package compile

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// fusedOf are the chains that end with a region of a family.
func fusedOf(g *ir.Graph, family string) (list []*ir.Node) {
	for _, n := range g.Nodes {
		if n.IsFamily(ir.FamilyFused) && n.LastPart().IsFamily(family) {
			list = append(list, n)
		}
	}
	return list
}

// TestFusedRegionsChangeNoBit: in every precision the program whose chains are kernels has the outputs of the one whose windows are launches
// of their own, which they are where chains are refused. SPARK_FULL adds precisions that calibrate.
func TestFusedRegionsChangeNoBit(t *testing.T) {
	fulltest.Long(t)
	refusing := refusing(ir.FamilyWindow)
	for _, row := range precision.All() {
		t.Run(row.Name, func(t *testing.T) {
			if row.Calibrates() && row.Name != precision.FP8 && !fulltest.Runs(t.Name()) {
				t.Skip("chains of windows are the same as in fp8: set SPARK_FULL=1")
			}
			r, _ := generated(t, "vision", row.Name, "sm_121")
			regions := fusedOf(r.Graph, ir.FamilyWindow)
			want := 10
			if row.Name == precision.File { // which does not stack the two towers
				want = 20
			}
			require.Len(t, regions, want)
			w := codegen.NewWeights()
			out, err := codegen.Generate(entries(r.Graph), target.Default(), refusing, w)
			require.NoError(t, err)
			require.Len(t, out.Fallbacks, len(regions))
			unfused := *r.Program
			unfused.Variants, unfused.Weights = []runtime.Variant{out.Variant}, w.Bytes()
			require.Len(t, unfused.Variants[0].Entry("run").Launches, len(r.Program.Variants[0].Entry("run").Launches)+len(regions))
			in := arrays(t, r.Source)
			two, _, _ := raw(t, &unfused, in, emu.Auto)
			one, _, _ := raw(t, r.Program, in, emu.Auto)
			require.Equal(t, two, one)
		})
	}
}

// refusing are families that refuse the chains of one.
func refusing(family string) codegen.Families {
	return kerneltest.Refusing{Families: families.New(nil), Refuses: func(n *ir.Node) bool {
		return n.IsFamily(ir.FamilyFused) && n.LastPart().IsFamily(family)
	}}
}

// TestWindowsStayUnfusedOnRequest: a tuner can say for each pair whether it becomes a chain.
func TestWindowsStayUnfusedOnRequest(t *testing.T) {
	r, _ := generated(t, "vision", "fp16", "sm_121")
	regions := fusedOf(r.Graph, ir.FamilyWindow)
	first, second := regions[0].Parts()[0].Name, regions[1].Parts()[1].Name
	unfused, err := compiled(t.Context(), small(t, "vision"), Options{Precision: "fp16", Targets: []string{"sm_121"}, Unfused: []string{first, second}})
	require.NoError(t, err)
	left := fusedOf(unfused.Graph, ir.FamilyWindow)
	require.Len(t, left, len(regions)-2)
	for _, n := range left {
		for _, part := range n.Parts() {
			require.False(t, slices.Contains([]string{first, second}, part.Name), part.Name)
		}
	}
}

// TestContractionsMultiplyWhatTheyCompute: the policy's products are fused with the normalisations that they
// follow, except those named as unfused.
func TestContractionsMultiplyWhatTheyCompute(t *testing.T) {
	compiled := func(unfused ...string) (*Result, int) {
		r, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "fp16", Targets: []string{"sm_121"}, Unfused: unfused})
		require.NoError(t, err)
		return r, len(r.Program.Variants[0].Entry("run").Launches)
	}
	r, launches := compiled()
	var names []string // of all parts
	rows, more := "", 0
	for _, n := range r.Graph.Nodes {
		if n.IsFamily(ir.FamilyFused) && multiplies(n) {
			parts := n.Parts()
			for _, part := range parts {
				names = append(names, part.Name)
			}
			more += len(parts) - 1
			if len(parts) == 2 && parts[0].IsFamily(ir.FamilyLoop) && rows == "" {
				rows = parts[1].Name
			}
		}
	}
	require.NotEmpty(t, rows)
	require.Empty(t, r.Fallbacks)
	_, one := compiled(rows)
	require.Equal(t, launches+1, one)
	_, all := compiled(names...)
	require.Equal(t, launches+more, all)
}

// TestLayersOfAFusedRegionNameWhatTheyShareALaunchWith: a report has each layer with its own weights, those of a fused layer about as large as if it
// had a launch of its own.
func TestLayersOfAFusedRegionNameWhatTheyShareALaunchWith(t *testing.T) {
	fulltest.Long(t)
	for _, model := range []string{"policy", "dmonitoring"} {
		r, _ := generated(t, model, "fp8", "sm_121")
		var names []string
		for _, n := range r.Graph.Nodes {
			for _, part := range n.Parts() {
				names = append(names, part.Name)
			}
		}
		opt := r.opt
		opt.Unfused = names
		unfused, err := Graph(t.Context(), r.path, r.Source, opt)
		require.NoError(t, err)
		require.Len(t, r.Accuracy.Layers, len(unfused.Accuracy.Layers))
		alone := unfused.LayerWeights(unfused, unfused.Accuracy.Layers)
		shared := 0
		for i, w := range r.LayerWeights(r, r.Accuracy.Layers) {
			l := r.Accuracy.Layers[i]
			require.Equal(t, l.Precision, unfused.Accuracy.Layers[i].Precision)
			require.Empty(t, alone[i].With)
			launch := &r.Program.Variants[0].Entries[0].Launches[w.Launch]
			if model == "policy" {
				require.InEpsilon(t, alone[i].Bytes, w.Bytes, 0.05, l.Name)
			} else { // where a chain's tiles are wider, it pads more
				require.GreaterOrEqual(t, w.Bytes, l.Weights, l.Name)
				require.LessOrEqual(t, w.Bytes+biases(r.regions[w.Launch].Parts()[0]), constants(&r.Program.Variants[0], launch), l.Name)
			}
			parts := r.regions[w.Launch].Parts()
			var all []string
			for _, part := range parts {
				all = append(all, part.Name)
			}
			at := slices.Index(all, l.Name)
			require.GreaterOrEqual(t, at, 0, "%s is not in launch %d", l.Name, w.Launch)
			require.Equal(t, slices.Delete(all, at, at+1), append([]string{}, w.With...))
			if len(parts) > 1 {
				shared++
			}
		}
		require.Positive(t, shared, model)
	}
}

// TestAFusedRegionIsFasterWhereverItsWeightsAre: with few weights a LayerNorm joins its product. With many it would be faster with all of them in L2, and
// slower where DRAM serves some, since a block then waits longer for each of the reads of its rows.
func TestAFusedRegionIsFasterWhereverItsWeightsAre(t *testing.T) {
	for _, c := range []struct {
		k, n   int
		faster bool
	}{{384, 1152, true}, {768, 4096, false}} {
		g := kerneltest.NewGraph(t, "g")
		first, second := g.Region(ir.FamilyLoop), g.Region(ir.FamilyContraction)
		x := first.Input(ir.T(ir.Float32, 1, 25, c.k), 3, false, true)
		scale, bias := first.Input(ir.T(ir.Float32, c.k), 1, true, true), first.Input(ir.T(ir.Float32, c.k), 1, true, true)
		y := first.Finish(first.Cast(first.Add("LayerNorm", ir.Attrs{"axis": 2}, x, scale, bias), ir.Float16))
		a := second.Cast(second.Read(y.Outputs[0], true), ir.Float32)
		w := second.Cast(second.Input(ir.T(ir.Float16, c.k, c.n), 0.1, true, true), ir.Float32)
		second.Finish(second.Cast(second.Add("MatMul", nil, a, w), ir.Float16))
		pair := ir.NewFused([]*ir.Node{first.Node, second.Node}, false)
		warm := func(n *ir.Node) float64 {
			spec, err := families.New(nil).Lower(n, &kernel.Context{Target: target.Default(), Unpacked: true})
			require.NoError(t, err)
			resident := *spec.Work
			resident.DRAMBytes = 0
			return cost.Of(target.Default()).Estimate(&resident).US
		}
		parts := pair.Parts()
		require.Less(t, warm(pair), warm(parts[0])+warm(parts[1]))
		require.Equal(t, c.faster, families.New(nil).Benefit(pair, target.Default()) > 0, "%d weights", c.k*c.n)
	}
}

// multiplies reports whether a fused region is a contraction that multiplies what its first part computes.
func multiplies(n *ir.Node) bool { return n.LastPart().IsFamily(ir.FamilyContraction) }
