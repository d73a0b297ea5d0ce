//go:build gorgonia && cgo && linux

package gorgonia

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/spark-compile/spark-compile/hal"
)

// These tests run against the stand-in driver (make gorgonia), which keeps memory but executes nothing.

func open(t *testing.T) *Device {
	t.Helper()
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestDescribesTheDevice(t *testing.T) {
	want := hal.Info{Name: "Fake GB10", Backend: "gorgonia", Target: "sm_121", SharedBlock: 48 << 10}
	if got := open(t).Info(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := Open(9); !errors.Is(err, hal.ErrNoDevice) {
		t.Errorf("device 9: %v", err)
	}
}

func TestMemoryIsZeroedAndKeepsWhatIsWritten(t *testing.T) {
	m, err := open(t).Alloc(64, hal.HostVisible)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write([]byte{1, 2, 3}, 5); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if err := m.Read(got, 4); err != nil || !bytes.Equal(got, []byte{0, 1, 2, 3, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	if m.Write(make([]byte, 65), 0) == nil || m.Read(got, 60) == nil {
		t.Error("transfers beyond the end are errors")
	}
	if err := errors.Join(m.Free(), m.Free()); err != nil {
		t.Error(err)
	}
}

func TestMemoryThatItDoesNotHave(t *testing.T) {
	for _, kind := range []hal.MemoryKind{hal.PinnedMemory, hal.ManagedMemory} {
		if _, err := open(t).Alloc(64, kind); !errors.Is(err, hal.ErrNoSuchMemory) {
			t.Errorf("%d: %v", kind, err)
		}
	}
}

func TestRunsALaunchList(t *testing.T) {
	d, ctx := open(t), context.Background()
	m, err := d.Load(ctx, hal.Image{Name: "m", PTX: ".version 8.8\n"})
	if err != nil {
		t.Fatal(err)
	}
	op := hal.Op{Module: m, Kernel: "k", Grid: [3]int{2, 1, 1}, Block: [3]int{32, 1, 1}, Shared: 48 << 10, Params: []uint64{7}, Sizes: []int{8}, Dependent: true}
	g, err := d.Capture(ctx, []hal.Op{op, op})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

func TestGorgonia_NamesMissingFunctions(t *testing.T) {
	d, ctx := open(t), context.Background()
	if _, err := d.Load(ctx, hal.Image{Name: "m", Cubin: []byte("CUBIN")}); !errors.Is(err, ErrUnsupported) || !errors.Is(err, hal.ErrBadModule) {
		t.Errorf("cubin: %v", err)
	}
	if _, err := d.Load(ctx, hal.Image{Name: "m", PTX: "garbage"}); !errors.Is(err, hal.ErrBadModule) {
		t.Errorf("garbage: %v", err)
	}
	m, err := d.Load(ctx, hal.Image{PTX: ".version 8.8\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = d.Capture(ctx, []hal.Op{{Module: m, Kernel: "large", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Shared: 48<<10 + 1}})
	if !errors.Is(err, ErrUnsupported) || err.Error() != "kernel large: 49153 bytes of shared memory, more than 49152, are not supported by gorgonia.org/cu" {
		t.Errorf("shared memory: %v", err)
	}
	if _, timed := any(&sequence{}).(hal.Timer); timed {
		t.Error("a sequence of launches has no timer")
	}
}
