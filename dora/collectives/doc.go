// Package collectives lets the processes of a job, which mpirun, torchrun or Slurm has started on one machine or several, act together.
//
//	Join   finds this process's place in its environment, and the others
//	Group  means of vectors, broadcasts, messages
//	Agree  compares what all ranks must have in common
//
// Results have the same bits on every rank and in every run: sums are taken in the order of the ranks. A rank that ends or fails ends the
// others within seconds, with an error that names it.
package collectives
