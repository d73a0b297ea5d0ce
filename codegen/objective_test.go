package codegen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestThePlanOfLeastWeightIsMade: among plans, the one with the least objective is chosen, with its works and those
// of every launch.
func TestThePlanOfLeastWeightIsMade(t *testing.T) {
	typ := ir.T(ir.Float32, 1<<20)
	g := kerneltest.NewGraph(t, "run")
	v := g.AddInput("x", typ)
	for range 6 {
		values := make([]float64, 1<<20)
		for i := range values {
			values[i] = float64(i + len(g.Nodes))
		}
		r := g.Region(ir.FamilyLoop)
		v = r.Finish(r.Add("Add", nil, r.Read(v, false), r.Read(g.Constant("c", ir.FromFloats(typ, values)), false))).Outputs[0]
	}
	g.Outputs = []*ir.Value{v}
	prefetched := func(launches []runtime.Launch) (bytes float64) {
		for _, l := range launches {
			if l.Prefetch != nil {
				bytes += float64(l.Prefetch.Bytes)
			}
		}
		return bytes
	}
	made := func(sign float64) (bytes, least, most float64) {
		var seen []float64
		r, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: g.Graph, Objective: func(v *runtime.Variant, e *runtime.Entry, works []*cost.Work) float64 {
			require.Len(t, works, len(e.Launches))
			require.NotEmpty(t, v.Buffers)
			seen = append(seen, sign*prefetched(e.Launches))
			return seen[len(seen)-1]
		}}}, target.Default(), families.New(nil), codegen.NewWeights())
		require.NoError(t, err)
		for _, s := range seen {
			least, most = min(least, s), max(most, s)
		}
		return prefetched(r.Variant.Entries[0].Launches), least, most
	}
	few, _, _ := made(1)
	many, least, most := made(-1)
	require.Equal(t, -least, many)
	require.Greater(t, many, few)
	require.Zero(t, most)
}

// curious asks for the alignment of every operand before its families make a kernel.
type curious struct{ *kernel.Families }

func (c curious) Lower(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	for range 2 {
		for i := range n.Inputs {
			ctx.AlignOf(n.Inputs[len(n.Inputs)-1-i])
		}
	}
	return c.Families.Lower(n, ctx)
}

// TestAskingForAnAlignmentPlacesNothing: whoever asks for alignments, however often and in any order, the program and
// the order of its constants are the same.
func TestAskingForAnAlignmentPlacesNothing(t *testing.T) {
	generate := func(f codegen.Families) ([]byte, *codegen.Result) {
		w := codegen.NewWeights()
		r, err := codegen.Generate([]codegen.Entry{manyConstants(t)}, target.Default(), f, w)
		require.NoError(t, err)
		return w.Bytes(), r
	}
	want, program := generate(families.New(nil))
	got, same := generate(curious{families.New(nil)})
	require.Equal(t, want, got)
	require.Equal(t, program.Variant, same.Variant)
}

// manyConstants is an entry whose only region reads four constants, in another order than its operands have.
func manyConstants(t *testing.T) codegen.Entry {
	typ := ir.T(ir.Float32, 64)
	g := kerneltest.NewGraph(t, "run")
	r := g.Region(ir.FamilyLoop)
	y := r.Read(g.AddInput("x", typ), false)
	var constants []*ir.Value
	for i := range 4 {
		values := make([]float64, 64)
		for k := range values {
			values[k] = float64(i*64 + k)
		}
		constants = append(constants, r.Read(g.Constant("c", ir.FromFloats(typ, values)), false))
	}
	for _, i := range []int{2, 0, 3, 1} {
		y = r.Add("Add", nil, y, constants[i])
	}
	g.Outputs = r.Finish(y).Outputs
	return codegen.Entry{Name: "run", Graph: g.Graph}
}
