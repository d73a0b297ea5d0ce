// Package teacher computes what a student is held to: the outputs and inner values of a model, compiled in any precision, for many
// samples at a time, with what it has computed kept on disk.
//
// Open compiles the model. Teacher.Values gives the values of samples: those that the cache has come from there, the others are
// computed in batches. A cache never changes a result: an entry is found by the program and the kind of device, the sample's key and its inputs, holds the
// numbers that were computed, in f32, and is computed again if it is damaged. Several processes may share a directory. Variation says how
// far values vary, by which losses are made comparable.
package teacher
