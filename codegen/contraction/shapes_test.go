package contraction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

func TestShapes(t *testing.T) {
	f16 := ir.Float16
	type regioner interface{ region(b *body) *ir.Node }
	for _, name := range target.Names() {
		tgt, err := target.Lookup(name)
		require.NoError(t, err)
		for _, c := range []regioner{
			convCase{64 * 2, 128 * 2, 16, 64, 3, 2, 1, 1, f16},
			convCase{32, 64, 64, 64, 1, 1, 0, 1, f16},
			convCase{32, 64, 64, 256, 1, 1, 0, 1, f16},
			convCase{32, 64, 256, 64, 1, 1, 0, 1, f16},
			convCase{16, 32, 128, 512, 1, 1, 0, 1, f16},
			convCase{16, 32, 512, 128, 1, 1, 0, 1, f16},
			convCase{8, 16, 256, 1024, 1, 1, 0, 1, f16},
			convCase{8, 16, 1024, 256, 1, 1, 0, 1, f16},
			convCase{4, 8, 512, 2048, 1, 1, 0, 1, f16},
			convCase{4, 8, 2048, 512, 1, 1, 0, 1, f16},
			gemmCase{m: 25, k: 528, n: 384, dtype: f16},
			gemmCase{m: 25, k: 384, n: 1152, dtype: f16},
			gemmCase{m: 25, k: 384, n: 384, dtype: f16},
			gemmCase{m: 25, k: 1536, n: 384, dtype: f16},
			gemmCase{m: 32, k: 512, n: 1536, dtype: f16},
			gemmCase{m: 25, k: 1536, n: 384, dtype: ir.Float32},
			convCase{320, 160, 8, 32, 3, 2, 1, 1, ir.Float32},
			convCase{160, 80, 32, 16, 1, 1, 0, 1, ir.Float32},
			convCase{160, 80, 16, 96, 1, 1, 0, 1, ir.Float32},
			convCase{80, 40, 144, 24, 1, 1, 0, 1, ir.Float32},
			convCase{40, 20, 240, 40, 1, 1, 0, 1, ir.Float32},
			convCase{20, 10, 112, 672, 1, 1, 0, 1, ir.Float32},
			convCase{20, 10, 672, 112, 1, 1, 0, 1, ir.Float32},
			convCase{20, 10, 672, 112, 1, 1, 0, 1, f16},
		} {
			b := newBody(t)
			ctx := &kernel.Context{Target: tgt}
			p, err := normalise(c.region(b), ctx)
			require.NoError(t, err)
			s, reason, err := choose(p, ctx)
			require.NoError(t, err)
			spec, err := lower(p, s, ctx)
			require.NoError(t, err)
			assemble(t, spec, tgt)
			l := Inspect(spec)
			t.Logf("%+v %.1f %.2f", l, l.PerSharedLoad(), l.Wide())
			t.Logf("%s  %s  %v %v %s res=%d", note(p), s, s.blocks(p), s.estimate(p, tgt).us, reason, s.resident(p, tgt))
		}
	}
}
