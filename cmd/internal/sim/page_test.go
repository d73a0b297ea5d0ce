package sim

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/browser"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestPage_IsWholeByItself: it loads nothing, its pictures are well formed, and its moving ones hold what loops did.
func TestPage_IsWholeByItself(t *testing.T) {
	fulltest.Long(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "s.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`scenarios:
  - {name: "windy <&", set: {duration: 6, wind: 0.8, wind_start: 0.5, wind_length: 3}, vary: {speed: {uniform: [25, 35]}}}
  - {name: lead, set: {duration: 2, car0_present: 1}}
`), 0o644))
	f := &compareFlags{A: "pid", B: "feedforward", Scenarios: []string{file}, N: 12, Seed: 3, Device: "emu",
		Quiet: true,
		HTML:  filepath.Join(dir, "page.html"), Regressions: filepath.Join(dir, "worst")}
	require.ErrorIs(t, f.run(t.Context(), io.Discard, io.Discard), errWorse)
	raw, err := os.ReadFile(f.HTML)
	require.NoError(t, err)
	text := string(raw)
	require.Empty(t, regexp.MustCompile(`(?i)https?://|src=|<link|@import|url\(`).FindString(text))
	require.True(t, strings.Contains(text, "B is worse in 24 pairs"))
	require.True(t, strings.Contains(text, "<td>windy &lt;&amp;</td><td>0 of 12</td><td>12 of 12</td>"))
	require.False(t, strings.Contains(text, "windy <&"))

	require.Greater(t, strings.Count(text, "<svg "), 20, "15 metrics, and the plots of loops")
	for part := range strings.SplitSeq(text, "\n") { // a picture stands in a line
		if !strings.Contains(part, "<svg") {
			continue
		}
		d := xml.NewDecoder(strings.NewReader("<p>" + part + "</p>"))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, part[:min(200, len(part))])
		}
	}

	cases := regexp.MustCompile(`(?s)<script type="application/json">(.*?)</script>`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, cases)
	require.LessOrEqual(t, len(cases), mostCases)
	for _, c := range cases {
		var sides []pageSide
		require.NoError(t, json.Unmarshal([]byte(c[1]), &sides))
		require.Len(t, sides, 2)
		require.Equal(t, "B: feedforward", sides[1].Name)
		a, b := sides[0].Rows, sides[1].Rows
		require.Len(t, a, 61, "every tenth of a second, and the start")
		require.Greater(t, b[len(b)-1][1], a[60][1]+1, "B is blown away, and A comes back")
	}
	browser.Check(t, "spark-sim-compare", "file://"+f.HTML)
	files, err := filepath.Glob(filepath.Join(f.Regressions, "windy___-*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)

	n := 3
	run := &runFlags{Scenarios: []string{file}, N: &n, Algorithm: "feedforward", Device: "emu", Quiet: true,
		HTML: filepath.Join(dir, "run.html")}
	require.NoError(t, run.run(t.Context(), io.Discard, io.Discard))
	raw, err = os.ReadFile(run.HTML)
	require.NoError(t, err)
	require.True(t, strings.Contains(string(raw), "3 of 6 loops failed"))
	require.True(t, strings.Contains(string(raw), "It failed. At most "))
	require.True(t, strings.Contains(string(raw), "data-car"), "the lead is drawn")
	browser.Check(t, "spark-sim-run", "file://"+run.HTML)
}
