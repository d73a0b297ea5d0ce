package onnx_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

func TestInputValue_HasTheInputsTypeAndShape(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("scalar", ir.Int64)
	b.Input("known", ir.Float16, 2, 2)
	b.Input("open", ir.Float32, "n", 2)
	b.Input("opens", ir.Float32, "n", "m")
	b.Input("byte", ir.Uint8, 1)
	b.Input("large", ir.Uint64)
	b.Input("flags", ir.Bool, 2)
	b.Node("Identity", []string{"scalar"}, []string{"y"})
	b.Output("y", ir.Int64)
	m, err := b.Model()
	require.NoError(t, err)
	m.Path = "m.onnx"
	for _, c := range []struct {
		name, text string
		shape      []int
		want       ir.Type
		values     []float64
	}{
		{"scalar", "16000", nil, ir.T(ir.Int64), []float64{16000}},
		{"scalar", "-1", nil, ir.T(ir.Int64), []float64{-1}},
		{"known", "0.5", nil, ir.T(ir.Float16, 2, 2), []float64{.5, .5, .5, .5}},
		{"known", "1, 2,3,4", nil, ir.T(ir.Float16, 2, 2), []float64{1, 2, 3, 4}},
		{"known", "inf", nil, ir.T(ir.Float16, 2, 2), []float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}},
		{"open", "1,2,3,4", nil, ir.T(ir.Float32, 2, 2), []float64{1, 2, 3, 4}},
		{"open", "7", nil, ir.T(ir.Float32, 1, 2), []float64{7, 7}},
		{"open", "7", []int{2, 2}, ir.T(ir.Float32, 2, 2), []float64{7, 7, 7, 7}},
		{"opens", "7", nil, ir.T(ir.Float32, 1, 1), []float64{7}},
		{"byte", "255", nil, ir.T(ir.Uint8, 1), []float64{255}},
		{"flags", "true,0", nil, ir.T(ir.Bool, 2), []float64{1, 0}},
	} {
		got, err := m.InputValue(c.name, c.text, c.shape)
		require.NoError(t, err, "%s=%s", c.name, c.text)
		require.True(t, c.want.Equal(got.Type), "%s=%s: %v", c.name, c.text, got.Type)
		require.Equal(t, c.values, got.Floats(), "%s=%s", c.name, c.text)
	}
	large, err := m.InputValue("large", "18446744073709551615", nil)
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxUint64), large.BitsAt(0))

	for says, c := range map[string][2]string{
		`m.onnx: --input none=1: it has no such input; the inputs are scalar, known`: {"none", "1"},
		`--input scalar=9223372036854775808: "9223372036854775808" is no i64`:        {"scalar", "9223372036854775808"},
		`--input byte=256: "256" is no u8`:                                           {"byte", "256"},
		`--input byte=-1: "-1" is no u8`:                                             {"byte", "-1"},
		`--input known=70000: "70000" is no f16`:                                     {"known", "70000"},
		`--input known=1,2,3: 3 numbers for f16[2,2]; give one number`:               {"known", "1,2,3"},
		`--input opens=1,2: 2 numbers for f32[1,1]`:                                  {"opens", "1,2"},
		`--input open=1,2,3: 3 numbers for f32[1,2]`:                                 {"open", "1,2,3"},
		`--input flags=yes: "yes" is no bool`:                                        {"flags", "yes"},
		`--input scalar=: "" is no i64`:                                              {"scalar", ""},
	} {
		_, err := m.InputValue(c[0], c[1], nil)
		require.ErrorContains(t, err, says)
	}
}
