// Package dataset gives samples to train on: what a model is shown, and what is known of what came after.
//
//	Open     a directory of arrays or of routes, or a known data set, as a Set of samples
//	Split    keeps whole routes from training
//	Shuffle  the order of an epoch, the same on every machine
//	Shard    a rank's part of that order
//	Load     samples in an order, prefetched by several workers
//
// Samples are made for one model: Options.Inputs says what it takes.
package dataset
