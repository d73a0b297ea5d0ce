package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func number(v float64) string { return fmt.Sprintf("%.3g", v) }

// TestCurvesHaveGapsWhereNumbersAreNotFinite: a curve in two parts, a point by itself as a dot, and names that are no HTML.
func TestCurvesHaveGapsWhereNumbersAreNotFinite(t *testing.T) {
	svg := string(Curves("loss", "update", "loss", []Series{
		{"a<b", []float64{0, 1, 2, 3, 4}, []float64{1, .5, math.NaN(), .25, .125}},
		{"dot", []float64{2}, []float64{.7}},
	}, true, number))
	assert.Equal(t, 2, strings.Count(svg, "<polyline"))
	assert.Equal(t, 1, strings.Count(svg, "<circle"))
	assert.Contains(t, svg, "a&lt;b")
	assert.NotContains(t, svg, "NaN")
	// The first point lies at the left end and the top, the last at the right end and the bottom.
	assert.Contains(t, svg, fmt.Sprintf(`points="%d.0,%d.0 `, MarginLeft, MarginTop))
	assert.Contains(t, svg, fmt.Sprintf(` %d.0,%d.0"`, PlotWidth-20, Height-MarginBottom))
}

func TestCurvesOfNothing(t *testing.T) {
	assert.Contains(t, string(Curves("loss", "", "", nil, true, number)), "nothing yet")
	assert.Contains(t, string(Curves("loss", "", "", []Series{{"a", []float64{1}, []float64{math.Inf(1)}}}, false, number)), "nothing yet")
}
