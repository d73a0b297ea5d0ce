// Package cuda is the hal.Device over the NVIDIA driver. The driver library is opened at run time, so that one binary
// without cgo works on machines with and without a GPU.
//
//	driver.go    the entry points that are used, and how they are called
//	errors.go    result codes
//	device.go    device, memory
//	module.go    code: cubin where the driver takes it, else PTX
//	graph.go     launches captured into one CUDA graph
package cuda
