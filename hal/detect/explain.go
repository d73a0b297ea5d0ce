package detect

import (
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
)

// remedies says what can be done about each fault of a device.
var remedies = []struct {
	is     error
	remedy string
}{
	{hal.ErrDriverTooOld, "install a newer NVIDIA driver (580 or newer for GB10), and reboot if that was just done"},
	{hal.ErrNoDriver, "install the NVIDIA driver, or use the CPU device"},
	{hal.ErrNoDevice, "is the GPU visible (nvidia-smi, CUDA_VISIBLE_DEVICES, the container's --gpus)?"},
	{hal.ErrOutOfMemory, "free memory on the device; where memory is shared with the CPU, in the whole machine"},
	{hal.ErrBadModule, "a newer driver may take it; else compile the model again with ptxas at hand"},
	{hal.ErrNoVariant, ""}, // the error names the target to compile for
	{hal.ErrDeviceLost, "open the device anew; if it stays lost, see dmesg for Xid messages and reset the GPU"},
}

// explained is an error that has its remedy.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// Explain adds a remedy to an error of a device, once. Other errors stay as they are.
func Explain(err error) error {
	if errors.As(err, new(explained)) {
		return err
	}
	for _, r := range remedies {
		if errors.Is(err, r.is) && r.remedy != "" {
			return explained{fmt.Errorf("%w: %s", err, r.remedy)}
		}
	}
	return err
}

// deviceFault says that another device may do better.
func deviceFault(err error) bool {
	for _, r := range remedies {
		if errors.Is(err, r.is) {
			return true
		}
	}
	return false
}
