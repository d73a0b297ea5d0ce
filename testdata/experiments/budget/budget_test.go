package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCombinationsAreThirty: every precision with every budget, every number of inputs in each precision, and both preferences.
func TestCombinationsAreThirty(t *testing.T) {
	count, numbers := map[any]int{}, map[uint64]bool{}
	for at := range 5 {
		n := &network{counts: []int{4, 8, 12, 16}, files: make([]string, pool)}
		for _, c := range combinations(at, n) {
			count["all"]++
			count[[2]any{c.precision, c.budget}]++
			count[[2]any{c.precision, c.fitted}]++
			count[[2]any{c.precision, c.prefer()}]++
			require.False(t, numbers[c.number])
			numbers[c.number] = true
		}
	}
	require.Equal(t, 30, count["all"])
	for _, p := range precisions {
		for _, b := range budgets {
			require.Positive(t, count[[2]any{p, b}], "%s %g", p, b)
		}
		for _, n := range []int{4, 8, 12, 16} {
			require.Positive(t, count[[2]any{p, n}], "%s %d", p, n)
		}
		for _, prefer := range []string{"speed", "size"} {
			require.Positive(t, count[[2]any{p, prefer}], "%s %s", p, prefer)
		}
	}
}

func TestNothingThatCalibratesJudges(t *testing.T) {
	n := &network{counts: []int{4, 8, 12, 16}, files: make([]string, pool)}
	first := combinations(0, n)[0]
	for _, c := range combinations(0, n) {
		fitted, unseen := c.split(1)
		require.Len(t, fitted, c.fitted)
		require.ElementsMatch(t, seq(pool), append(append([]int{}, fitted...), unseen...))
		again, _ := c.split(1)
		require.Equal(t, fitted, again)
		other, _ := c.split(2)
		require.NotEqual(t, fitted, other)
	}
	a, _ := first.split(1)
	b, _ := combinations(1, n)[0].split(1)
	require.NotEqual(t, a, b[:min(len(a), len(b))])
}

// seq is 0, 1, … n − 1.
func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}
