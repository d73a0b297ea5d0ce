// Package foreignkernels holds kernels whose PTX other compilers wrote (Triton, nvcc, CuTe), with inputs and references in float64, for tests.
// Those compilers are known to be right on hardware, so kernels of theirs that give right answers on the CPU device confirm what
// it takes instructions to mean: which lane holds which element above all.
//
// testdata/make.py writes the PTX again, from sources of our own. docs/gpu.md lists what is confirmed by whom.
//
//	Case   a kernel of a file with its launch
//	Cases  all of them
//	Run    runs one, and compares its results with the reference
package foreignkernels
