package onnx

import (
	"slices"
	"sort"
)

// MissingOperators returns those of names that the import table lacks at an opset of ai.onnx.
func MissingOperators(opset int64, names []string) []string {
	var missing []string
	for _, name := range names {
		if _, err := operators.lookup("", name, opset); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// ExtraOperators returns the operators that the import table has at an opset of ai.onnx in addition to names. Refused
// ones may have been refused before they existed.
func ExtraOperators(opset int64, names []string) []string {
	refused := map[string]bool{}
	for _, r := range refusedOperators {
		refused[r.name] = true
	}
	var extra []string
	for k := range operators {
		if k.domain != "" || slices.Contains(names, k.name) || refused[k.name] {
			continue
		}
		if _, err := operators.lookup("", k.name, opset); err == nil {
			extra = append(extra, k.name)
		}
	}
	sort.Strings(extra)
	return extra
}
