package blas

import "golang.org/x/sys/cpu"

var (
	vectors = cpu.X86.HasAVX2           // kernels may be called
	fuses   = vectors && cpu.X86.HasFMA // and windows
	wide    = cpu.X86.HasAVX512F        // there are registers of 512 bits
)
