// Package onnx reads a model from the ONNX file format, checks it, and turns it into the compiler's graph; it also writes
// models.
//
// The way in: Load or Decode make a Model (bytes → messages, versions checked), Model.Tensor decodes constant data,
// Model.OutputSlices reads openpilot's metadata, Import resolves types, shapes and opset differences into an ir.Graph.
// The way out: a Builder makes a Model, Model.Marshal and Model.Save encode it.
//
//	errors.go     Error: file, node, operator, opset, reason, remedy
//	model.go      Load, Decode, versions
//	wire.go       decoding without a copy of the weights
//	dtype.go      the format's element types
//	tensor.go     TensorProto → ir.Tensor; external.go: data in other files
//	validate.go   names, order, domains: what must hold before a node is looked at
//	pickle.go     a reader of pickled data, pickle_scalar.go its numbers and strings; metadata.go: output_slices
//	builder.go    making models in Go; save.go: encoding
//	import_*.go   Model → ir.Graph
package onnx
