package loop

import (
	"maps"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// fusedCase builds loops of a graph each of which reads its predecessor; kept says that the first's outputs are
// results.
type fusedCase struct {
	name  string
	kept  bool
	build func(g *kerneltest.Graph) []*kerneltest.Region
}

// region is the fused region; the returned region checks it.
func (c *fusedCase) region(t testing.TB) *kerneltest.Region {
	list := c.build(kerneltest.NewGraph(t, "g"))
	var parts []*ir.Node
	for _, r := range list {
		parts = append(parts, r.Node)
	}
	require.NoError(t, ir.CheckFusion(parts))
	last := list[len(list)-1]
	last.Node = ir.NewFused(parts, c.kept)
	for i, v := range last.Node.Outputs {
		v.Def, v.Index = last.Node, i
	}
	last.Nodes, last.Outputs = []*ir.Node{last.Node}, last.Node.Outputs
	return last
}

const f16, bf16, f32, e4m3 = ir.Float16, ir.BFloat16, ir.Float32, ir.Float8E4M3FN

func eights(n int) kerneltest.Draw {
	return func(r *rand.Rand, _ int) float64 { return float64(8 * r.Intn(n)) }
}

// layer is a matrix-vector product of n rows of k with a vector's elements from an offset on, followed by an op.
func layer(g *kerneltest.Graph, x *ir.Value, n, k int, w, y ir.DType, after string, offsets kerneltest.Draw) *kerneltest.Region {
	r := g.Region(ir.FamilyLoop)
	in := r.Cast(r.Read(x, false), f32)
	size := x.Type.Numel()
	if x.Type.Rank() != 1 {
		in = r.Add("Reshape", ir.Attrs{"shape": []int{size}}, in)
	}
	weights, bias := r.Cast(r.Input(ir.T(w, n, k), 0.2, true, false), f32), r.Input(ir.T(f32, n), 1, true, false)
	offset := r.Body.Constant("o", ir.SplatInt(ir.T(ir.Int32, n), 0))
	if offsets != nil {
		offset = r.Fill(ir.T(ir.Int32, n), offsets, true, false)
	}
	length := r.Body.Constant("l", ir.SplatInt(ir.T(ir.Int32, n), int64(k)))
	z := r.Add("SegmentedMatVec", nil, in, weights, bias, offset, length)
	if after != "" {
		z = r.Add(after, nil, z)
	}
	r.Finish(r.Cast(z, y))
	return r
}

// normal normalises [1,m,k]; its results are y, and z if that is a type.
func normal(g *kerneltest.Graph, op string, m, k int, x, y, z ir.DType) *kerneltest.Region {
	r := g.Region(ir.FamilyLoop)
	out := r.Add(op, ir.Attrs{"axis": 2}, r.Cast(r.Input(ir.T(x, 1, m, k), 3, false, false), f32))
	outs := []*ir.Value{r.Cast(out, y)}
	if z != ir.Invalid {
		outs = append(outs, r.Cast(out, z))
	}
	r.Finish(outs...)
	return r
}

var fusedCases = []fusedCase{
	{name: "a head after a norm", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "LayerNorm", 1, 384, f32, f32, ir.Invalid)
		return []*kerneltest.Region{a, layer(g, a.Node.Outputs[0], 770, 384, f16, f32, "Relu", nil)}
	}},
	{name: "odd sizes", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "LayerNorm", 3, 67, f16, bf16, ir.Invalid)
		return []*kerneltest.Region{a, layer(g, a.Node.Outputs[0], 31, 201, bf16, f16, "", nil)}
	}},
	{name: "a norm with other readers", kept: true, build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "Softmax", 2, 96, f32, f32, f16)
		return []*kerneltest.Region{a, layer(g, a.Node.Outputs[0], 300, 64, e4m3, f32, "Sigmoid", below(128))}
	}},
	{name: "four layers", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		x := g.Drawn(ir.T(f32, 800), kerneltest.Numbers(f32, 1), false)
		a := layer(g, x, 112, 800, f16, f32, "Relu", nil)
		b := layer(g, a.Node.Outputs[0], 80, 48, f16, f32, "Relu", eights(9))
		c := layer(g, b.Node.Outputs[0], 48, 33, f16, f16, "Relu", below(47))
		return []*kerneltest.Region{a, b, c, layer(g, c.Node.Outputs[0], 39, 16, f16, f16, "Sigmoid", below(32))}
	}},
	{name: "each channel its own factor", build: gated(2, 64, 128, f32)},
	{name: "each channel its own factor, stored in 16 bits", kept: true, build: gated(3, 40, 33, f16)},
	{name: "moved, then added up", kept: true, build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := g.Region(ir.FamilyLoop)
		x := a.Cast(a.Input(ir.T(f16, 12, 10), 1, false, false), f32)
		a.Finish(a.Add("Transpose", ir.Attrs{"perm": []int{1, 0}}, a.Add("Gelu", nil, x)))
		b := g.Region(ir.FamilyLoop)
		b.Finish(b.Add("CumSum", ir.Attrs{"axis": 1}, b.Read(a.Node.Outputs[0], false)))
		return []*kerneltest.Region{a, b}
	}},
	{name: "integers", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := g.Region(ir.FamilyLoop)
		a.Finish(a.Add("ArgMax", ir.Attrs{"axis": 1, "keepdims": false}, a.Input(ir.T(f32, 9, 40), 1, false, false)))
		b := g.Region(ir.FamilyLoop)
		b.Finish(b.Add("ReduceSum", ir.Attrs{"axes": []int{0}, "keepdims": true}, b.Read(a.Node.Outputs[0], false)))
		return []*kerneltest.Region{a, b}
	}},
	{name: "two results between", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "RMSNorm", 2, 40, f32, f32, ir.Invalid)
		b := g.Region(ir.FamilyLoop)
		x := b.Read(a.Node.Outputs[0], false)
		b.Finish(b.Add("Tanh", nil, x), b.Add("Gelu", nil, x))
		c := g.Region(ir.FamilyLoop)
		c.Finish(c.Add("Softmax", ir.Attrs{"axis": 2}, c.Add("Mul", nil, c.Read(b.Node.Outputs[0], false), c.Read(b.Node.Outputs[1], false))))
		return []*kerneltest.Region{a, b, c}
	}},
	{name: "flat after rows", build: func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "RMSNorm", 2, 200, f32, f16, ir.Invalid)
		b := g.Region(ir.FamilyLoop)
		x := b.Cast(b.Read(a.Node.Outputs[0], false), f32)
		b.Finish(b.Cast(b.Add("Expand", ir.Attrs{"shape": []int{8, 2, 200}}, b.Add("Tanh", nil, x)), f16))
		return []*kerneltest.Region{a, b}
	}},
}

