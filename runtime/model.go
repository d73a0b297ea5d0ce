package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/hal"
)

// Model is a Program on a device: its code and weights. It is immutable and may be shared by sessions and goroutines.
type Model struct {
	Program *Program
	Variant *Variant

	device  hal.Device
	module  hal.Module
	weights hal.Memory

	sessions atomic.Int32 // that are open
}

// ModelOptions chooses among a program's variants.
type ModelOptions struct {
	Target string // "" for the device's own, or the first on a device that runs any
	// HostWeights puts weights into memory that the host sees too, where memory is unified, instead of the device's own. Whether the
	// device keeps such memory in its L2 is not known of every machine; they are put there in any case where spark-info --check has found
	// it to be faster (hal.Info).
	HostWeights bool
}

// NewModel loads code and weights onto the device. The device must outlive the model.
func NewModel(ctx context.Context, p *Program, d hal.Device, opt ModelOptions) (*Model, error) {
	target := opt.Target
	if target == "" {
		target = d.Info().Target
	}
	v, err := p.Variant(target)
	if err != nil {
		return nil, err
	}
	m := &Model{Program: p, Variant: v, device: d}
	if m.module, err = d.Load(ctx, hal.Image{Name: p.Model, Target: v.Target, PTX: v.PTX, Cubin: v.Cubin}); err != nil {
		return nil, fmt.Errorf("%s: loading kernels for %s: %w", p.Model, v.Target, err)
	}
	if len(p.Weights) > 0 {
		kind := hal.DeviceMemory
		if info := d.Info(); info.Unified && (opt.HostWeights || info.HostWeights) {
			kind = hal.HostVisible
		}
		if m.weights, err = d.Alloc(len(p.Weights), kind); err == nil {
			err = m.weights.Write(p.Weights, 0)
		}
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("%s: %d bytes of weights: %w", p.Model, len(p.Weights), err)
		}
	}
	return m, nil
}

// Close frees the model's memory and code. It is an error (ErrInUse) while sessions of it are open.
func (m *Model) Close() error {
	if n := m.sessions.Load(); n > 0 {
		return fmt.Errorf("%s: %w: close its sessions first, %d open", m.Program.Model, ErrInUse, n)
	}
	var err error
	if m.weights != nil {
		err = m.weights.Free()
	}
	if m.module != nil {
		err = errors.Join(err, m.module.Close())
	}
	m.weights, m.module = nil, nil
	return err
}

// Launches is the number of graph nodes of a run of the variant: kernels and copies.
func (v *Variant) Launches() int {
	if e := v.Entry("run"); e != nil {
		return len(e.Launches)
	}
	return 0
}

// Entry returns the entry of that name, or nil.
func (v *Variant) Entry(name string) *Entry {
	for i := range v.Entries {
		if v.Entries[i].Name == name {
			return &v.Entries[i]
		}
	}
	return nil
}
