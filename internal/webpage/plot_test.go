package webpage

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCurves_GapsWhereNumbersAreNotFinite: a curve in two parts, a point by itself as a dot, and names that are no HTML.
func TestCurves_GapsWhereNumbersAreNotFinite(t *testing.T) {
	svg := string(Curves("loss", "update", "loss", []Series{
		{"a<b", []float64{0, 1, 2, 3, 4}, []float64{1, .5, math.NaN(), .25, .125}},
		{"dot", []float64{2}, []float64{.7}},
	}, true))
	assert.Equal(t, 2, strings.Count(svg, "<polyline"))
	assert.Equal(t, 1, strings.Count(svg, "<circle"))
	assert.Contains(t, svg, "a&lt;b")
	assert.NotContains(t, svg, "NaN")
	// The first point lies at the left end and the top, the last at the right end and the bottom.
	assert.Regexp(t, `points="\d+\.\d,26\.0 `, svg)
	assert.Contains(t, svg, fmt.Sprintf(` %d.0,%d.0"`, Width-14, Height-38))
}

func TestCurves_OfNothing(t *testing.T) {
	assert.Contains(t, string(Curves("loss", "", "", nil, true)), "no data")
	assert.Contains(t, string(Curves("loss", "", "", []Series{{"a", []float64{1}, []float64{math.Inf(1)}}}, false)), "no data")
}

// TestText_StaysInThePlot by the bound of its width, wherever it is placed.
func TestText_StaysInThePlot(t *testing.T) {
	for _, anchor := range []string{"start", "middle", "end"} {
		for _, x := range []float64{-50, 0, 200, 479, 900} {
			for _, n := range []int{1, 10, 72, 300} {
				p := &Plot{Height: 20}
				p.Text(x, 10, anchor, strings.Repeat("ä", n))
				m := regexp.MustCompile(`x="([-.\d]+)".*>(ä*…?ä*)<`).FindStringSubmatch(p.String())
				require.NotNil(t, m, p.String())
				at, err := strconv.ParseFloat(m[1], 64)
				require.NoError(t, err)
				width := TextWidth(m[2])
				left := at - map[string]float64{"start": 0, "middle": .5, "end": 1}[anchor]*width
				require.True(t, left >= -.1 && left+width <= Width+.1, "%s at %g: from %g, %g wide", anchor, x, left, width)
			}
		}
	}
}

func TestShorten_KeepsBothEnds(t *testing.T) {
	require.Equal(t, "models/policy.onnx", Shorten("models/policy.onnx", 18))
	require.Equal(t, "models…cy.onnx", Shorten("models/some/policy.onnx", 14))
}
