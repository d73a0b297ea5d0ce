package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// shape is a window region to test.
type shape struct {
	op                  string // Conv, MaxPool, AveragePool
	d                   ir.DType
	n, h, w, c          int
	multiplier          int
	k, stride, pad, dil int
	members             int
	residual, gelu      bool
	blocks              bool // the output is quantised in blocks
}

func (s shape) String() string {
	return fmt.Sprintf("%s %v %dx%dx%dx%d·%d k%d s%d p%d d%d members=%d residual=%v gelu=%v blocks=%v", s.op, s.d, s.n, s.h, s.w, s.c, s.multiplier, s.k, s.stride, s.pad, s.dil, s.members, s.residual, s.gelu, s.blocks)
}

// region builds the region as the passes do: narrow values are cast at its borders, weights and bias are f32 constants.
func (s shape) region(t *testing.T) *kerneltest.Region {
	t.Helper()
	return s.in(kerneltest.NewGraph(t, "g"), nil)
}

// in is the region in a graph, of an image there or of one of its own.
func (s shape) in(g *kerneltest.Graph, image *ir.Value) *kerneltest.Region {
	r := g.Region(ir.FamilyWindow).Members(s.members)
	r.Limits[ir.Float32] = 1e-6
	batched := s.members > 0
	input := func(typ ir.Type, constant bool) *ir.Value {
		return r.Cast(r.Input(typ, 1, constant, batched), ir.Float32)
	}
	var x *ir.Value
	if image != nil {
		x = r.Cast(r.Read(image, batched), ir.Float32)
	} else {
		x = input(ir.T(s.d, s.n, s.h, s.w, s.c), false)
	}
	attrs := ir.Attrs{"strides": []int{s.stride, s.stride}, "pads": []int{s.pad, s.pad, s.pad, s.pad}, "dilations": []int{s.dil, s.dil}, "layout": "NHWC"}
	var y *ir.Value
	switch s.op {
	case "Conv":
		attrs["group"] = s.c
		w := input(ir.T(ir.Float32, s.c*s.multiplier, 1, s.k, s.k), true)
		y = r.Add("Conv", attrs, x, w, input(ir.T(ir.Float32, s.c*s.multiplier), true))
	default:
		attrs["kernel"] = []int{s.k, s.k}
		if s.op == "AveragePool" && s.pad > 0 {
			attrs["include_pad"] = true
		}
		y = r.Add(s.op, attrs, x)
	}
	if s.residual {
		y = r.Add("Add", nil, y, input(ir.T(s.d, y.Type.Shape...), false))
	}
	if s.gelu {
		y = r.Add("Gelu", nil, y)
	}
	if s.blocks {
		r.FinishBlocks(y, 0.37)
	} else {
		r.Finish(r.Cast(y, s.d))
	}
	return r
}

