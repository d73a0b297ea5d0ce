package contraction

import (
	"context"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/ptxas"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// body builds a region's body by hand.
type body struct {
	t      *testing.T
	region *ir.Node
	rng    *rand.Rand
	data   map[*ir.Value]*ir.Tensor // of the region's inputs
}

func newBody(t *testing.T) *body {
	return &body{t: t, rng: rand.New(rand.NewSource(1)), data: map[*ir.Value]*ir.Tensor{},
		region: &ir.Node{Op: ir.LookupOp("Region"), Name: "region", Attrs: ir.Attrs{"family": "contraction"}, Body: ir.NewGraph("body")}}
}

// random is a tensor of values that f16 holds, about 1 in size.
func (b *body) random(typ ir.Type, scale float64) *ir.Tensor {
	x := make([]float64, typ.Numel())
	for i := range x {
		x[i] = ir.RoundTo(ir.Float16, scale*b.rng.NormFloat64())
	}
	return ir.FromFloats(typ, x)
}

// input adds an input of the region; stacked ones get a leading dimension outside. constant makes it a weight.
func (b *body) input(typ ir.Type, scale float64, constant, stacked bool) *ir.Value {
	outer := typ.Clone()
	if g := b.region.Attrs.Int("members", 0); g > 0 && stacked {
		outer.Shape = append([]int{g}, outer.Shape...)
	}
	data := b.random(outer, scale)
	v := &ir.Value{Name: b.region.Body.Fresh("in"), Type: outer}
	if constant {
		v.Const = data
	}
	b.data[v] = data
	b.region.Inputs = append(b.region.Inputs, v)
	s := b.region.Attrs.Bools("stacked")
	b.region.Attrs["stacked"] = append(append([]bool{}, s...), stacked)
	return b.region.Body.AddInput(v.Name, typ)
}

func (b *body) members(g int) *body { b.region.Attrs["members"] = g; return b }

func (b *body) add(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	n, err := b.region.Body.Add(op, op, attrs, in...)
	require.NoError(b.t, err)
	return n.Outputs[0]
}

func (b *body) cast(v *ir.Value, to ir.DType) *ir.Value {
	if v.Type.DType == to {
		return v
	}
	return b.add("Cast", ir.Attrs{"to": to}, v)
}

func (b *body) finish(v *ir.Value) *ir.Node {
	b.region.Body.Outputs = []*ir.Value{v}
	typ := v.Type.Clone()
	if g := b.region.Attrs.Int("members", 0); g > 0 {
		typ.Shape = append([]int{g}, typ.Shape...)
	}
	b.region.Outputs = []*ir.Value{{Name: "out", Type: typ, Def: b.region}}
	return b.region
}

// assemble holds the kernel against ptxas for its target and fails on spills.
func assemble(t *testing.T, spec *kernel.Spec, tgt *target.Target) {
	t.Helper()
	tool, err := ptxas.Find(context.Background())
	if err != nil {
		t.Log("not assembled: ", err)
		return
	}
	res, err := tool.Assemble(context.Background(), spec.Build(tgt, "k").String(), tgt.Name)
	require.NoError(t, err)
	for _, u := range res.Usage {
		t.Logf("%s %s: %d registers", tgt.Name, spec.Schedule, u.Regs)
		if u.Spills != 0 {
			t.Errorf("%s: %d bytes of spills", spec.Schedule, u.Spills)
		}
	}
}

// assembleAll lowers the region for every target and assembles it.
func assembleAll(t *testing.T, region *ir.Node) {
	t.Helper()
	names := target.Names()
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		tgt, err := target.Lookup(name)
		require.NoError(t, err)
		spec, err := Lower(region, &kernel.Context{Target: tgt})
		require.NoError(t, err)
		assemble(t, spec, tgt)
	}
}
