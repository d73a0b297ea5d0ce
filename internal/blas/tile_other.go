//go:build !amd64 && !arm64

package blas

const vectors, wide, fuses = false, false, false

func tile(*[tileRows * tileCols]float64, *[tileRows]*float64, int, *float64, int) {}

func tile32(_, _ *[tileRows]*float32, _ int, _ *float32, _ int, _ *float32, _ uint32) {}

func tile32at(_, _ *[tileRows]*float32, _ int, _ *float32, _ int, _ *float32, _ uint32, _ *int32) {}

func axpy(float32, *float32, *float32, int) {}

func positive(*float32, *float32, int) {}

func magnitude(*float32, int) uint32 { return 0 }

func requantise(*Rounding, *float32, int) {}

func requantise2(*Rounding, *float32, int) {}

func squares(_, _ *[sumLanes]float64, _, _ *float32, _ int) {}

func columns(*float64, *float32, int, int) {}

func columnDifferences(_ *float64, _, _ *float32, _, _ int) {}

func windows(*float32, **float32, int, *float32, *float32, int, int, int) {}
