package onnx

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// TestOperatorTable_IsListed in docs/data/operators.csv, a row for each range of opsets; UPDATE=1 writes it.
func TestOperatorTable_IsListed(t *testing.T) {
	rows := [][]string{{"domain", "operator", "opsets", "supported", "constant inputs"}}
	count := map[string]int{}
	keys := slices.SortedFunc(maps.Keys(operators), func(a, b operatorKey) int {
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.name, b.name))
	})
	for _, key := range keys {
		domain, versions := cmp.Or(key.domain, "ai.onnx"), operators[key]
		for _, op := range versions {
			opsets, supported := fmt.Sprintf("%d-", op.since), "yes"
			if op.until > 0 {
				opsets += fmt.Sprint(op.until)
			}
			if op.refused {
				supported = "no"
			}
			rows = append(rows, []string{domain, op.name, opsets, supported, strings.Trim(fmt.Sprint(op.shapes), "[]")})
		}
		if !versions[len(versions)-1].refused {
			count[domain]++
		}
	}
	golden.CSV(t, "../../docs/data/operators.csv", rows)
	golden.States(t, "../../docs/operators.md", fmt.Sprintf("%d of ai.onnx, %d of ai.onnx.ml and %d of com.microsoft",
		count["ai.onnx"], count["ai.onnx.ml"], count["com.microsoft"]))
}
