package console

import (
	"fmt"
	"strings"
)

// Count is a number and what is counted, named in the singular: 1 layer, 2 layers, 0 generated inputs, 3 launches.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	end := "s"
	for _, s := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, s) {
			end = "es"
		}
	}
	return fmt.Sprint(n, " ", noun, end)
}
