package loop

import (
	"flag"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "rewrite the snapshots in testdata")

// TestSnapshots pins the text of one kernel of each schedule.
func TestSnapshots(t *testing.T) {
	T, f16, i32 := ir.T, ir.Float16, ir.Int32
	zero := func(*rand.Rand, int) float64 { return 0 }
	full := func(*rand.Rand, int) float64 { return 256 }
	for _, c := range []*testCase{
		{name: "flat_add", build: node("Add", nil), inputs: []ir.Type{T(f16, 64, 1024), T(f16, 64, 1024)}},
		{name: "row_softmax", build: node("Softmax", ir.Attrs{"axis": 1}), inputs: []ir.Type{T(f16, 200, 512)}},
		{name: "row_matvec", build: node("SegmentedMatVec", nil), consts: []bool{false, true, true, true, true},
			inputs: []ir.Type{T(f16, 256), T(f16, 500, 256), T(f16, 500), T(i32, 500), T(i32, 500)}, data: data{nil, nil, nil, zero, full}},
		{name: "column_mean", build: node("ReduceMean", ir.Attrs{"axes": []int{1, 2}}), inputs: []ir.Type{T(f16, 1, 16, 32, 256)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			spec, err := Family.Lower(c.region(t).Node, ctx)
			require.NoError(t, err)
			kerneltest.Snapshot(t, c.name, spec, ctx.Target, ".visible", *update)
		})
	}
}

// TestSnapshots_OfFusedLoops pins the text of kernels of several loops: blocks compute all of the last loop's
// producers, or what they need of them.
func TestSnapshots_OfFusedLoops(t *testing.T) {
	names := map[string]string{"a head after a norm": "chain_head", "two results between": "chain_results", "flat after rows": "chain_rows",
		"each channel its own factor": "chain_factors", "moved, then added up": "chain_moved"}
	for _, c := range fusedCases {
		if names[c.name] == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			spec, err := Family.Lower(c.region(t).Node, ctx)
			require.NoError(t, err)
			kerneltest.Snapshot(t, names[c.name], spec, ctx.Target, ".visible", *update)
			delete(names, c.name)
		})
	}
	require.Empty(t, names)
}
