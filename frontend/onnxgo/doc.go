// Package onnxgo reads the topology of a model (the operators, and the values they read and write) with
// github.com/owulveryck/onnx-go. A test compares it with what frontend/onnx decodes; compilation does not use this
// package.
//
// onnx-go v0.5.0 fails on much of what models contain, so Read gives it a rewritten file (lean.go). The rewriting
// uses the schema of frontend/onnx, but not its decoder:
//
//   - initializers, declared types and value infos are removed: onnx-go does not support fp16, bf16 or fp8, and misreads bools;
//   - attributes are removed, except that an integer handle stands for each inner graph: onnx-go does not support graph
//     attributes or newer element types;
//   - an input that a node reads twice gets another name the second time, and so does an absent input: onnx-go keeps one edge
//     between two values, and one value for each name;
//   - an absent output gets a unique name, a node without inputs a placeholder input, and a graph without nodes a placeholder
//     node;
//   - the operator's name includes its domain: onnx-go drops domains.
//
// backend.go receives what onnx-go reads and reverts the renaming.
package onnxgo

// Graph is the topology of a graph.
type Graph struct {
	Inputs, Outputs []string
	Nodes           []Node // in the file's order
}

// Node is one application of an operator. Absent inputs and outputs are empty names.
type Node struct {
	Op              string // domain::operator, or the operator alone if the file has no domain
	Inputs, Outputs []string
	Bodies          []*Graph // inner graphs, in the order of the node's attributes
}