var shapes = []shape{
	{op: "Conv", d: ir.Float16, n: 1, h: 6, w: 8, c: 16, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1},
	{op: "Conv", d: ir.Float16, n: 1, h: 8, w: 16, c: 64, multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1, residual: true},
	{op: "Conv", d: ir.Float16, n: 1, h: 9, w: 13, c: 8, multiplier: 2, k: 7, stride: 2, pad: 3, dil: 1, members: 2, gelu: true},
	{op: "Conv", d: ir.Float16, n: 2, h: 5, w: 5, c: 24, multiplier: 1, k: 5, stride: 2, pad: 2, dil: 1},
	{op: "Conv", d: ir.Float32, n: 1, h: 10, w: 5, c: 12, multiplier: 1, k: 5, stride: 1, pad: 2, dil: 1, gelu: true},
	{op: "Conv", d: ir.Float32, n: 1, h: 7, w: 6, c: 6, multiplier: 1, k: 3, stride: 1, pad: 0, dil: 2, members: 3, residual: true},
	{op: "Conv", d: ir.Float32, n: 1, h: 4, w: 4, c: 5, multiplier: 3, k: 3, stride: 1, pad: 1, dil: 1},
	{op: "Conv", d: ir.BFloat16, n: 1, h: 4, w: 6, c: 8, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1},
	{op: "Conv", d: ir.Float16, n: 1, h: 128, w: 256, c: 64, multiplier: 1, k: 3, stride: 2, pad: 1, dil: 1},
	{op: "Conv", d: ir.Float16, n: 1, h: 20, w: 10, c: 96, multiplier: 1, k: 5, stride: 1, pad: 2, dil: 1, gelu: true},
	{op: "Conv", d: ir.Float16, n: 1, h: 32, w: 64, c: 64, multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1, members: 2},
	{op: "Conv", d: ir.Float16, n: 1, h: 1, w: 2, c: 8, multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1}, // rows that are all padding
	{op: "Conv", d: ir.Float8E4M3FN, n: 1, h: 32, w: 32, c: 256, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1, gelu: true},
	{op: "Conv", d: ir.Float8E4M3FN, n: 1, h: 8, w: 16, c: 24, multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1, residual: true},
	{op: "Conv", d: ir.Float8E4M3FN, n: 1, h: 5, w: 7, c: 5, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1},
	{op: "Conv", d: ir.Float16, n: 1, h: 9, w: 10, c: 64, multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1, members: 2, residual: true, blocks: true},
	{op: "Conv", d: ir.Float16, n: 2, h: 9, w: 7, c: 32, multiplier: 2, k: 3, stride: 2, pad: 1, dil: 1, gelu: true, blocks: true},
	{op: "Conv", d: ir.Float16, n: 1, h: 9, w: 7, c: 16, multiplier: 3, k: 3, stride: 1, pad: 1, dil: 1, blocks: true},
	{op: "Conv", d: ir.Float8E4M3FN, n: 1, h: 32, w: 64, c: 128, multiplier: 1, k: 5, stride: 1, pad: 2, dil: 1, blocks: true},
	{op: "MaxPool", d: ir.BFloat16, n: 1, h: 9, w: 9, c: 64, k: 3, stride: 2, pad: 1, dil: 1, blocks: true},
	{op: "AveragePool", d: ir.Float32, n: 1, h: 6, w: 8, c: 16, k: 3, stride: 1, pad: 1, dil: 1, gelu: true, blocks: true},
	{op: "MaxPool", d: ir.Float8E4M3FN, n: 1, h: 7, w: 9, c: 16, k: 3, stride: 2, pad: 1, dil: 1},
	{op: "MaxPool", d: ir.Float16, n: 1, h: 7, w: 9, c: 16, k: 3, stride: 2, pad: 1, dil: 1},
	{op: "MaxPool", d: ir.Float32, n: 2, h: 6, w: 6, c: 3, k: 2, stride: 2, pad: 0, dil: 1, members: 2},
	{op: "AveragePool", d: ir.Float32, n: 1, h: 6, w: 8, c: 4, k: 3, stride: 1, pad: 1, dil: 1},
	{op: "AveragePool", d: ir.Float16, n: 1, h: 6, w: 8, c: 8, k: 2, stride: 2, pad: 0, dil: 1, residual: true},
}

func TestWindowsAgreeWithTheEvaluator(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.String(), func(t *testing.T) { s.region(t).Check(Family.Lower, kerneltest.Target(t, "sm_121")) })
	}
}

// TestEveryScheduleIsRight runs schedules that no choice made: tiles that hang over the image, threads that are idle,
// windows that are unrolled and looped over.
func TestEveryScheduleIsRight(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	const runs = 6 // of a shape
	for _, s := range shapes {
		if s.h*s.w*s.c > 1<<13 {
			continue
		}
		r := s.region(t)
		p, err := analyse(r.Node)
		require.NoError(t, err)
		all := p.candidates()
		for range min(runs, len(all)) {
			c := all[r.Rand.Intn(len(all))]
			if c.shared(p) > ctx.Target.SharedBlock {
				continue
			}
			spec, err := p.spec(c.placed(p), ctx, r.Node)
			require.NoError(t, err)
			r.CheckSpec(spec, ctx.Target)
		}
	}
}

