// Package calibrate chooses 8- and 4-bit numbers for a graph by running it on data: a walk over its regions, in order and
// with all inputs at once, that carries for every value what the exact graph and what the quantised one computes, and so
// can fit each layer to the inputs that it will really see.
//
// The graph is the one that enters pass narrow: f32 regions. What comes out is a passes.Quantisation, plain data, and the
// figures that a report shows. A Trial tells how accurate the program is that a plan becomes; how it becomes one is not
// known here.
package calibrate
