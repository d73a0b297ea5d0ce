package gputest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/ptx/mmaprobe"
)

// accumulatorCases show how the device adds the products of an mma of floats. What is kept is measured, not compared.
func accumulatorCases(d *ptx.Def) []*Case {
	p := mmaprobe.For(d)
	if p == nil {
		return nil
	}
	of := func(suffix string, k mmaprobe.Kernel, rule Rule) *Case {
		return &Case{Name: d.Op + suffix, Op: d.Op, Inputs: k.Inputs, Output: k.Output, Blocks: k.Blocks, Threads: 32, Rule: rule,
			emit: func(b *body) { k.Emit(b.Kernel, b.in, b.out, b.item) }}
	}
	return []*Case{of("+kept", p.Kept, Rule{Measured: true}), of("+sums", p.Added, Rule{Float: "f32", Relative: 0.05})}
}

// accumulators reads how a device adds, by opcode, from the outputs of its cases; an mma that lacks one is left out.
func accumulators(cases []*Case, output func(c *Case) []byte) map[string]mmaprobe.Accumulator {
	kept, out := map[string][]byte{}, map[string]mmaprobe.Accumulator{}
	for _, c := range cases { // in order of their names
		switch strings.TrimPrefix(c.Name, c.Op) {
		case "+kept":
			kept[c.Op] = output(c)
		case "+sums":
			if added := output(c); added != nil && kept[c.Op] != nil {
				out[c.Op] = mmaprobe.For(ptx.Lookup(c.Op)).Read(kept[c.Op], added)
			}
		}
	}
	return out
}

// TestAccumulatorsAreFound: the CPU device adds in f32, and, told to cut sums off at some bits, is seen to.
func TestAccumulatorsAreFound(t *testing.T) {
	ctx := context.Background()
	var cases []*Case
	for _, c := range availableCases("sm_121a") {
		if strings.HasSuffix(c.Name, "+kept") || strings.HasSuffix(c.Name, "+sums") {
			cases = append(cases, c)
		}
	}
	for _, bits := range []int{0, 10, 13, 22} {
		cut := map[string]int{}
		for _, c := range cases {
			if bits > 0 {
				cut[c.Op] = bits
			}
		}
		d, err := emu.Open(emu.Options{CutOff: cut})
		require.NoError(t, err)
		r := &Runner{Device: d, Target: "sm_121a"}
		require.NoError(t, r.Open(ctx, cases))
		found := accumulators(cases, func(c *Case) []byte {
			out, err := r.Run(ctx, c)
			require.NoError(t, err)
			return out
		})
		require.Len(t, found, len(cases)/2)
		for op, a := range found {
			t.Logf("%d bits: %s: %v", bits, op, a)
			p, want := mmaprobe.For(ptx.Lookup(op)), bits
			if bits == 0 {
				want = 23
			}
			require.Equal(t, bits == 0, a.Exact(), "%s: %+v", op, a)
			require.Equal(t, want, a.Kept, "%s: %+v", op, a)
			if bits == 0 { // the specification adds terms that cancel before it adds the small one
				require.Equal(t, p.Reach(), a.Within, "%s: %+v", op, a)
			} else {
				require.Equal(t, min(bits, p.Reach()), a.Within, "%s: %+v", op, a)
			}
			// Products of narrow numbers have few bits, so that nothing of their sums is dropped.
			wide := strings.Contains(op, "f16") || strings.Contains(op, "tf32")
			if bits == 10 || bits == 13 && !strings.Contains(op, "e2m1.e2m1") || bits > 0 && wide {
				require.Less(t, a.Bias[2048], -mmaprobe.Unbiased, "%s: %+v", op, a)
			}
		}
		require.NoError(t, d.Close())
	}
}
