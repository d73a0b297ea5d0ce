// Package contraction lowers regions around a matrix multiplication, convolution or attention to kernels.
//
//	problem   the region in normal form: C[z,m,n] = Σ_k A[z,m,k]·B[z,k,n], every operand an affine map of coordinates
//	Schedule  tiles, warps, stages, split-K: data, valid or refused with a reason, ranked by a cost model
//	plan      parameters and how wide each operand is read
//	gen       the kernel: cp.async pipeline, mma.sync or fma.rn core, split-K by the last block to arrive, epilogue
//	Inspect   counts in the main loop of a kernel, for reports
//
// A convolution is an implicit matrix multiplication: m runs over output pixels, n over output channels, k over window taps
// and input channels; a tap outside of the image is a copy of zero bytes. Constant weights are packed offline into the
// order in which the compute core reads them.
package contraction
