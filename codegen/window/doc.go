// Package window is the kernel family of sliding windows over images: depthwise convolution and pooling, NHWC. A
// block computes a tile of neighbouring pixels for some channels. It reads the tile's inputs and weights once, 16
// bytes at a time, into shared memory as f32, so that each element is converted and padded once. Each thread then
// slides the window over a few neighbouring pixels. The sums go back through shared memory, so that the epilogue
// reads and writes wide vectors of channels.
//
//	window.go      a region's geometry and weights
//	schedule.go    tiles, and the choice among them
//	emit.go        the frame of the kernel
//	stage.go       inputs and weights into shared memory
//	accumulate.go  the sliding window
//	finish.go      the epilogue and what is stored
//	fused.go       two windows in one kernel: the second slides over what the first computes
//
// Weights are packed [member][tile of channels][kh][kw][channel] in f32. codegen/lower lowers what follows the
// anchor.
package window
