package report

import (
	"fmt"
	"slices"
	"strings"
)

// nodes names the nodes of the file that a layer computes, as a shell abbreviates a list of paths:
// /{narrow,wide}/stem/Conv.
func (l *Layer) nodes() string {
	if len(l.Nodes) == 0 {
		return l.Name
	}
	first := strings.Split(l.Nodes[0], "/")
	values := make([][]string, len(first)) // of each segment
	for _, name := range l.Nodes {
		segments := strings.Split(name, "/")
		if len(segments) != len(first) {
			return andMore(l.Nodes)
		}
		for i, s := range segments {
			if !slices.Contains(values[i], s) {
				values[i] = append(values[i], s)
			}
		}
	}
	combinations := 1
	for i, list := range values {
		combinations *= len(list)
		if len(list) > 1 {
			first[i] = "{" + strings.Join(list, ",") + "}"
		}
	}
	if combinations != len(l.Nodes) {
		return andMore(l.Nodes)
	}
	return strings.Join(first, "/")
}

func andMore(names []string) string { return fmt.Sprintf("%s and %d more", names[0], len(names)-1) }

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
