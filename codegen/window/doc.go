// Package window is the kernel family of sliding windows over images: depthwise convolution and pooling, NHWC. A block
// computes a tile of neighbouring pixels for some channels. It reads the tile's inputs and weights once, 16 bytes at a
// time, into shared memory as f32, so that elements are converted and padded once, whatever their type; each thread then
// slides over a few neighbouring pixels; the sums return through shared memory, so that the epilogue reads and writes wide
// vectors of channels again.
//
//	window.go      what a region asks for
//	schedule.go    tiles, and which one a region gets
//	emit.go        the kernel: its frame
//	stage.go       inputs and weights into shared memory
//	accumulate.go  the sliding window
//	finish.go      the epilogue and what is stored
//
// Weights are packed [member][tile of channels][kh][kw][channel] in f32. What stands behind the anchor is lowered by
// codegen/lower.
package window
