//go:build linux && (amd64 || arm64)

package jit

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Code is a compiled kernel.
type Code struct {
	level  Level
	steps  bool
	insts  []Inst
	rows   Rows
	likely map[int]*ptx.Row32
	layout CopyLayout
	siteOf []int32
	sites  int
	full   image
	part   image // for warps that lack lanes: made when first needed
	once   sync.Once
	err    error

	// Left counts by opcode the instructions without a native form, except those that are always the interpreter's.
	Left map[string]int
}

// image is executable memory and where each instruction's code begins in it.
type image struct {
	memory  []byte
	base    uintptr
	entries []uint32
}

// Compile translates a kernel: to be Run or, with steps, for Step.
func Compile(insts []Inst, rows Rows, layout CopyLayout, level Level, steps bool) (*Code, error) {
	c := &Code{level: level, steps: steps, insts: insts, rows: rows, layout: layout}
	if level == AVX512 && !steps {
		c.likely = likelyAddresses(insts, rows)
	}
	c.siteOf = make([]int32, len(insts))
	for i := range c.siteOf {
		c.siteOf[i] = -1
	}
	code, entries, left := c.emit(false)
	for _, s := range c.siteOf {
		c.sites = max(c.sites, int(s)+1)
	}
	c.Left = left
	var err error
	if c.full, err = load(code, entries); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(c, (*Code).release)
	return c, nil
}

// emit translates the kernel, masked for warps that lack lanes.
func (c *Code) emit(masked bool) (code []byte, entries []uint32, left map[string]int) {
	for _, far := range []bool{false, true} {
		e := newEmitter(c.level, far)
		e.masked, e.steps, e.insts, e.known, e.likely = masked, c.steps, c.insts, c.rows.Constants, c.likely
		e.layout, e.siteOf = c.layout, c.siteOf
		var ok bool
		if code, entries, ok = e.emit(); ok {
			return code, entries, e.left
		}
	}
	return nil, nil, nil
}

// image is the code for the running lanes.
func (c *Code) image(mask uint32) (*image, error) {
	if mask == 1<<32-1 {
		return &c.full, nil
	}
	return c.partial()
}

func (c *Code) partial() (*image, error) {
	c.once.Do(func() {
		code, entries, _ := c.emit(true)
		c.part, c.err = load(code, entries)
	})
	return &c.part, c.err
}

// load copies code to memory of its own, which is never writable and executable at once.
func load(code []byte, entries []uint32) (image, error) {
	m, err := syscall.Mmap(-1, 0, len(code), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return image{}, fmt.Errorf("memory for %d bytes of code: %w", len(code), err)
	}
	copy(m, code)
	synchronise(uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(len(m)))
	if err := syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		_ = syscall.Munmap(m)
		return image{}, fmt.Errorf("making code executable: %w", err)
	}
	return image{m, uintptr(unsafe.Pointer(&m[0])), entries}, nil
}

func (c *Code) release() {
	for _, i := range []image{c.full, c.part} {
		if i.memory != nil {
			_ = syscall.Munmap(i.memory)
		}
	}
}

// Bytes is the size of the code.
func (c *Code) Bytes() int { return len(c.full.memory) + len(c.part.memory) }

// Run executes from an instruction until the code returns; the context then says how to go on. Where there is no
// entry, it is at once.
func (c *Code) Run(x *Context, pc int) error {
	i, err := c.image(x.Mask)
	if err != nil {
		return err
	}
	if i.entries[pc] == 0 {
		x.PC, x.Interpret = int32(pc), 1
		return nil
	}
	x.Entry = i.base + uintptr(i.entries[pc])
	enter(x, i.base)
	runtime.KeepAlive(c)
	return nil
}

// Step executes one instruction that computes on registers alone, whatever its guard says. It returns false, and does
// nothing, if the instruction is none of these.
func (c *Code) Step(x *Context, pc int) bool {
	i, err := c.image(x.Mask)
	if err != nil || i.entries[pc] == 0 {
		return false
	}
	enter(x, i.base+uintptr(i.entries[pc]))
	runtime.KeepAlive(c)
	if x.Interpret != 0 {
		x.Interpret = 0
		return false
	}
	return true
}

// enter calls code with a context, on the goroutine's stack: the code is a leaf that needs little.
//
//go:noescape
func enter(x *Context, code uintptr)
