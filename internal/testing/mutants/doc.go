// Package mutants tests the checks themselves: it breaks kernels of compiled models on purpose, one small change at a
// time, and records what notices, a check of the CPU device or the comparison of outputs. A change that corrupts memory
// or synchronisation unnoticed is a gap in the checks. All of it is test code.
//
//	mutant_test.go   what a mutant is, and how one is run
//	network_test.go  models for kernels that the generated ones lack
//	edit_test.go     finding and changing instructions
//	table_test.go    the mutants
//	emulator_test.go faults of the CPU device itself, which other compilers' kernels notice
package mutants
