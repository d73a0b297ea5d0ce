package cuda

import "github.com/spark-compile/spark-compile/hal"

// Result codes that callers act on (CUDA Driver API, CUresult).
const (
	resultOutOfMemory           = 2
	resultNoDevice              = 100
	resultInvalidImage          = 200
	resultNoBinaryForGPU        = 209
	resultInvalidPTX            = 218
	resultJITCompilerNotFound   = 221
	resultUnsupportedPTXVersion = 222
	resultInvalidSource         = 300
)

func meaning(code int) error {
	switch code {
	case resultOutOfMemory:
		return hal.ErrOutOfMemory
	case resultNoDevice:
		return hal.ErrNoDevice
	case resultInvalidImage, resultNoBinaryForGPU, resultInvalidPTX, resultJITCompilerNotFound, resultUnsupportedPTXVersion, resultInvalidSource:
		return hal.ErrBadModule
	}
	return nil
}
