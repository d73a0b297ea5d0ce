package compile

import (
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/ir"
)

// How long work takes, in units of package progress.

// multiplied is the file on some inputs, at a cost for each multiplication.
func (y *accuracyEvaluator) multiplied(inputs int, each float64) float64 {
	return float64(float64(inputs) * float64(multiplications(y.source)) * each)
}

// running is the compilation of a candidate, and its runs.
func (y *accuracyEvaluator) running() float64 {
	return compiling(y.source) + y.multiplied(len(y.all()), console.CostRun)
}

// referring is the cost of the reference that programs are compared with, and of the means measured with it.
func (y *accuracyEvaluator) referring() float64 {
	count := len(y.all())
	if y.precise() {
		return y.multiplied(count, console.CostEvaluate)
	}
	others := count - len(y.inputs) + 1 // the golden one
	return y.multiplied(others+len(calibrate.MeanInputs(len(y.inputs))), console.CostForward) + y.multiplied(2, console.CostEvaluate)
}

// compiling is a program of a graph's weights.
func compiling(g *ir.Graph) float64 {
	weights := 0
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			if v != nil && v.IsConst() { // nil: an optional input that is left out
				weights += v.Type.Numel()
			}
		}
	}
	return float64(float64(weights) * console.CostCompile)
}

// comparing is what a comparison with the file in fp16 takes.
func comparing(g *ir.Graph) float64 {
	return compiling(g) + float64(2*float64(multiplications(g))*console.CostCount)
}

// Expected numbers of walks through the graph, and of candidates that are measured, where there is a budget.
const expectedFits, expectedTrials = 1.5, 4

// calibrating is the choice of formats.
func (s *calibration) calibrating(c *calibrate.Calibration, budget bool) float64 {
	w := c.Work()
	if !budget {
		return w.Fit
	}
	return w.Prices + w.Alone + float64(expectedFits*w.Fit) + s.referring() + float64(expectedTrials*s.running())
}
