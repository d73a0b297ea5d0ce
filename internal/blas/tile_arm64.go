package blas

import "golang.org/x/sys/cpu"

var (
	vectors = cpu.ARM64.HasASIMD // kernels may be called
	fuses   = vectors            // and windows
	wide    = false              // there are registers of 512 bits
)
