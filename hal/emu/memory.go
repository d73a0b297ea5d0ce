package emu

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// memory is a block of the device's address space, backed by Go memory.
type memory struct {
	dev  *Device
	addr uint64
	data []byte
	kind hal.MemoryKind
	// undefined has a 1 for each byte that was never written; nil if all were.
	undefined []byte
	mapped    bool // the host's own bytes (Map)
}

// The address space: each block begins at a multiple of memoryAlign, with at least memoryGap unused bytes before it, so
// that an overrun does not land in a neighbour.
const (
	firstAddress = 0x7f00_0000_0000
	memoryAlign  = 256
	memoryGap    = 4096
)

func (m *memory) Size() int    { return len(m.data) }
func (m *memory) Addr() uint64 { return m.addr }

// Bytes is the memory itself. The host's writes to it go unnoticed, so host-visible memory counts as written.
func (m *memory) Bytes() []byte {
	if m.dev.opts.Discrete && m.kind != hal.PinnedMemory {
		return nil
	}
	if m.kind == hal.HostVisible || m.kind == hal.PinnedMemory {
		m.define(0, len(m.data))
	}
	return m.data
}

// BindHost binds host memory of the same size in place of the memory's own, until the next call: launches without checks
// access it in place. Slices that Bytes returned before no longer alias the memory.
func (m *memory) BindHost(data []byte) error {
	if len(data) != len(m.data) || m.dev.opts.Check {
		return fmt.Errorf("emu: %d bytes lent to an allocation of %d, checks %v: as many are wanted, and no checks", len(data), len(m.data), m.dev.opts.Check)
	}
	m.data = data
	return nil
}

func (m *memory) Read(dst []byte, offset int) error {
	if err := m.holds("read", len(dst), offset); err != nil {
		return err
	}
	copy(dst, m.data[offset:])
	m.dev.toHost.Add(int64(len(dst)))
	return nil
}

func (m *memory) Write(src []byte, offset int) error {
	if err := m.holds("write", len(src), offset); err != nil {
		return err
	}
	copy(m.data[offset:], src)
	m.define(offset, len(src))
	m.dev.toDevice.Add(int64(len(src)))
	return nil
}

func (m *memory) holds(what string, n, offset int) error {
	if offset < 0 || offset > len(m.data) || n > len(m.data)-offset {
		return fmt.Errorf("emu: %s of %d bytes at offset %d of a %d-byte allocation", what, n, offset, len(m.data))
	}
	return nil
}

func (m *memory) define(offset, n int) {
	if m.undefined != nil {
		clear(m.undefined[offset : offset+n])
	}
}

// forget marks a range as never written.
func (m *memory) forget(offset, n int) {
	if m.undefined == nil {
		m.undefined = make([]byte, len(m.data))
	}
	u := m.undefined[offset : offset+n]
	for i := range u {
		u[i] = 1
	}
}

// Map gives bytes of the host's addresses of the device. They count as written, and not as memory that the device has.
func (d *Device) Map(b []byte) (hal.Memory, error) {
	if d.opts.Discrete {
		return nil, &hal.Error{Call: "emu.Map", Text: "the device has memory of its own", Err: hal.ErrNoSuchMemory}
	}
	m := &memory{dev: d, kind: hal.HostVisible, data: b, mapped: true}
	d.place(m)
	return m, nil
}

func (m *memory) Free() error {
	d := m.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.memories, m); i >= 0 {
		d.memories = slices.Delete(slices.Clone(d.memories), i, i+1)
		if !m.mapped && m.kind != hal.PinnedMemory {
			d.used -= len(m.data)
		}
		return nil
	}
	return fmt.Errorf("emu: memory freed twice")
}

// span is a range of addresses that a launch may touch.
type span struct {
	lo, hi   uint64
	data     []byte // the bytes at lo…hi
	mem      *memory
	constant bool
	owners   *owners // of ranges that the launch writes, where checks are on
}

func (m *memory) span() span {
	return span{lo: m.addr, hi: m.addr + uint64(len(m.data)), data: m.data, mem: m}
}

// describe names an address for a message.
func (l *launch) describe(addr uint64) string {
	for _, m := range l.memories {
		if addr >= m.addr && addr < m.addr+uint64(len(m.data)) {
			return fmt.Sprintf("address %#x (offset %d of the %d-byte allocation at %#x)", addr, addr-m.addr, len(m.data), m.addr)
		}
	}
	return fmt.Sprintf("address %#x (in no allocation)", addr)
}
