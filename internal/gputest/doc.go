// Package gputest holds what the CPU device claims of every instruction against a real GPU, and what it computes of whole
// models against the GPU's outputs.
//
//	Case       a small kernel a row of the instruction table, with its inputs (arithmetic.go, memory.go, control.go, matrix.go)
//	Runner     runs cases on a hal.Device
//	Rule       how near two devices' results must be: bits, except where the ISA leaves room (compare.go)
//	Recording  a GPU's results in a file, which from then on pins the CPU device without a GPU (record.go)
//	Package    a compiled model with golden outputs beside it (model.go)
//
// Its tests and benchmarks are made to travel: they are built into one binary and run on a machine with a GPU and
// without Go (make gpu-bundle). The environment says what they find there:
//
//	SPARK_DEVICE      cuda (the default) or emu, for a dry run in which the CPU device stands in for the GPU
//	SPARK_RECORD      directory that receives the recording
//	SPARK_GPU_MODELS  directory of models: MODEL/*.npz, and packages in MODEL/*/
package gputest
