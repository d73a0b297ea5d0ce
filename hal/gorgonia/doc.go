// Package gorgonia is a hal.Device over gorgonia.org/cu, for programs that use that binding already. It is a module of its
// own, behind the build tag gorgonia, because cu needs cgo and CUDA's headers (12.9 at the newest), and because it ends
// the process when it is linked into a program on a machine without a driver.
//
// cu reaches less of the driver than hal/cuda: it has no CUDA graphs, so that a run is a sequence of launches; no
// programmatic launch, so that kernels do not overlap; and no opt-in to shared memory beyond 48 KB, so that kernels which
// need it are refused. Nothing falls back silently: what is refused names the kernel.
package gorgonia
