// Package detect opens the device that a name asks for: a GPU if there is one, else the CPU device.
package detect

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// Names of devices.
const (
	Auto = "auto"
	CUDA = "cuda"
	Emu  = "emu"
)

// Options chooses a device.
type Options struct {
	Name  string // auto, cuda or emu; "" is auto
	Check bool   // emu: memory, race, initialisation and synchronisation checks
}

// Open opens the device. With auto, a machine without a usable GPU gets the CPU device, and why says what was missing;
// a device that was asked for by name is an error if it cannot be had.
func Open(ctx context.Context, opt Options) (d hal.Device, why string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	switch opt.Name {
	case CUDA:
		d, err := cuda.Open(cuda.Options{})
		if err != nil {
			return nil, "", fmt.Errorf("device cuda: %w", err)
		}
		return d, "", nil
	case Auto, "":
		d, err := cuda.Open(cuda.Options{})
		if err == nil {
			return d, "", nil
		}
		why = fmt.Sprintf("no GPU is used (%v): running on the CPU device", err)
	case Emu:
	default:
		return nil, "", fmt.Errorf("unknown device %q: auto, cuda or emu", opt.Name)
	}
	e, err := emu.Open(emu.Options{Check: opt.Check})
	return e, why, err
}
