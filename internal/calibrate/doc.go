// Package calibrate chooses 8- and 4-bit formats for a graph by running it on data. It walks the regions in order, with all
// inputs at once, and keeps every value twice: as the exact graph computes it and as the quantised one does. So each layer
// is fitted to the inputs that it will really see.
//
// Its input is the graph that enters pass assign-storage, of f32 regions; its output is a passes.Quantisation, which is plain data,
// and the figures of the report. A Trial compiles a plan and measures the program's accuracy.
package calibrate
