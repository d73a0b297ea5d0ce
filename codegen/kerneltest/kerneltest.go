// Package kerneltest is the harness of every test of kernels: it builds a region, or a graph of them, with data for
// its inputs, lowers it with a kernel family, runs the kernel on the CPU device with all checks on, and compares what
// it wrote with the reference evaluator.
package kerneltest

import (
	"bytes"
	"context"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Run executes the spec twice, so that a counter which is not reset would show, and returns what it wrote.
func Run(t testing.TB, spec *kernel.Spec, tgt *target.Target, data map[*ir.Value]*ir.Tensor) map[*ir.Value]*ir.Tensor {
	t.Helper()
	text := spec.Build(tgt, "k").String()
	require.Equal(t, text, spec.Build(tgt, "k").String(), "the text is not reproducible")
	out := map[*ir.Value]*ir.Tensor{}
	var args []any
	for _, o := range spec.Operands {
		switch {
		case o.Const != nil:
			args = append(args, emu.Const{Data: o.Const})
		case o.Value != nil && o.Write:
			x := &ir.Tensor{Type: o.Value.Type, Data: make([]byte, o.Value.Type.Bytes())}
			out[o.Value] = x
			args = append(args, emu.Out{Data: x.Data})
		case o.Value != nil && o.Value.IsConst():
			args = append(args, emu.Const{Data: o.Value.Const.Dense()})
		case o.Value != nil:
			require.NotNil(t, data[o.Value], "operand %s without data", o.Value.Name)
			args = append(args, data[o.Value].Dense())
		case o.Number != nil && strings.HasSuffix(o.Number.Type, "64"):
			args = append(args, o.Number.Bits)
		case o.Number != nil:
			args = append(args, uint32(o.Number.Bits))
		case o.Workspace > 0:
			args = append(args, bytes.Repeat([]byte{0xff}, o.Workspace)) // NaN
		default:
			args = append(args, make([]byte, o.Counter))
		}
	}
	first := map[*ir.Value][]byte{}
	for i := range 2 {
		require.NoError(t, emu.RunKernelWith(emu.Options{Check: true, CutOff: emu.CutOffs(tgt.SumBits)}, text, "k", spec.Grid, spec.Block, spec.Shared, args...))
		for v, x := range out {
			if i == 0 {
				first[v] = bytes.Clone(x.Data)
			}
			require.Equal(t, first[v], x.Data, "two runs differ")
		}
	}
	return out
}

// Reference evaluates a region, rounding where it stores and casts.
func Reference(t testing.TB, region *ir.Node, data map[*ir.Value]*ir.Tensor) []*ir.Array {
	t.Helper()
	g := ir.NewGraph("reference")
	g.Nodes, g.Outputs = []*ir.Node{region}, region.Outputs
	in := map[string]*ir.Array{}
	for v, x := range data {
		if !v.IsConst() {
			g.Inputs = append(g.Inputs, v)
			in[v.Name] = x.Array()
		}
	}
	byName, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	var out []*ir.Array
	for _, v := range region.Outputs {
		out = append(out, byName[v.Name])
	}
	return out
}

// Fixed chooses one schedule for every kernel.
type Fixed string

// Schedule implements kernel.ScheduleCache.
func (f Fixed) Schedule(string) (string, bool) { return string(f), true }

// Plans lowers plans of a region's space, some of them drawn by chance, compares what each computes with the
// reference, and wants of each that it is the one that was asked for. It returns the plans.
func (r *Region) Plans(f kernel.Family, ctx *kernel.Context, rng *rand.Rand, some int) []*kernel.Spec {
	r.t.Helper()
	s, err := f.Space(r.Node, ctx)
	require.NoError(r.t, err)
	own, err := f.Lower(r.Node, ctx)
	require.NoError(r.t, err)
	require.Equal(r.t, own.Signature, s.Signature)
	texts, defaults := map[string]bool{}, 0
	for _, p := range s.Candidates {
		require.False(r.t, texts[p.Schedule], "%s is there twice", p.Schedule)
		texts[p.Schedule] = true
		if p.Schedule == s.Default {
			defaults++
		}
	}
	require.Equal(r.t, 1, defaults, s.Default)
	var out []*kernel.Spec
	for i, at := range append([]int{0}, rng.Perm(len(s.Candidates))...) {
		if i > some {
			break
		}
		in, text := *ctx, s.Candidates[at].Schedule
		if i == 0 {
			text = s.Default
		}
		in.Schedules = Fixed(text)
		spec, err := f.Lower(r.Node, &in)
		require.NoError(r.t, err, text)
		require.True(r.t, strings.HasPrefix(spec.Schedule, text), "%s became %s", text, spec.Schedule)
		require.Equal(r.t, s.Signature, spec.Signature)
		if i == 0 {
			require.Equal(r.t, own.Build(ctx.Target, "k").String(), spec.Build(ctx.Target, "k").String(), "the default, chosen from outside")
		}
		r.CheckSpec(spec, ctx.Target)
		out = append(out, spec)
	}
	return out
}
