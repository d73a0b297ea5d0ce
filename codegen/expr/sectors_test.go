package expr

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestAStraightLineComesToWhatSubstitutionDoes: indices without memory are computed, not substituted.
func TestAStraightLineComesToWhatSubstitutionDoes(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 300 {
		b := NewBuilder()
		vars := []*Expr{b.Index("a", 40), b.Index("b", 20), b.Index("c", 1<<20), b.Var("d", S32, -(1 << 31), 1<<31-1, 1)}
		pool := append([]*Expr(nil), vars...)
		pick := func() *Expr { return pool[r.Intn(len(pool))] }
		for range 20 {
			x, y, c := pick(), pick(), int64(1+r.Intn(1<<r.Intn(16)))
			pool = append(pool, []func() *Expr{
				func() *Expr { return b.Add(x, y) }, func() *Expr { return b.Sub(x, y) }, func() *Expr { return b.Mul(x, y) },
				func() *Expr { return b.Offset(b.Scale(x, c), -c/2) }, func() *Expr { return b.FloorDiv(x, c) }, func() *Expr { return b.FloorMod(x, c) },
				func() *Expr { return b.Min(x, y) }, func() *Expr { return b.Max(x, y) }, func() *Expr { return b.Abs(x) },
				func() *Expr { return b.Div(x, y) }, func() *Expr { return b.Rem(x, y) }, func() *Expr { return b.Xor(x, y) },
				func() *Expr { return b.ShrU(x, b.Int(int(c%32))) }, func() *Expr { return b.Shl(x, b.Int(int(c%32))) },
				func() *Expr { return b.Select(b.And(b.Lt(x, y), b.Not(b.Eq(x, b.Int(3)))), x, b.Offset(y, c)) },
				func() *Expr { return b.Cast(b.Add(b.Cast(x, S64), b.ConstInt(S64, c)), S32) },
			}[r.Intn(16)]())
		}
		e := pool[len(pool)-1]
		line := straightLine(e)
		require.NotNil(t, line)
		for range 8 {
			with := map[*Expr]*Expr{}
			for _, v := range vars[:1+r.Intn(len(vars))] {
				with[v] = b.ConstInt(S32, v.Lo+r.Int63n(v.Hi-v.Lo+1))
			}
			got, ok := line.at(with)
			require.True(t, ok)
			want, ok := constantAt(b, e, zeros(b, e), with)
			require.True(t, ok, "%v", e)
			require.Equal(t, want, got, "%v", e)
		}
	}
}

func TestSectorsOfAWarp(t *testing.T) {
	b := NewBuilder()
	lane, other := b.Index("lane", 32), b.Index("other", 100)
	for _, c := range []struct {
		name        string
		index       *Expr
		bytes, size int
		want        float64
	}{
		{"neighbours share sectors", b.Add(lane, other), 4, 4, 4},
		{"vectors of 16 bytes", b.Scale(lane, 4), 16, 4, 16},
		{"a stride of a sector", b.Scale(lane, 8), 4, 4, 32},
		{"one element for all", other, 4, 4, 1},
		{"a gather, one each", b.Load(0, lane, ir.Int32, nil, nil), 4, 4, 32},
		{"what is selected, not what is gathered elsewhere", b.Select(b.Lt(lane, b.Int(16)), lane, b.Load(0, lane, ir.Int32, nil, nil)), 4, 4, 18},
	} {
		got := Sectors(b, c.index, c.bytes, c.size, func(lane_ int, with map[*Expr]*Expr) { with[lane] = b.Int(lane_) })
		require.Equal(t, c.want, got, c.name)
	}
	zero := b.Int(0) // the index of a kernel's only element is no variable, and lanes are numbered all the same
	require.Equal(t, 4.0, Sectors(b, zero, 4, 4, func(lane int, with map[*Expr]*Expr) { with[zero] = b.Int(lane) }))
}
