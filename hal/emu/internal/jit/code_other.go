//go:build !(linux && (amd64 || arm64))

package jit

import "errors"

// Code is a compiled kernel; there are none on this system.
type Code struct {
	siteOf []int32
	sites  int
	Left   map[string]int
}

// Detect returns None.
func Detect() Level { return None }

// Compile fails.
func Compile([]Inst, Rows, CopyLayout, Level, bool) (*Code, error) {
	return nil, errors.New("native code needs Linux on amd64 or arm64")
}

// Bytes is the size of the code.
func (c *Code) Bytes() int { return 0 }

// Run fails.
func (c *Code) Run(*Context, int) error { return errors.New("no native code") }

// Step does nothing.
func (c *Code) Step(*Context, int) bool { return false }
