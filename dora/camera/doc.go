// Package camera gives the pictures of a route as a model sees them.
//
//	OpenVideo  frames of a video, decoded by ffmpeg, one after the other
//	Encode     writes one
//	Positions  which frame of a video an index of the log is of
//	Warp       a camera's picture as the planes that a driving model takes, with the bits of the operator WarpFrame
//	Image      such planes as a picture to look at, and paths drawn on it
package camera
