package cuda

import "github.com/spark-compile/spark-compile/hal"

// Result codes that callers act on (CUDA Driver API, CUresult).
const (
	resultOutOfMemory           = 2
	resultStubLibrary           = 34
	resultInsufficientDriver    = 35
	resultDeviceUnavailable     = 46
	resultNoDevice              = 100
	resultInvalidDevice         = 101
	resultInvalidImage          = 200
	resultNoBinaryForGPU        = 209
	resultECCUncorrectable      = 214
	resultInvalidPTX            = 218
	resultNVLinkUncorrectable   = 220
	resultJITCompilerNotFound   = 221
	resultUnsupportedPTXVersion = 222
	resultSystemNotReady        = 802
	resultSystemDriverMismatch  = 803
	resultCompatNotSupported    = 804
)

// lost are the codes after which a context is of no use any more: faults of kernels and of the hardware.
var lost = map[int]bool{resultDeviceUnavailable: true, resultECCUncorrectable: true, resultNVLinkUncorrectable: true,
	700: true, // CUDA_ERROR_ILLEGAL_ADDRESS
	702: true, // CUDA_ERROR_LAUNCH_TIMEOUT
	709: true, // CUDA_ERROR_CONTEXT_IS_DESTROYED
	710: true, // CUDA_ERROR_ASSERT
	714: true, // CUDA_ERROR_HARDWARE_STACK_ERROR
	715: true, // CUDA_ERROR_ILLEGAL_INSTRUCTION
	716: true, // CUDA_ERROR_MISALIGNED_ADDRESS
	717: true, // CUDA_ERROR_INVALID_ADDRESS_SPACE
	718: true, // CUDA_ERROR_INVALID_PC
	719: true, // CUDA_ERROR_LAUNCH_FAILED
}

func meaning(code int) error {
	switch code {
	case resultOutOfMemory:
		return hal.ErrOutOfMemory
	case resultStubLibrary, resultSystemNotReady:
		return hal.ErrNoDriver
	case resultInsufficientDriver, resultSystemDriverMismatch, resultCompatNotSupported:
		return hal.ErrDriverTooOld
	case resultNoDevice, resultInvalidDevice:
		return hal.ErrNoDevice
	case resultInvalidImage, resultNoBinaryForGPU, resultInvalidPTX, resultJITCompilerNotFound, resultUnsupportedPTXVersion:
		return hal.ErrBadModule
	}
	if lost[code] {
		return hal.ErrDeviceLost
	}
	return nil
}
