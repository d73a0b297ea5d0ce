package onnx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// stump is a regressor of one comparison, whose attributes may be replaced.
func stump(t *testing.T, op string, replace ...onnx.Attr) *onnx.Model {
	attrs := map[string]any{
		"nodes_treeids": []int{0, 0, 0}, "nodes_nodeids": []int{0, 1, 2}, "nodes_featureids": []int{1, 0, 0},
		"nodes_values": []float64{3, 0, 0}, "nodes_modes": []string{"BRANCH_LT", "LEAF", "LEAF"},
		"nodes_truenodeids": []int{1, 0, 0}, "nodes_falsenodeids": []int{2, 0, 0},
		"target_treeids": []int{0, 0}, "target_nodeids": []int{1, 2}, "target_ids": []int{0, 0},
		"target_weights": []float64{-1, 3},
	}
	for _, a := range replace {
		attrs[a.Name] = a.Value
	}
	var list []onnx.Attr
	for name, value := range attrs {
		list = append(list, onnx.A(name, value))
	}
	b := onnx.NewBuilder("g", 17)
	b.Opset("ai.onnx.ml", 3)
	b.Input("x", ir.Float32, 3, 2)
	n := b.Node(op, []string{"x"}, []string{"y"}, list...)
	domain := "ai.onnx.ml"
	n.Domain = &domain
	b.Output("y", ir.Float32, 3, 1)
	m, err := b.Model()
	require.NoError(t, err)
	return m
}

func TestTreeEnsemble_BadTreesAreRefused(t *testing.T) {
	for want, replace := range map[string]onnx.Attr{
		"tree 0 has no node 9, which follows node 0":      onnx.A("nodes_truenodeids", []int{9, 0, 0}),
		"tree 0 has two nodes 1":                          onnx.A("nodes_nodeids", []int{0, 1, 1}),
		"tree 0 has two roots":                            onnx.A("nodes_falsenodeids", []int{1, 0, 0}),
		"a node compares feature 2 of x f32[3,2]":         onnx.A("nodes_featureids", []int{2, 0, 0}),
		`a node has mode "BRANCH"`:                        onnx.A("nodes_modes", []string{"BRANCH", "LEAF", "LEAF"}),
		"3 modes, 2 values":                               onnx.A("nodes_values", []float64{0, 1}),
		"a weight is at node 0 of tree 0, which is not a": onnx.A("target_nodeids", []int{0, 2}),
		"target_ids has 1, want 0 to 0":                   onnx.A("target_ids", []int{0, 1}),
		"base_values has 2 entries, want 1":               onnx.A("base_values", []float64{1, 2}),
	} {
		_, err := onnx.Import(stump(t, "TreeEnsembleRegressor", replace), onnx.ImportOptions{})
		require.ErrorContains(t, err, want)
	}
	_, err := onnx.Import(stump(t, "TreeEnsembleRegressor",
		onnx.A("nodes_modes", []string{"BRANCH_LT", "BRANCH_LT", "LEAF"}),
		onnx.A("nodes_truenodeids", []int{1, 1, 0}), onnx.A("nodes_falsenodeids", []int{2, 2, 0}),
		onnx.A("target_nodeids", []int{2, 2})), onnx.ImportOptions{})
	require.ErrorContains(t, err, "the nodes of a tree follow each other in a circle")
	_, err = onnx.Import(stump(t, "ZipMap"), onnx.ImportOptions{})
	require.ErrorContains(t, err, `export it without, by skl2onnx's options={"zipmap": False}`)
	_, err = onnx.Import(stump(t, "TreeEnsembleClassifier",
		onnx.A("classlabels_strings", []string{"a", "b"})), onnx.ImportOptions{})
	require.ErrorContains(t, err, "the labels of its classes are strings")
}

func TestTreeEnsemble_WalksByItsThresholds(t *testing.T) {
	g, err := onnx.Import(stump(t, "TreeEnsembleRegressor"), onnx.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, []float64{-1, 3, 3}, evaluate(t, g)[0].Floats())
}
