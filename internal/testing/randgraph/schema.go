package randgraph

import (
	_ "embed" // schemas.txt
	"strconv"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/ir"
)

// schemasText is written by testdata/schemas.py.
//
//go:embed schemas.txt
var schemasText string

// schema is what the onnx package says of an operator's inputs since one version.
type schema struct {
	since  int64
	inputs []input
}

type input struct {
	optional, variadic bool
	types              []ir.DType
	variable           string // inputs of one variable have one type
}

// schemas are the versions of each operator, ascending.
var schemas = sync.OnceValue(func() map[string][]schema {
	all := map[string][]schema{}
	for line := range strings.Lines(schemasText) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		name, since, _ := strings.Cut(strings.TrimSpace(parts[0]), " ")
		s := schema{}
		s.since, _ = strconv.ParseInt(since, 10, 64)
		classes := map[string][]ir.DType{}
		for _, c := range strings.Fields(parts[2]) {
			variable, list, _ := strings.Cut(c, "=")
			for _, t := range strings.Split(list, ",") {
				if d, err := ir.ParseDType(t); err == nil {
					classes[variable] = append(classes[variable], d)
				}
			}
		}
		for _, f := range strings.Fields(parts[1]) {
			name, variable, _ := strings.Cut(f, ":")
			s.inputs = append(s.inputs, input{strings.HasSuffix(name, "?"), strings.HasSuffix(name, "*"), classes[variable], variable})
		}
		all[name] = append(all[name], s)
	}
	return all
})

// schemaOf is the schema at a version of the operator's domain; nil if there is none yet.
func schemaOf(name string, version int64) *schema {
	var found *schema
	for i, s := range schemas()[name] {
		if s.since <= version {
			found = &schemas()[name][i]
		}
	}
	return found
}
