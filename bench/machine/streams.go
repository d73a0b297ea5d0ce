package machine

import (
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
)

// stream is the rate of going over bytes: several times over the same ones, which L2 holds, or once over as many and over twice as many. A
// copy reads and writes as many each.
func (r *rig) stream(kernel string, kind hal.MemoryKind, bytes, blocks, passes int) (f cost.Figure, err error) {
	part := max(1, bytes/blocks/streamUnit) * streamUnit
	err = r.scoped(func() error {
		parts := 1
		if passes == 0 || kernel == "copy" {
			parts = 2
		}
		m, err := r.alloc(parts*part*blocks, kind)
		if err != nil {
			return err
		}
		if passes > 0 {
			f, err = r.twice(passes, func(n int) hal.Op { return r.op(kernel, blocks, streamThreads, n, m, part) })
		} else {
			f, err = r.twice(1, func(n int) hal.Op { return r.op(kernel, blocks, streamThreads, 1, m, n*part) })
		}
		return err
	})
	return per(float64(part*blocks), f), err // bytes a µs
}

// l2 reads, writes and copies what L2 holds: nothing goes back to memory meanwhile, since the same bytes are written again and again.
func l2(r *rig) error {
	of := func(kernel string) (cost.Figure, error) {
		f, err := r.stream(kernel, hal.DeviceMemory, r.sizes.cached, r.sizes.fill, r.sizes.passes)
		return scaled(f, 1e-3), err
	}
	for _, c := range []struct{ kernel, name string }{{"read", "l2_read_gbps"}, {"write", "l2_write_gbps"}} {
		f, err := of(c.kernel)
		if err != nil {
			return err
		}
		r.found(c.name, f)
	}
	f, err := of("copy")
	if err != nil {
		return err
	}
	r.found("l2_together", per(1/(1/r.on.L2ReadGBps+1/r.on.L2WriteGBps), f))
	f, err = r.stream("read", hal.DeviceMemory, r.sizes.cached/4, 1, r.sizes.passes)
	if err != nil {
		return err
	}
	r.found("l2_bytes_clock", scaled(f, 1/r.clocks()))
	return nil
}

// kept reads more and more bytes, all of them in every launch, until most come from memory each time. By the model the part that does is
// cost.Machine.Left; where it is a half shows what L2 keeps, and a quarter and three quarters show how far the device follows the model.
func kept(r *rig) error {
	const name = "kept_share"
	blocks := max(1, r.sizes.fill/2) // so that sizes lie closer together
	unit := blocks * streamUnit
	took := func(units int) (us float64, err error) {
		err = r.scoped(func() error {
			m, err := r.alloc(units*unit, hal.DeviceMemory)
			if err != nil {
				return err
			}
			f, err := r.slope(r.sizes.passes, 2*r.sizes.passes, func(n int) []hal.Op {
				return row(r.op("read", blocks, streamThreads, 1, m, units*streamUnit), n, false)
			})
			us = f.Middle
			return err
		})
		return us, err
	}
	one, err := took(1)
	if err != nil {
		return err
	}
	two, err := took(2)
	if err != nil {
		return err
	}
	hot := two - one // of a unit that L2 serves; the rest is the launch's
	launch := one - hot
	many := max(4, r.sizes.memory/unit)
	far, err := took(many)
	if err != nil {
		return err
	}
	hidden := float64(r.on.Exposed * hot)
	cold := (far-launch)/float64(many) - hidden
	if !(hot > 0 && cold > 1.5*hot) {
		r.file.Left[name] = fmt.Sprintf("memory seems as fast as L2: %.3g and %.3g µs", cold, hot)
		return nil
	}
	crossed := map[float64]float64{} // bytes by the part of them that memory serves
	size, part := 2., 0.
	for quarters := 2; quarters <= 8 && len(crossed) < len(crossings); quarters++ {
		units := max(3, (quarters*r.sizes.l2/4+unit/2)/unit)
		us, err := took(units)
		if err != nil {
			return err
		}
		each := (us - launch) / float64(units)
		next := 0.
		if each > 1.1*hot {
			next = (each - hidden) / cold
		}
		for _, at := range crossings {
			if _, ok := crossed[at]; !ok && next >= at && float64(units) > size {
				crossed[at] = (size + (float64(units)-size)*(at-part)/(next-part)) * float64(unit)
			}
		}
		size, part = float64(units), next
	}
	half, ok := crossed[0.5]
	if !ok {
		r.file.Left[name] = fmt.Sprintf("twice what L2 is said to hold, and memory still serves only %.2f of it", part)
		return nil
	}
	f := cost.Figure{Middle: half / (1 + 0.5/1.5) / float64(r.sizes.l2)}
	f.Low, f.High = f.Middle, f.Middle
	for _, at := range crossings {
		if bytes, ok := crossed[at]; ok {
			x := bytes / (1 + at/1.5) / float64(r.sizes.l2)
			f.Low, f.High = min(f.Low, x), max(f.High, x)
		}
	}
	r.found(name, f)
	return nil
}

// crossings are the parts of what is read that memory serves, by which kept goes.
var crossings = []float64{0.25, 0.5, 0.75}

// memory is read and written where the device keeps what it allocates, and where the host sees it: pinned and managed, of which the model knows
// nothing. In which of them inputs and outputs lie is found by whether host and device see each other's writes there (hal/cuda), not by these rates.
func memory(r *rig) error {
	for _, c := range []struct {
		kernel, name string
		kind         hal.MemoryKind
	}{
		{"read", "memory_gbps", hal.DeviceMemory}, {"write", "memory_write_gbps", hal.DeviceMemory},
		{"read", "pinned_gbps", hal.PinnedMemory}, {"write", "pinned_write_gbps", hal.PinnedMemory},
		{"read", "managed_gbps", hal.ManagedMemory}, {"write", "managed_write_gbps", hal.ManagedMemory},
	} {
		switch f, err := r.stream(c.kernel, c.kind, r.sizes.memory, r.sizes.fill, 0); {
		case errors.Is(err, hal.ErrNoSuchMemory):
			r.file.Left[c.name] = err.Error()
		case err != nil:
			return err
		default:
			r.found(c.name, scaled(f, 1e-3))
		}
	}
	return nil
}
