// Package detect opens the device to run on: the one that was asked for, or the best there is. A device that was not
// asked for by name and cannot be used makes way for the next one, and the reason is told in a line.
package detect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// Names of devices. cuda:1 is the second GPU.
const (
	Auto = config.Auto
	CUDA = config.CUDA
	Emu  = config.Emu
)

// Options chooses a device.
type Options struct {
	Name  string // auto, cuda, cuda:N or emu; "" and auto leave the choice to the environment (hal/config)
	Check bool   // emu: memory, race, initialisation and synchronisation checks

	Library string                      // the driver; "" for libcuda.so.1
	Lookup  func(string) (string, bool) // the environment; nil for the process's own
}

// Open opens the device. Where none is asked for by name, a machine without a usable GPU gets the CPU device; why says
// what was missing, and whether a GPU that is used needs its inputs and outputs copied. It is empty if there is nothing
// to say.
func Open(ctx context.Context, opt Options) (d hal.Device, why string, err error) {
	d, notices, err := Use(ctx, opt, func(hal.Device) error { return nil })
	return d, strings.Join(notices, "; "), err
}

// Use opens a device and tries it, for example by loading a model. Where no device is asked for by name, the next one is
// taken if a device cannot be had or if try fails for a reason that lies in the device: out of memory, a PTX that the
// driver refuses, no variant, a device that is lost. try must leave nothing behind on a device that it refuses.
func Use(ctx context.Context, opt Options, try func(hal.Device) error) (hal.Device, []string, error) {
	settings, err := config.Read(config.Flags{Device: opt.Name}, opt.Lookup)
	if err != nil {
		return nil, nil, err
	}
	notices := append(append([]string{}, settings.GPU.Warnings...), settings.Device.Warnings...)
	candidates, notice := list(settings, opt)
	if notice != "" {
		notices = append(notices, notice)
	}
	for i, c := range candidates {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		d, err := c.open()
		if err == nil {
			if err = try(d); err == nil {
				return d, append(notices, copies(d)...), nil
			}
			err = errors.Join(err, closing(d, err))
			if !deviceFault(err) {
				return nil, nil, err
			}
		}
		if i == len(candidates)-1 {
			return nil, nil, fmt.Errorf("device %s: %w", c.name, Explain(err))
		}
		notices = append(notices, fmt.Sprintf("%s is not used (%v): trying %s", c.name, Explain(err), candidates[i+1].name))
	}
	return nil, nil, hal.ErrNoDevice // there is always a candidate
}

// closing closes a device that is given up. What a lost device says to that is no news.
func closing(d hal.Device, why error) error {
	if err := d.Close(); !errors.Is(why, hal.ErrDeviceLost) {
		return err
	}
	return nil
}

// copies is the one warning of a GPU that does not share its memory with the host.
func copies(d hal.Device) []string {
	if c, ok := d.(interface{ Copies() string }); ok && c.Copies() != "" {
		return []string{"inputs and outputs are copied at each run: " + c.Copies()}
	}
	return nil
}

// candidate is a device that may be opened.
type candidate struct {
	name string
	open func() (hal.Device, error)
}

// list is what may be opened, best first; notice says why no GPU is among it where one might be expected.
func list(s *config.Settings, opt Options) (out []candidate, notice string) {
	cpu := candidate{"the CPU device", func() (hal.Device, error) { return emu.Open(emu.Options{Check: opt.Check}) }}
	name := s.Device.Value
	if name == Emu {
		if s.Device.From == s.GPU.From {
			notice = fmt.Sprintf("%s: running on the CPU device", s.GPU.From)
		}
		return []candidate{cpu}, notice
	}
	options := cuda.Options{Library: opt.Library, Cache: s.CacheDir("jit")}
	gpu := func(label string, ordinal int) candidate {
		o := options
		o.Ordinal = ordinal
		return candidate{label, func() (hal.Device, error) {
			d, err := cuda.Open(o)
			if err != nil {
				return nil, err // not d: a nil *cuda.Device is no nil hal.Device
			}
			return d, nil
		}}
	}
	if ordinal, err := config.Ordinal(name); err == nil && ordinal >= 0 {
		return []candidate{gpu(name, ordinal)}, ""
	}
	sys, err := cuda.List(options)
	if err == nil && len(sys.GPUs) == 0 {
		err = hal.ErrNoDevice
	}
	if err != nil {
		if name == CUDA {
			return []candidate{{CUDA, func() (hal.Device, error) { return nil, err }}}, ""
		}
		return []candidate{cpu}, fmt.Sprintf("no GPU is used (%v): running on the CPU device", Explain(err))
	}
	for _, g := range sys.Ranked() {
		out = append(out, gpu(fmt.Sprintf("cuda:%d (%s)", g.Ordinal, g.Name), g.Ordinal))
	}
	if name == CUDA {
		return out[:1], ""
	}
	return append(out, cpu), ""
}
