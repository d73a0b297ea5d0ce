// Package gputest checks the CPU device against a real GPU: every instruction, and the outputs of whole models. All of it
// is test code.
//
//	Case       a small kernel for one row of the instruction table, with its inputs (arithmetic, memory, control, matrix)
//	Runner     runs cases on a hal.Device
//	Rule       how close two devices' results must be: bit for bit, except where the ISA leaves room (compare_test.go)
//	Recording  a GPU's results in a file, against which the CPU device is tested without a GPU from then on (record_test.go)
//	Package    a compiled model and its golden outputs (model_test.go)
//
// The tests and benchmarks are built into one binary that runs on a machine with a GPU and without Go (make gpu-bundle).
// Environment variables configure them:
//
//	SPARK_DEVICE      cuda, which fails where there is none, or emu for a dry run with the CPU device in place of the GPU; by
//	                  default cuda where there is a GPU
//	SPARK_RECORD      directory to write the recording to
//	SPARK_GPU_MODELS  directory of models: golden outputs in MODEL/*.npz, packages in MODEL/*/
package gputest
