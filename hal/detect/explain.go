package detect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/dlopen"
)

type remedy struct {
	is   error
	text string
}

// remedies are the faults of a device, after which another device may work, each with what the user can do about it.
var remedies = []remedy{
	{dlopen.ErrUnsupported, ""}, // the error says which program to take
	{hal.ErrDriverTooOld, "install a newer NVIDIA driver (580 or newer for GB10); reboot if you just did"},
	{hal.ErrNoDriver, "install the NVIDIA driver"},
	{hal.ErrNoDevice, "is the GPU visible (nvidia-smi, CUDA_VISIBLE_DEVICES, the container's --gpus)?"},
	{hal.ErrOutOfMemory, "free memory on the device, or on the whole machine if GPU and CPU share it"},
	{hal.ErrBadModule, "try a newer driver, or compile the model again with ptxas installed"},
	{hal.ErrNoVariant, ""}, // the error names the target to compile for
	{hal.ErrDeviceLost, "end this process and start another one, since the GPU does not come back in a process that met a fault; if that fails too, look for Xid messages in dmesg and reset the GPU"},
}

// explained is an error that already names its remedy.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// Explain adds a remedy to a device error that has none yet. Other errors are returned unchanged.
func Explain(err error) error {
	if errors.As(err, new(explained)) {
		return err
	}
	for _, r := range remedies {
		if !errors.Is(err, r.is) {
			continue
		}
		if r.text == "" {
			return err
		}
		return explained{fmt.Errorf("%w: %s", err, r.text)}
	}
	return err
}

// deviceFault reports whether another device may work where this one failed.
func deviceFault(err error) bool {
	return slices.ContainsFunc(remedies, func(r remedy) bool { return errors.Is(err, r.is) })
}
