package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/runtime"
)

// placing notes what kind of memory is asked for, on a device that says of itself whether memory is unified.
type placing struct {
	hal.Device
	unified bool
	host    bool // is found to be better
	kinds   []hal.MemoryKind
}

func (p *placing) Info() hal.Info {
	i := p.Device.Info()
	i.Unified, i.HostWeights = p.unified, p.host
	return i
}

func (p *placing) Alloc(n int, k hal.MemoryKind) (hal.Memory, error) {
	p.kinds = append(p.kinds, k)
	return p.Device.Alloc(n, k)
}

func TestWeightsLieInTheDevicesMemoryUnlessTheHostsIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name    string
		unified bool
		host    bool
		opt     runtime.ModelOptions
		want    hal.MemoryKind
	}{
		{"unified", true, false, runtime.ModelOptions{}, hal.DeviceMemory},
		{"unified, and the host's is asked for", true, false, runtime.ModelOptions{HostWeights: true}, hal.HostVisible},
		{"unified, and the host's is better", true, true, runtime.ModelOptions{}, hal.HostVisible},
		{"discrete", false, true, runtime.ModelOptions{HostWeights: true}, hal.DeviceMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := emu.Open(emu.Options{})
			require.NoError(t, err)
			defer d.Close()
			p := &placing{Device: d, unified: c.unified, host: c.host}
			m, err := runtime.NewModel(t.Context(), accumulator(false), p, c.opt)
			require.NoError(t, err)
			require.NoError(t, m.Close())
			require.Equal(t, []hal.MemoryKind{c.want}, p.kinds)
		})
	}
}
