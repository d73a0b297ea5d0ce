// Package runtime loads a compiled Program onto a hal.Device and runs it.
//
//	Program   plain data: buffers, launches, I/O, code and weights of every variant
//	Model     a Program on a device: module and weights, immutable, shared by sessions
//	Session   one user's arena, I/O, states, variables and captured graphs; cheap, for one goroutine at a time
//
// It knows nothing of ONNX, of graphs or of the compiler.
package runtime
