// Package layout is the algebra of index maps that kernels are written in: a coordinate is split into modes, each
// with a size and a stride, and an offset is the sum of the products.
//
//	Mode      one factor of a coordinate: size and stride
//	View      a tensor seen through movement (reshape, transpose, slice, broadcast): modes for every dimension
//	Fragment  which element of a matrix a lane's register holds, for mma.sync and ldmatrix
//	Swizzle   where a 16-byte chunk of a shared-memory tile lies, so that eight rows hit different banks
//
// It is the emitter's side of the fragment maps: hal/emu has its own, written from the PTX ISA's figures, and a test of
// codegen/contraction holds the two against each other.
package layout
