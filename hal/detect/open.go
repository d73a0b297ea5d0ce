// Package detect opens the device to run on: the requested one, or the best available. If no device was requested by
// name and the best one cannot be used, it falls back to the next and reports the reason and a fix.
package detect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/cuda"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// Options select a device.
type Options struct {
	Name   string // auto, cuda, cuda:N or emu; "" and auto leave the choice to the environment (hal/config)
	Called string // what messages call Name: a flag, or an option of a generated package; "": Options.Name
	Check  bool   // emu: check memory, races, initialisation and synchronisation
	// Device is an open device to use. The caller closes it, and it is no other's turn if it fails.
	Device hal.Device

	Switches map[string]bool // by names of hal.SwitchNames: true for on; those that are missing are the environment's

	Library string                      // the driver; "" for libcuda.so.1
	Lookup  func(string) (string, bool) // the environment; nil means the process's own
}

func (opt *Options) called() string { return cmp.Or(opt.Called, "Options.Name") }

// Open opens the device. If none is requested by name, a machine without a usable GPU gets the CPU device. why lists
// what was missing and whether inputs and outputs must be copied to a GPU; it is empty if neither applies.
func Open(ctx context.Context, opt Options) (d hal.Device, why string, err error) {
	d, notices, err := Use(ctx, opt, func(hal.Device) error { return nil })
	return d, strings.Join(notices, "; "), err
}

// Use opens a device and calls try with it, for example to load a model. If no device is requested by name, it falls
// back to the next one when a device cannot be opened or try fails because of the device: out of memory, PTX that the
// driver rejects, no variant for it, device lost. When try fails it must have released what it allocated.
func Use(ctx context.Context, opt Options, try func(hal.Device) error) (hal.Device, []string, error) {
	if opt.Device != nil {
		if opt.Name != "" || opt.Check {
			return nil, nil, fmt.Errorf("the model goes to a device that is open already (%s), so neither %s nor checks can be chosen", opt.Device.Info().Name, opt.called())
		}
		if err := try(opt.Device); err != nil {
			return nil, nil, Explain(err)
		}
		return opt.Device, copies(opt.Device), nil
	}
	if _, err := config.Ordinal(cmp.Or(opt.Name, config.Auto)); err != nil {
		return nil, nil, fmt.Errorf("%s %w", opt.called(), err)
	}
	settings, err := config.Read(config.Flags{Device: opt.Name, Switches: opt.Switches}, opt.Lookup)
	if err != nil {
		return nil, nil, err
	}
	off, err := settings.Off()
	if err != nil {
		return nil, nil, err
	}
	notices := slices.Concat(settings.GPU.Warnings, settings.Device.Warnings)
	for _, s := range settings.Switches {
		notices = append(notices, s.Warnings...)
	}
	candidates, notice := list(settings, off, opt)
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
		notices = append(notices, fmt.Sprintf("not using %s (%v); trying %s", c.name, Explain(err), candidates[i+1].name))
	}
	return nil, nil, hal.ErrNoDevice // there is always a candidate
}

// closing closes a device after a failure. Closing a lost device fails too, which adds nothing.
func closing(d hal.Device, why error) error {
	if err := d.Close(); !errors.Is(why, hal.ErrDeviceLost) {
		return err
	}
	return nil
}

// copies warns that a GPU does not share its memory with the host.
func copies(d hal.Device) []string {
	if c, ok := d.(interface{ Copies() string }); ok && c.Copies() != "" {
		return []string{"inputs and outputs are copied on each run: " + c.Copies()}
	}
	return nil
}

// candidate is a device that may be opened.
type candidate struct {
	name string
	open func() (hal.Device, error)
}

// list returns the devices that may be opened, best first; notice gives the reason if an expected GPU is missing.
func list(s *config.Settings, off hal.Switches, opt Options) (out []candidate, notice string) {
	cpu := candidate{"the CPU device", func() (hal.Device, error) { return emu.Open(emu.Options{Check: opt.Check, Switches: off}) }}
	name := s.Device.Value
	if name == config.Emu {
		if s.Device.From == s.GPU.From {
			notice = fmt.Sprintf("%s: running on the CPU device", s.GPU.From)
		}
		return []candidate{cpu}, notice
	}
	options := cuda.Options{Library: opt.Library, Cache: s.CacheDir("jit"), Homes: s.CacheDir("home"), Switches: off}
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
		if name == config.CUDA {
			return []candidate{{config.CUDA, func() (hal.Device, error) { return nil, err }}}, ""
		}
		return []candidate{cpu}, fmt.Sprintf("running on the CPU device (%v)", Explain(err))
	}
	for _, g := range sys.Ranked() {
		out = append(out, gpu(fmt.Sprintf("cuda:%d (%s)", g.Ordinal, g.Name), g.Ordinal))
	}
	if name == config.CUDA {
		return out[:1], ""
	}
	return append(out, cpu), ""
}
