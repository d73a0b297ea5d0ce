// Package onnxgo reads the topology of a model — which operator takes which values and gives which — through
// github.com/owulveryck/onnx-go, a decoder that shares nothing with frontend/onnx. It exists so that a test can hold the
// two against each other; no compilation goes through it.
//
// onnx-go v0.5.0 stops or errs on much of what models contain, so Read hands it a rewritten file (lean.go) in which
//
//   - initializers, declared types and value infos are left out: it knows no fp16, bf16 or fp8 and misreads bools;
//   - of attributes only inner graphs are left, as integer handles: it knows no graph attributes, and no element types
//     newer than its own;
//   - an input that a node takes twice is taken the second time under another name, and so is an absent input: it keeps
//     one edge between two values, and one value of each name;
//   - an absent output gets a name of its own, a node without inputs a made-up one, and a graph without nodes a node;
//   - the operator's domain stands in its name: it drops domains.
//
// backend.go receives what onnx-go reads and undoes the renaming.
package onnxgo

// Graph is the topology of a graph.
type Graph struct {
	Inputs, Outputs []string
	Nodes           []Node // in the file's order
}

// Node is one application of an operator. Absent inputs and outputs are empty names.
type Node struct {
	Op              string // domain::operator, or only the operator if the file gives no domain
	Inputs, Outputs []string
	Bodies          []*Graph // inner graphs, in the order of the node's attributes
}
