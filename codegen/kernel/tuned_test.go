package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The default stays in its space however slow it is estimated to be, also where schedules are written as text later.
func TestWithin_KeepsTheDefault(t *testing.T) {
	plans := []Candidate{{At: []int{1, 1}, US: 1}, {At: []int{1, 2}, US: 9}, {At: []int{2, 1}, US: 9}, {At: []int{2, 2}, US: 2}}
	require.Equal(t, []Candidate{{At: []int{1, 1}, US: 1}, {At: []int{2, 1}, US: 9}, {At: []int{2, 2}, US: 2}}, Within(plans, []int{2, 1}))
}
