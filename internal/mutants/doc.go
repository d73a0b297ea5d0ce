// Package mutants breaks kernels of compiled models on purpose, one small change at a time, and asks who notices: a check
// of the CPU device, or the comparison of outputs. It is how the checks themselves are checked: a change that corrupts
// memory or synchronisation and goes unnoticed is a hole in them.
//
//	mutant.go   what a mutant is, and running one
//	edit.go     finding and changing instructions
//	table.go    the mutants
package mutants
