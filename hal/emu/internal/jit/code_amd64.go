//go:build linux

package jit

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// Code is a compiled kernel.
type Code struct {
	level  Level
	insts  []Inst
	layout CopyLayout
	siteOf []int32
	sites  int
	full   image
	part   image // for warps that lack lanes: made when first needed
	once   sync.Once
	err    error

	// Left counts by opcode the instructions without a native form, apart from those that are always the interpreter's.
	Left map[string]int
}

// image is executable memory and where each instruction's code begins in it.
type image struct {
	memory  []byte
	base    uintptr
	entries []uint32
}

// Compile translates a kernel.
func Compile(insts []Inst, layout CopyLayout, level Level) (*Code, error) {
	c := &Code{level: level, insts: insts, layout: layout}
	c.siteOf = make([]int32, len(insts))
	for i := range c.siteOf {
		c.siteOf[i] = -1
	}
	e := emitter{wide: level == AVX512, insts: insts, layout: layout, siteOf: c.siteOf}
	code, entries := e.emit()
	for _, s := range c.siteOf {
		c.sites = max(c.sites, int(s)+1)
	}
	c.Left = e.left
	var err error
	if c.full, err = load(code, entries); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(c, (*Code).release)
	return c, nil
}

// partial compiles the code for warps that lack lanes.
func (c *Code) partial() error {
	c.once.Do(func() {
		e := emitter{wide: c.level == AVX512, masked: true, insts: c.insts, layout: c.layout, siteOf: c.siteOf}
		code, entries := e.emit()
		c.part, c.err = load(code, entries)
	})
	return c.err
}

// load copies code to memory of its own, which is never writable and executable at once.
func load(code []byte, entries []uint32) (image, error) {
	m, err := syscall.Mmap(-1, 0, len(code), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return image{}, fmt.Errorf("memory for %d bytes of code: %w", len(code), err)
	}
	copy(m, code)
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

// Run executes from an instruction until the code returns; the context then says how to go on.
func (c *Code) Run(x *Context, pc int) error {
	i := &c.full
	if x.Mask != 1<<32-1 {
		if err := c.partial(); err != nil {
			return err
		}
		i = &c.part
	}
	x.Entry = i.base + uintptr(i.entries[pc])
	enter(x, i.base)
	runtime.KeepAlive(c)
	return nil
}

// enter calls code with a context, on the goroutine's stack: the code is a leaf that needs little.
//
//go:noescape
func enter(x *Context, code uintptr)