// gated is a layer whose outputs are factors of channels of an image with members, which is then averaged.
func gated(members, channels, k int, stored ir.DType) func(g *kerneltest.Graph) []*kerneltest.Region {
	return func(g *kerneltest.Graph) []*kerneltest.Region {
		x := g.Drawn(ir.T(f32, members*k), kerneltest.Numbers(f32, 1), false)
		n := members * channels
		a := g.Region(ir.FamilyLoop)
		w := a.Cast(a.Input(ir.T(f16, n, k), 0.2, true, false), f32)
		length := a.Body.Constant("l", ir.SplatInt(ir.T(ir.Int32, n), int64(k)))
		own := func(_ *rand.Rand, i int) float64 { return float64(i / channels * k) }
		y := a.Add("SegmentedMatVec", nil, a.Read(x, false), w, a.Input(ir.T(f32, n), 1, true, false), a.Fill(ir.T(ir.Int32, n), own, true, false), length)
		a.Finish(a.Cast(a.Add("Reshape", ir.Attrs{"shape": []int{members, 1, 1, 1, channels}}, a.Add("Sigmoid", nil, y)), stored))
		b := g.Region(ir.FamilyLoop).Members(members)
		image := b.Cast(b.Input(ir.T(f16, 1, 4, 5, channels), 1, false, true), f32)
		z := b.Add("Gelu", nil, b.Add("Mul", nil, image, b.Cast(b.Read(a.Node.Outputs[0], true), f32)))
		b.Finish(b.Add("ReduceMean", ir.Attrs{"axes": []int{1, 2}, "keepdims": true}, z))
		return []*kerneltest.Region{a, b}
	}
}

func TestFusedLoops_EqualTheReference(t *testing.T) {
	fulltest.Long(t)
	for _, c := range fusedCases {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(target+" "+c.name, func(t *testing.T) {
				b, ctx := c.region(t), kerneltest.Target(t, target)
				spec := b.Check(Family.Lower, ctx)
				t.Log(spec.Schedule, spec.Grid, cost.Of(ctx.Target).Estimate(spec.Work))
				require.Equal(t, ir.FamilyFused, spec.Family)
				kerneltest.Assemble(t, spec, ctx.Target)
				again, err := Family.Lower(b.Node, ctx)
				require.NoError(t, err)
				require.Equal(t, spec.Build(ctx.Target, "k").String(), again.Build(ctx.Target, "k").String(), "lowering is not reproducible")
			})
		}
	}
}

// TestFusedLoops_ChangeNoBit: the parts as separate launches, with the same teams, give the same bits.
func TestFusedLoops_ChangeNoBit(t *testing.T) {
	for _, c := range fusedCases {
		t.Run(c.name, func(t *testing.T) {
			b, ctx := c.region(t), kerneltest.Target(t, "sm_121")
			lowered, err := newFusedLoops(b.Node, ctx)
			require.NoError(t, err)
			own, err := lowered.Choose()
			require.NoError(t, err)
			s := own.Schedule.(*fusedSchedule)
			spec, err := lowered.Spec(own)
			require.NoError(t, err)
			together := kerneltest.Run(t, spec, ctx.Target, b.Data)
			data := maps.Clone(b.Data)
			for i, part := range b.Node.Parts() {
				maps.Copy(data, kerneltest.Run(t, alone(t, part, s.parts[i], ctx), ctx.Target, data))
			}
			for _, v := range b.Node.Outputs {
				require.Equal(t, data[v].Dense(), together[v].Dense(), v.Name)
			}
		})
	}
}