func TestWindow_RefusesOtherRegions(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for why, attrs := range map[string]ir.Attrs{"divisor varies": {"ceil": true}, "layout": {"layout": "NCHW"}} {
		region := shape{op: "AveragePool", d: ir.Float32, n: 1, h: 6, w: 6, c: 6, k: 3, stride: 1, pad: 0, dil: 1}.region(t).Node
		for k, v := range attrs {
			region.Region.Body.Nodes[0].Attrs[k] = v
		}
		_, err := Family.Lower(region, ctx)
		require.ErrorContains(t, err, why)
	}
}

func TestAWindowThatFitsNoBlockIsRefused(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	region := shape{op: "AveragePool", d: ir.Float16, n: 1, h: 200, w: 200, c: 1, k: 200, stride: 1, dil: 1}.region(t).Node
	_, err := Family.Lower(region, ctx)
	require.ErrorContains(t, err, "fits into shared memory")
}

func TestBlocksWantATargetThatConvertsThem(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_90")
	region := shape{op: "MaxPool", d: ir.Float16, n: 1, h: 4, w: 4, c: 16, k: 2, stride: 2, dil: 1, blocks: true}.region(t).Node
	_, err := Family.Lower(region, ctx)
	require.ErrorContains(t, err, "e2m1")
}

func TestPtxasTakesEveryKernelWithoutSpills(t *testing.T) {
	fulltest.Long(t)
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, name := range target.Names() {
		ctx := kerneltest.Target(t, name)
		for _, s := range shapes {
			if s.blocks && !ctx.Target.Multiplies("e2m1") {
				continue
			}
			region := s.region(t).Node
			spec, err := Family.Lower(region, ctx)
			require.NoError(t, err)
			r, err := tool.Assemble(context.Background(), spec.Build(ctx.Target, "k").String(), ctx.Target.Name)
			require.NoError(t, err, s.String())
			require.Zero(t, r.Usage[0].Spills, s.String())
			require.LessOrEqual(t, r.Usage[0].Regs, 128, s.String())
			t.Logf("%s %s: %d registers", name, s, r.Usage[0].Regs)
		}
	}
}

// TestGlobalBytesMoveInWideAccesses: what a thread asks of global memory, it asks for 16 bytes at a time. A tile's
// NVFP4 output is narrower: a vector of channels is a block, 8 bytes and a scale.
func TestGlobalBytesMoveInWideAccesses(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, s := range shapes {
		if s.c%16 != 0 || s.blocks {
			continue
		}
		region := s.region(t).Node
		spec, err := Family.Lower(region, ctx)
		require.NoError(t, err)
		all, wide := 0, 0
		for _, x := range spec.Build(ctx.Target, "k").Kernels[0].Body {
			if x.Instr == nil {
				continue
			}
			if n := globalBytes(x.Instr); n > 0 {
				all += n
				if n == 16 {
					wide += n
				}
			}
		}
		require.GreaterOrEqual(t, float64(wide), 0.9*float64(all), "%v: %d of %d bytes", s, wide, all)
	}
}

// TestTilesAreReadWithoutBankConflicts: rows of inputs are padded so that the lanes of a warp access different banks,
// where channels and pixels are powers of two.
func TestTilesAreReadWithoutBankConflicts(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, s := range shapes {
		if s.c%16 != 0 || s.c&(s.c-1) != 0 || s.w%8 != 0 || s.op != "Conv" {
			continue
		}
		region := s.region(t).Node
		p, err := analyse(region)
		require.NoError(t, err)
		own, err := (&tiled[schedule]{p, ctx, region}).Choose()
		require.NoError(t, err)
		c := own.Schedule.(schedule)
		require.Equal(t, c.inputVector(p), c.wavefronts(p), "%v: %v", s, c)
	}
}

// globalBytes is how many bytes an instruction moves from or to global memory.
func globalBytes(in *ptx.Instr) int {
	switch d := in.Def; {
	case d.Name == "cp" && len(in.Operands) == 4:
		return int(in.Operands[2].(ptx.Imm))
	case (d.Name == "ld" || d.Name == "st") && slices.Contains(d.Mods, "global"):
		arg := d.Args[0]
		if d.Name == "st" {
			arg = d.Args[1]
		}
		return max(arg.Count, 1) * map[string]int{"u8": 1, "b16": 2, "b32": 4, "f32": 4, "b64": 8, "f64": 8}[arg.Type]
	}
	return 0
}
