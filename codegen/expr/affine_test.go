package expr

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIndexArithmeticSimplifies(t *testing.T) {
	b := NewBuilder()
	i := b.Index("i", 1024)
	v := b.Index("v", 128)
	vec := b.Offset(b.Scale(v, 8), 3)
	j, k := b.Index("j", 32), b.Index("k", 16)
	for _, c := range []struct {
		name string
		e    *Expr
		want string
	}{
		{"the index of an unravelled element is the element", b.Linear(b.Unravel(i, []int{4, 8, 32}), []int{4, 8, 32}), "i"},
		{"a reshape cancels", b.Linear(b.Unravel(b.Linear(b.Unravel(i, []int{32, 32}), []int{32, 32}), []int{2, 16, 32}), []int{2, 16, 32}), "i"},
		{"a vector's lane leaves the quotient alone", b.FloorDiv(vec, 64), "(v / 8)"},
		{"a vector's lane stays in the remainder", b.FloorMod(vec, 64), "(8*(v % 8) + 3)"},
		{"division takes out whole multiples", b.FloorDiv(b.Add(b.Scale(j, 16), k), 16), "j"},
		{"remainder drops them", b.FloorMod(b.Add(b.Scale(j, 16), k), 16), "k"},
		{"remainder within range is nothing", b.FloorMod(k, 16), "k"},
		{"nested divisions join", b.FloorDiv(b.FloorDiv(i, 4), 8), "(i / 32)"},
		{"a comparison that ranges decide", b.Lt(k, b.Int(16)), "1"},
		{"clamping within range is nothing", b.Min(k, b.Int(15)), "k"},
		{"x-x", b.Sub(b.Add(i, k), b.Add(k, i)), "0"},
	} {
		require.Equal(t, c.want, c.e.String(), c.name)
	}
}

// TestIndexArithmeticKeepsItsValue builds random index expressions and holds them against plain integers.
func TestIndexArithmeticKeepsItsValue(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 400 {
		b := NewBuilder()
		type pair struct {
			e *Expr
			f func(x []int64) int64
		}
		sizes := []int{1 + r.Intn(40), 1 + r.Intn(20), 1 + r.Intn(9)}
		var pool []pair
		var vars []*Expr
		for i, n := range sizes {
			v := b.Index(string(rune('a'+i)), n)
			vars = append(vars, v)
			pool = append(pool, pair{v, func(x []int64) int64 { return x[i] }})
		}
		for range 14 {
			p, q := pool[r.Intn(len(pool))], pool[r.Intn(len(pool))]
			c := int64(1 + r.Intn(24))
			switch r.Intn(6) {
			case 0:
				pool = append(pool, pair{b.Add(p.e, q.e), func(x []int64) int64 { return p.f(x) + q.f(x) }})
			case 1:
				pool = append(pool, pair{b.Sub(p.e, q.e), func(x []int64) int64 { return p.f(x) - q.f(x) }})
			case 2:
				pool = append(pool, pair{b.Offset(b.Scale(p.e, c), c/2), func(x []int64) int64 { return p.f(x)*c + c/2 }})
			case 3:
				pool = append(pool, pair{b.FloorDiv(p.e, c), func(x []int64) int64 { return floorDiv(p.f(x), c) }})
			case 4:
				pool = append(pool, pair{b.FloorMod(p.e, c), func(x []int64) int64 { return floorMod(p.f(x), c) }})
			case 5:
				pool = append(pool, pair{b.Min(p.e, q.e), func(x []int64) int64 { return min(p.f(x), q.f(x)) }})
			}
		}
		for range 20 {
			x := make([]int64, 3)
			at := map[*Expr]val{}
			for i, n := range sizes {
				x[i] = int64(r.Intn(n))
				at[vars[i]] = val{i: x[i]}
			}
			for _, p := range pool {
				got := evaluate(p.e, at, nil).i
				require.Equal(t, wrap(S32, p.f(x)), got, "%s at %v", p.e, x)
				require.LessOrEqual(t, p.e.Lo, got, p.e)
				require.GreaterOrEqual(t, p.e.Hi, got, p.e)
				if m := p.e.mult; m > 1 {
					require.Zero(t, got%m, "%s is no multiple of %d", p.e, m)
				}
			}
		}
	}
}
