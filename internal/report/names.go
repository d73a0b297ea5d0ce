package report

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/console"
)

// nodes names the nodes of the file that a layer computes.
func (l *Layer) nodes() string {
	if len(l.Nodes) == 0 {
		return l.Name
	}
	return console.Braces(l.Nodes)
}

// elided shortens a path to a number of characters. Segments that the next one repeats, as in blocks/blocks.0, go first,
// then the middle.
func elided(name string, most int) string {
	segments := strings.Split(name, "/")
	for i := len(segments) - 2; i > 0 && len([]rune(strings.Join(segments, "/"))) > most; i-- {
		if strings.HasPrefix(segments[i+1], segments[i]+".") {
			segments = slices.Delete(segments, i, i+1)
		}
	}
	runes := []rune(strings.Join(segments, "/"))
	if len(runes) <= most {
		return string(runes)
	}
	end := most * 2 / 3
	return string(runes[:most-1-end]) + "…" + string(runes[len(runes)-end:])
}
