// Package onnx reads models in the ONNX file format, validates them and converts them to the compiler's graph. It
// also writes models.
//
// To read: Load or Decode returns a Model (the decoded messages, versions checked), Model.Tensor decodes constant
// data, Model.OutputSlices reads openpilot's metadata, and Import resolves types, shapes and opset differences into
// an ir.Graph. To write: a Builder makes a Model; Model.Marshal and Model.Save encode it.
//
//	errors.go     Error: file, node, operator, opset, reason, remedy
//	model.go      Load, Decode, versions
//	wire.go       decoding without copying the weights
//	dtype.go      the format's element types
//	tensor.go     TensorProto → ir.Tensor; external.go: data in other files
//	validate.go   checks before import: names, order, domains
//	pickle.go     a reader of pickled data, pickle_scalar.go: numbers and strings; metadata.go: output_slices
//	builder.go    building models in Go; save.go: encoding
//	import_*.go   Model → ir.Graph; import_table.go: the table of operators, import_formula.go: operators that are formulas
package onnx
