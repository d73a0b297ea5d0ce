// Package gorgonia implements hal.Device with gorgonia.org/cu, for programs that already use that binding. It is a
// module of its own with the build tag gorgonia, because cu needs cgo and CUDA's headers (12.9 or older), and because
// a program that links it exits at once on a machine without a driver.
//
// cu exposes less of the driver than hal/cuda does: no CUDA graphs, so a run is a sequence of launches; no
// programmatic dependent launch, so kernels do not overlap; and no opt-in to more than 48 KB of shared memory, so
// kernels that need it are rejected by name.
package gorgonia
