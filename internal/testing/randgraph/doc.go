// Package randgraph makes random ONNX models and holds the compiler to them: a model is imported, evaluated in float64, compiled
// in several precisions, run on the CPU device with its checks on, and compared with what ONNX Runtime computes without
// optimisations. A model that fails is shrunk to a small one, written as a test-case directory.
//
// Every operator of the import table has a row here (rows.go) that draws a node: its attributes, and inputs among the values that are
// there or new ones. A node is evaluated as soon as it is drawn, so the generator knows shapes and values, and drops nodes whose
// results are not finite. Element types come from the onnx package's schemas (schemas.txt), ranges of opsets from the import
// table.
//
// No tolerance is picked: how far rounding may take an output is found by evaluating the graph again, a few times, with noise at
// every value (noise.go).
package randgraph
