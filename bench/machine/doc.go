// Package machine measures the constants of the cost model on a device: microbenchmarks whose kernels do much of one thing, each in two
// amounts, so that the difference of two times is that thing alone. What they find is a machine file (internal/cost), by which
// spark-compile chooses kernels and predictions are made.
//
// Every kernel runs on the CPU device too, with checks on, where times mean nothing: a file made there says that it describes no GPU.
package machine
