package jit

import (
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Inst is an instruction. Operands are rows: of 32-bit values, of 64-bit values or of predicates, as the row of the
// instruction table says.
type Inst struct {
	Def        *ptx.Def
	Guard      int32 // predicate row, or -1
	Negate     bool
	D, A, B, C int32
	Imm        int64 // of a branch, the target
	Vec        []int32
	Size       int     // bytes of an element that is loaded or stored
	Dies       []int32 // 32-bit rows that no instruction reads after this one
}

// Rows is what is known of 32-bit rows that no instruction writes.
type Rows struct {
	Constants map[int32]uint32
	Lanes     []int32 // hold the number of the lane, in a first warp
}

// Level is an instruction set.
type Level uint8

// Levels. None compiles nothing.
const (
	None Level = iota
	AVX2
	AVX512
	NEON
)

func (l Level) String() string { return [...]string{"none", "AVX2", "AVX-512", "NEON"}[l] }

// CopyLayout is the memory layout of the interpreter's pending asynchronous copies of a warp.
type CopyLayout struct {
	Stride                             int // bytes of a copy
	Size, Mask, Group, Offsets, Blocks int // offsets: uint32, uint32, int, [32]uint32, [32][16]byte
}

// Site caches the span that a global memory instruction last accessed.
type Site struct {
	Low   uint64 // the span's first address, less the instruction's offset
	Limit uint64 // the last offset in the span at which an access fits
	Delta uint64 // host address less device address, plus the instruction's offset
	_     uint64
}

// unknown is a Site that no address fits.
var unknown = Site{Low: 1 << 62}

// Context is a warp's state for native code.
type Context struct {
	R, Q, P, Shared unsafe.Pointer
	Params          unsafe.Pointer
	Sites           *Site
	Entry           uintptr
	SharedBytes     int64
	Steps           int64 // instructions that may be executed before a backward branch returns
	Mask            uint32
	NextPC          int32 // the least pc at which other lanes wait
	PC              int32 // on return: the instruction to go on with
	Interpret       int32 // on return: 1 if the interpreter must execute it
	Copies          unsafe.Pointer
	CopyCount       int64
	CopySpace       int64
	Group           int64

	scratch [12<<10 + 64]byte // for native code
}

// NewSites returns the sites of a launch.
func (c *Code) NewSites() []Site {
	s := make([]Site, c.sites)
	for i := range s {
		s[i] = unknown
	}
	return s
}

// SiteOf is the site of an instruction, or -1.
func (c *Code) SiteOf(pc int) int { return int(c.siteOf[pc]) }
