// Package cuda is the hal.Device over the NVIDIA driver. The driver library is opened at run time, so that one binary
// without cgo works on machines with and without a GPU.
//
//	driver.go          the entry points that are used, and how they are called
//	errors.go          result codes
//	list.go, gpu.go    what the driver says of the GPUs, without a context
//	device.go          device, memory
//	unified.go         how host and device share memory: attributes and a probe
//	module.go          code: cubin where the driver takes it, else PTX
//	jit.go             what the driver compiles from PTX, kept on disk
//	graph.go           launches captured into one CUDA graph
package cuda
