// Package contraction lowers regions around a matrix multiplication, convolution or attention to kernels.
//
//	problem   the region in normal form: C[z,m,n] = Σ_k A[z,m,k]·B[z,k,n], every operand an affine map of coordinates
//	Schedule  tiles, warps, stages, split-K: data, valid or refused with a reason, ranked by a cost model
//	plan      parameters and how wide each operand is read
//	gen       the kernel: cp.async pipeline, mma.sync or fma.rn core, split-K by the last block to arrive, epilogue
//
// Operands of 16, 8 and 4 bits move alike, 32 bytes of K at a time; numerics says in which type they are multiplied
// and what a warp converts on the way to its fragments:
//
//	e4m3 × e4m3           mma m16n8k32; as f16 where a target has none
//	f16 rounded × e4m3    rounded to e4m3 in registers, then the same
//	f16, e4m3 × e2m1      weights times their block scales are f16 numbers: mma m16n8k16
//	f16 × other weights   likewise, without scales of blocks
//	e2m1 × e2m1           block-scaled mma m16n8k64: both with an e4m3 scale for every 16 of K
//
// In a fused region, blocks compute A themselves (producer): normalised rows, pixels of a depthwise convolution,
// heads of an attention, or another product, whose rows may be normalised in turn.
//
// An epilogue stores f32, 16 bits, e4m3, or NVFP4 where the body ends with BlockQuantize: a thread finishes a block.
//
// A convolution is an implicit matrix multiplication: m runs over output pixels, n over output channels, k over
// window taps and input channels; a tap outside of the image is a copy of zero bytes. Constant weights are packed
// offline into the order in which the compute core reads them, or, where several kernels of a program read them, into
// tiles for all of these.
package contraction
