package console

import (
	"fmt"
	"slices"
	"strings"
)

// Braces is a list of paths in one, as a shell abbreviates it: /{narrow,wide}/stem/Conv. Paths that differ otherwise are
// the first and a count.
func Braces(names []string) string {
	first := strings.Split(names[0], "/")
	values := make([][]string, len(first)) // of each segment
	for _, name := range names {
		segments := strings.Split(name, "/")
		if len(segments) != len(first) {
			return andMore(names)
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
	if combinations != len(names) {
		return andMore(names)
	}
	return strings.Join(first, "/")
}

func andMore(names []string) string { return fmt.Sprintf("%s and %d more", names[0], len(names)-1) }
