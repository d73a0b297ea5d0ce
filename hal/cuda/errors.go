package cuda

import "github.com/spark-compile/spark-compile/hal"

// meanings are the errors that callers distinguish, by result code (CUDA Driver API, CUresult). After those of
// ErrDeviceLost, faults of a kernel or of the hardware, "to continue using CUDA, the process must be terminated and
// relaunched" (there, of most of them); TestGPUAfterAFault shows what a GPU does.
var meanings = map[int]error{
	2:   hal.ErrOutOfMemory,  // CUDA_ERROR_OUT_OF_MEMORY
	34:  hal.ErrNoDriver,     // CUDA_ERROR_STUB_LIBRARY
	35:  hal.ErrDriverTooOld, // CUDA_ERROR_INSUFFICIENT_DRIVER
	46:  hal.ErrDeviceLost,   // CUDA_ERROR_DEVICE_UNAVAILABLE
	100: hal.ErrNoDevice,     // CUDA_ERROR_NO_DEVICE
	101: hal.ErrNoDevice,     // CUDA_ERROR_INVALID_DEVICE
	200: hal.ErrBadModule,    // CUDA_ERROR_INVALID_IMAGE
	209: hal.ErrBadModule,    // CUDA_ERROR_NO_BINARY_FOR_GPU
	214: hal.ErrDeviceLost,   // CUDA_ERROR_ECC_UNCORRECTABLE
	218: hal.ErrBadModule,    // CUDA_ERROR_INVALID_PTX
	220: hal.ErrDeviceLost,   // CUDA_ERROR_NVLINK_UNCORRECTABLE
	221: hal.ErrBadModule,    // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
	222: hal.ErrBadModule,    // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	600: hal.ErrBusy,         // CUDA_ERROR_NOT_READY
	700: hal.ErrDeviceLost,   // CUDA_ERROR_ILLEGAL_ADDRESS
	702: hal.ErrDeviceLost,   // CUDA_ERROR_LAUNCH_TIMEOUT
	709: hal.ErrDeviceLost,   // CUDA_ERROR_CONTEXT_IS_DESTROYED
	710: hal.ErrDeviceLost,   // CUDA_ERROR_ASSERT
	714: hal.ErrDeviceLost,   // CUDA_ERROR_HARDWARE_STACK_ERROR
	715: hal.ErrDeviceLost,   // CUDA_ERROR_ILLEGAL_INSTRUCTION
	716: hal.ErrDeviceLost,   // CUDA_ERROR_MISALIGNED_ADDRESS
	717: hal.ErrDeviceLost,   // CUDA_ERROR_INVALID_ADDRESS_SPACE
	718: hal.ErrDeviceLost,   // CUDA_ERROR_INVALID_PC
	719: hal.ErrDeviceLost,   // CUDA_ERROR_LAUNCH_FAILED
	802: hal.ErrNoDriver,     // CUDA_ERROR_SYSTEM_NOT_READY
	803: hal.ErrDriverTooOld, // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	804: hal.ErrDriverTooOld, // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
}
