package stats

import (
	"cmp"
	"fmt"
	"slices"
)

// Holm returns p-values adjusted for their number, in the order given (Holm, "A Simple Sequentially Rejective
// Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979): rejecting those of at most alpha rejects any
// true hypothesis with probability alpha at most, however the tests depend on each other.
func Holm(p []float64) ([]float64, error) {
	order := make([]int, len(p))
	for i := range p {
		if !(p[i] >= 0 && p[i] <= 1) {
			return nil, fmt.Errorf("p-value %d is %v, not a probability", i, p[i])
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	adjusted, largest := make([]float64, len(p)), 0.0
	for k, i := range order {
		largest = max(largest, min(1, p[i]*float64(len(p)-k)))
		adjusted[i] = largest
	}
	return adjusted, nil
}
