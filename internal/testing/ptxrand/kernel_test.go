package ptxrand

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestKernels: kernels of a seed are always the same, parse, and together use the whole table but for what
// orders blocks.
func TestKernels(t *testing.T) {
	used := map[string]bool{}
	for seed := range uint64(1000) {
		c := New(seed)
		m, err := ptx.Parse(c.Text)
		require.NoError(t, err)
		for _, s := range m.Kernels[0].Body {
			if s.Instr != nil {
				used[s.Instr.Def.Op] = true
			}
		}
		if seed < 10 {
			require.Equal(t, c, New(seed))
		}
	}
	var missing []string
	for _, d := range slices.Concat(plain, plainForeign, warpWide, warpWideForeign, rows(true, ptx.Load, ptx.Store)) {
		if !used[d.Op] {
			missing = append(missing, d.Op)
		}
	}
	require.Empty(t, missing)
}

func TestShrinkKeepsWhatFails(t *testing.T) {
	c := New(3)
	out := Shrink(c.Text, func(text string) bool { return strings.Contains(text, "st.global.f64") })
	m, err := ptx.Parse(out)
	require.NoError(t, err)
	require.Len(t, m.Kernels[0].Body, 1, out)
}
