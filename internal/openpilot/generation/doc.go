// Package generation has one row for each generation of openpilot's models: inputs, histories, sampling, output
// slices, and what openpilot's modeld of that time does around them. A new generation is a new row.
//
//	Row     a generation; Of recognises a driving model's, Named finds the one that a program records
//	Slice   a named part of an output: its distribution and its forms
//	Vector  what a model is told besides pictures, desires and histories
//
// Composing the step, the loop on the host, training and simulation read these rows. The package imports no
// compiler.
package generation
