package runtime

import "github.com/spark-compile/spark-compile/internal/npy"

// Float64s converts the bytes of a tensor to float64, for comparing and printing. dtype is a port's; i64 and u64 beyond 2^53
// are rounded.
func Float64s(dtype string, b []byte) ([]float64, error) { return npy.Float64s(dtype, b) }