// alone is the kernel of a part by itself with a schedule's teams.
func alone(t *testing.T, part *ir.Node, s *schedule, ctx *kernel.Context) *kernel.Spec {
	region, err := part.Explicit()
	require.NoError(t, err)
	p, err := newProblem(region, ctx)
	require.NoError(t, err)
	one := p.flatVector(s.vector)
	if s.team > 1 {
		one = p.rowSchedule(s.inRow, s.team, s.adjacent)
		one.vector = s.vector
		if !s.adjacent {
			one.blocks = ceilDiv(p.elements/s.vector, one.teams)
		}
	}
	_, err = p.work(one, cost.Of(ctx.Target))
	require.NoError(t, err)
	return &kernel.Spec{Stem: "alone", Family: ir.FamilyLoop, Grid: [3]int{one.blocks, 1, 1}, Block: [3]int{one.threads, 1, 1}, Shared: one.shared,
		Operands: p.l.Operands, Emit: func(k *ptx.Kernel, params []ptx.Sym) { p.emit(one, k, params, nil) }}
}

// TestFusedLoops_LoadLaterWeightsBeforeTheWait: the f16 weights that the last loop multiplies are loaded before the
// kernel waits for its predecessor.
func TestFusedLoops_LoadLaterWeightsBeforeTheWait(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	spec, err := Family.Lower(fusedCases[0].region(t).Node, ctx)
	require.NoError(t, err)
	producers, _, found := strings.Cut(spec.Build(ctx.Target, "k").String(), "griddepcontrol.wait")
	require.True(t, found)
	require.Greater(t, strings.Count(producers, "ld.global.v"), 2)
}

// TestFusedLoops_EveryScheduleComputesTheSame, of which SPARK_FULL runs all: turns, teams of several warps, one
// block, blocks whose last rows are none.
func TestFusedLoops_EveryScheduleComputesTheSame(t *testing.T) {
	fulltest.Long(t)
	for _, c := range fusedCases {
		b, ctx := c.region(t), kerneltest.Target(t, "sm_121")
		tried := 0
		for _, threads := range blockSizes {
			probe, err := newFusedLoops(b.Node, ctx)
			require.NoError(t, err)
			var begins [][]*schedule
			for _, p := range probe.parts[:len(probe.parts)-1] {
				begins = append(begins, p.inBlock(threads))
			}
			lasts := probe.lasts(threads)
			for i, last := range lasts {
				if len(lasts) > 4 && i%4 != 0 && !fulltest.Runs(t.Name()) {
					continue
				}
				s := &fusedSchedule{threads: threads, turns: last.turns}
				for k, list := range begins {
					s.parts = append(s.parts, list[(i+k)%len(list)])
				}
				s.parts = append(s.parts, last.schedule)
				work := s.work(probe, cost.Of(ctx.Target))
				if s.shared > maxShared {
					continue
				}
				lowered, err := newFusedLoops(b.Node, ctx)
				require.NoError(t, err)
				spec, err := lowered.Spec(kernel.Choice{Schedule: s, Work: work})
				require.NoError(t, err)
				b.CheckSpec(spec, ctx.Target)
				tried++
			}
		}
		t.Logf("%s: %d schedules", c.name, tried)
		require.GreaterOrEqual(t, tried, len(blockSizes), c.name)
	}
}

func TestFusedLoops_Refuses(t *testing.T) {
	refused := func(want string, build func(g *kerneltest.Graph) []*kerneltest.Region) {
		t.Helper()
		c := fusedCase{build: build}
		_, err := Family.Lower(c.region(t).Node, kerneltest.Target(t, "sm_121"))
		require.ErrorContains(t, err, want)
	}
	refused("between the loops: at most", func(g *kerneltest.Graph) []*kerneltest.Region {
		a := normal(g, "LayerNorm", 10, 1000, f32, f32, ir.Invalid)
		return []*kerneltest.Region{a, layer(g, a.Node.Outputs[0], 16, 64, f16, f32, "", nil)}
	})
	refused("every block would read", func(g *kerneltest.Graph) []*kerneltest.Region {
		x := g.Drawn(ir.T(f32, 512), kerneltest.Numbers(f32, 1), false)
		a := layer(g, x, 512, 512, f16, f32, "", nil)
		return []*kerneltest.Region{a, layer(g, a.Node.Outputs[0], 16, 64, f16, f32, "", nil)}
	})
	refused("share bytes", func(g *kerneltest.Graph) []*kerneltest.Region {
		a := g.Region(ir.FamilyLoop)
		a.Finish(a.Add("Cast", ir.Attrs{"to": ir.Int4}, a.Input(ir.T(f32, 64), 3, false, false)))
		b := g.Region(ir.FamilyLoop)
		b.Finish(b.Add("ReduceSum", ir.Attrs{"axes": []int{0}, "keepdims": true}, b.Add("Cast", ir.Attrs{"to": f32}, b.Read(a.Node.Outputs[0], false))))
		return []*kerneltest.Region{a, b}
	})
}
