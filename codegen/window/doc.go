// Package window is the kernel family of sliding windows over images: depthwise convolution and pooling, NHWC. A thread
// computes a vector of channels for a few neighbouring output pixels, so that loads are 16 bytes wide and a column of the
// window that several pixels share is read once.
//
//	window.go    what a region asks for, and which schedule it gets
//	emit.go      the kernel
//
// Weights are packed [member][kh][kw][channel] in f32. What stands behind the anchor is lowered by codegen/lower.
package window
