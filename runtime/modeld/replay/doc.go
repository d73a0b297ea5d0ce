// Package replay reads a drive from a directory of frames, for the loops of package modeld.
//
// A directory has frames in one of two formats. Numbers count the road camera's frames; what is missing between two of them
// counts as missed.
//
//	NNNNNN.npz         arrays road and wide, or driver, or all three: uint8 [height·3/2, width], NV12 without padding: the rows of
//	                   luma, then those of interleaved U and V
//	NNNNNN_road.png    a picture in colour; so are NNNNNN_wide.png and NNNNNN_driver.png
//
// A PNG becomes NV12 by JFIF's matrix, which is BT.601's over the full range:
//
//	Y = (19595·R + 38470·G + 7471·B + 2¹⁵) / 2¹⁶
//
// rounded down, of each pixel, and U and V, likewise (color.RGBToYCbCr has the numbers), as the rounded mean of four pixels', halves up.
// No source at hand says whether openpilot's cameras use the full range. The .npz format has their bytes as they are.
//
// Frames are read when they are asked for. All errors name a file.
package replay
