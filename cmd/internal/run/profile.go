package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// recorder keeps the counts of the launches of the last run.
type recorder struct{ counts []*emu.Counts }

func (r *recorder) add(c *emu.Counts) {
	if n := len(r.counts); n > 0 && c.Op <= r.counts[n-1].Op {
		r.counts = nil // a new run starts
	}
	r.counts = append(r.counts, c)
}

// open opens the device: with --profile, the CPU device with counting on.
func (f *flags) open(ctx context.Context, load func(hal.Device) error) (hal.Device, *recorder, []string, error) {
	if !f.Profile {
		d, notices, err := detect.Use(ctx, detect.Options{Name: f.Device, Called: "--device", Check: f.Check}, load)
		return d, nil, notices, err
	}
	if f.Device == config.CUDA {
		return nil, nil, nil, errors.New("--profile runs on the CPU device: leave out --device cuda")
	}
	if f.ProfileDevice != "" {
		if _, err := target.OfDevice(f.ProfileDevice); err != nil {
			return nil, nil, nil, fmt.Errorf("--profile-device: %w", err)
		}
	}
	r := &recorder{}
	d, err := emu.Open(emu.Options{Check: f.Check, Profile: r.add})
	if err == nil {
		err = load(d)
	}
	return d, r, nil, err
}

// profiled adds the profile to the report, prints it, and writes it as HTML with --profile-html.
func (f *flags) profiled(w io.Writer, p *runtime.Program, v *runtime.Variant, r *recorder, out *report.Report) error {
	t, err := target.Lookup(v.Target)
	if f.ProfileDevice != "" {
		t, err = target.OfDevice(f.ProfileDevice)
	}
	if err != nil {
		return err
	}
	prof, err := profile.New(p, v, "run", r.counts, t)
	if err != nil {
		return err
	}
	if f.made != nil && v.Target == f.made.Program.Variants[0].Target {
		prof.Name(f.made.RegionNames())
	}
	out.Profile = prof
	if err := prof.WriteTable(w); err != nil {
		return err
	}
	if f.ProfileHTML == "" {
		return nil
	}
	var page bytes.Buffer
	if err := prof.WriteHTML(&page); err != nil {
		return err
	}
	return atomicfile.Write(f.ProfileHTML, page.Bytes())
}
