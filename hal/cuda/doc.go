// Package cuda is the hal.Device over the NVIDIA driver. The driver library is opened at run time, so that one binary
// without cgo works on machines with and without a GPU.
//
//	driver.go          the entry points in use, and how they are called
//	errors.go          result codes
//	list.go, gpu.go    the GPUs that the driver reports, without a context
//	device.go          device, memory
//	unified.go         how host and device share memory: attributes and a probe; coherence.go: the probe's kernel
//	module.go          code: cubin where the driver takes it, else PTX
//	jit.go             what the driver compiles from PTX, cached on disk
//	graph.go           one CUDA graph of all launches; capture.go: its edges; wait.go: the end of a run, or of its context
package cuda
