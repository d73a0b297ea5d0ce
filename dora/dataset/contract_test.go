package dataset

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
)

// TestInputsOfOtherShapesAreRefused: an input that is called as openpilot's and has another shape or type is named, before anything is read.
func TestInputsOfOtherShapesAreRefused(t *testing.T) {
	picture := Input{"img", ir.T(ir.Uint8, 1, 12, 8, 16)}
	for name, in := range map[string]Input{
		"convention":           {"traffic_convention", ir.T(ir.Float32, 1, 3)},
		"lateral parameters":   {"lateral_control_params", ir.T(ir.Float32, 1, 3)},
		"action":               {"action_t", ir.T(ir.Float32, 1, 4)},
		"desires":              {"desire", ir.T(ir.Float32, 1, 100, 7)},
		"desires of integers":  {"desire", ir.T(ir.Int64, 1, 100, 8)},
		"no curvature":         {generation.PrevCurvatures, ir.T(ir.Float32, 1, 0, 1)},
		"features of a batch":  {generation.Features, ir.T(ir.Float32, 2, 25, 32)},
		"features of integers": {generation.Features, ir.T(ir.Int32, 1, 25, 32)},
		"features in a row":    {generation.Features, ir.T(ir.Float32, 1, 512)},
		"a picture of text":    {"big_img", ir.T(ir.Bool, 1, 12, 8, 16)},
		"a flat picture":       {"big_img", ir.T(ir.Uint8, 1, 12, 0, 16)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contractOf(Options{Inputs: []Input{picture, in}, Vision: []Input{picture}, Features: sums(32, new([]string))})
			assert.ErrorContains(t, err, in.Name)
			assert.ErrorContains(t, err, "want ")
		})
	}
}
