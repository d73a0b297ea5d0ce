// Package gopkg writes a compiled program as a directory that is an ordinary Go package: typed API, program, weights,
// kernels, an example and a test with golden inputs.
//
//	names.go   from file and port names to Go identifiers
//	model.go   the generated Go files
//	write.go   the directory: all files are staged, then moved to their places, or all moved back
//	own.go     which files of a directory are ours
package gopkg
