package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
)

// Map returns the host's memory as it is: where GPU and host share page tables, an address is the same on both sides.
// Nothing is registered with the driver. The first call tries it, with memory that kernels read again after the host
// has rewritten it.
func (d *Device) Map(b []byte) (hal.Memory, error) {
	if len(b) == 0 {
		return nil, errors.New("there are no bytes to map")
	}
	d.pages.once.Do(func() {
		if d.pages.err = d.offers(pageable); d.pages.err == nil {
			d.pages.err = d.rereads(context.Background(), pageable, rereadBytes[:smallRereads], rereadsAtOpen)
		}
	})
	if err := d.pages.err; err != nil {
		if errors.Is(err, hal.ErrDeviceLost) {
			return nil, err
		}
		return nil, fmt.Errorf("%s does not read the host's own memory: %w (%w)", d.gpu.Name, hal.ErrNoSuchMemory, err)
	}
	return &memory{device: d, ptr: uint64(addr(&b[0])), size: len(b), host: b, kind: pageable}, nil
}
