package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// budgetFlag is the flag of the accuracy of networks in precisions that are calibrated.
type budgetFlag struct {
	MinCosine *float64 `help:"Minimum cosine of a network's outputs in ${calibrating}: layers that would miss it stay at fp16; 0: no budget. Default: 0.999." placeholder:"C"`
}

// check is an error if the flag is no budget, or none of the algorithms takes one.
func (f *budgetFlag) check(algorithms ...string) error {
	if err := cli.CheckMinCosine(f.MinCosine); err != nil || f.MinCosine == nil {
		return err
	}
	if !slices.ContainsFunc(algorithms, calibrates) {
		return fmt.Errorf("--min-cosine %g: %s has no network in %s; leave it out", *f.MinCosine,
			strings.Join(algorithms, ", "), precision.Calibrating())
	}
	return nil
}

// calibrates reports whether an algorithm has a network in a precision that is calibrated.
func calibrates(algorithm string) bool {
	_, in := scenario.FilesOf(algorithm)
	return precision.Calibrates(in)
}

// stored says in a line in which precisions the layers of a report's network are, after a label; "" if its
// precision is not calibrated, so that all layers have it.
func (r *report) stored(label string) string {
	if len(r.Layers) == 0 {
		return ""
	}
	_, in := scenario.FilesOf(r.Algorithm)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Layers)) {
		parts = append(parts, fmt.Sprintf("%s in %s", console.Count(r.Layers[name], "layer"), name))
	}
	text := strings.Join(parts, ", ")
	switch only := r.precision(); {
	case only == in:
		text = "every layer is in it"
	case only != "":
		text = "every layer stays in " + only
	}
	return fmt.Sprintf("%s%s: %s\n", label, r.Algorithm, text)
}

// precision is the one that all layers of a report's network are in; "" if they are in several.
func (r *report) precision() string {
	_, in := scenario.FilesOf(r.Algorithm)
	switch len(r.Layers) {
	case 0:
		return cmp.Or(in, precision.FP32)
	case 1:
		for name := range r.Layers {
			return name
		}
	}
	return ""
}

// sameNetwork is a warning where two reports of one device and version are of one network in one precision; "" elsewhere.
func sameNetwork(a, b *report) string {
	budgets := [2]float64{budget(a.Algorithm, a.MinCosine), budget(b.Algorithm, b.MinCosine)}
	in := a.precision()
	asked := a.Algorithm == b.Algorithm && budgets[0] == budgets[1]
	plain := in == b.precision() && in != "" && !precision.Calibrates(in)
	if a.Digest == "" || a.Digest != b.Digest || a.Device != b.Device || a.Program != b.Program || !asked && !plain {
		return ""
	}
	text := "A and B are the same network"
	if in != "" {
		text += " with every layer in " + in
	}
	if text += ": nothing is compared"; max(budgets[0], budgets[1]) > 0 {
		text += "; a lower --min-cosine takes more layers"
	}
	return text
}

// budget is the accuracy that an algorithm's network keeps, where so much was given; 0: none.
func budget(algorithm string, given *float64) float64 {
	_, in := scenario.FilesOf(algorithm)
	return compile.Budget(in, given)
}
