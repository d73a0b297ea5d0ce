package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
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

// budget is the accuracy that an algorithm's network keeps, where so much was given; 0: none.
func budget(algorithm string, given *float64) float64 {
	_, in := scenario.FilesOf(algorithm)
	return compile.Budget(in, given)
}
