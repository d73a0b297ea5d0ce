// Package kernel is the interface between the kernel families and the code generator's driver: a family lowers a
// region to a Spec; the driver assigns addresses to its operands, places it in the launch list and prints it.
package kernel

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Spec is one launch: the kernel, its shape and what it touches. Lowering is a pure function of region and context: the
// same region gives the same Spec, byte for byte.
type Spec struct {
	Stem   string // beginning of the kernel's name, readable: conv3x3_gelu, layernorm, copy
	Family string // contraction, loop, window
	Grid   [3]int
	Block  [3]int
	Shared int // dynamic shared memory, bytes

	// Operands are the parameters in order, pointers first.
	Operands []Operand
	Priority int // launch attribute: 0, or down to -5 for blocks that are placed before others'
	// Emit writes the kernel into k, whose parameters the driver has declared: params[i] is the symbol of operand i.
	// Specs whose emitted text is equal share one kernel.
	Emit func(k *ptx.Kernel, params []ptx.Sym)

	// Hints are what the driver says when it knows all launches, before Emit; nil where a family takes none.
	Hints *Hints

	MACs     int64
	Work     *cost.Work // that the schedule was chosen by; nil where there was no choice by time
	Schedule string     // readable summary of the schedule
	Reason   string     // why a rule of thumb is not met, or empty
	Note     string     // what it computes

	Signature string // by which Choices know it; "" where there is no choice
}

// Hints change how fast a kernel is, not what it computes.
type Hints struct {
	ReadOnce bool // no other launch reads the kernel's weights, and L2 cannot keep them until the next run: they may leave it first
}

// Operand is a parameter: what a pointer points to, or a number. Exactly one of Value, Const, Workspace, Counter,
// Number is set.
type Operand struct {
	Value         *ir.Value // a graph value (region input or output), dense row-major; constants included
	Const         []byte    // constant data made by the family: packed weights, tables
	PartsFromLast int       // of a Const of a fused region: the distance from the part it belongs to to the last part
	Workspace     int       // bytes of scratch that need not survive the launch
	Counter       int       // bytes of zero-initialised state that the kernel leaves zero
	Number        *Number   // a scalar passed by value, not part of the kernel's text
	Write         bool      // the kernel writes it (a Workspace and a Counter are always written)
	Read          bool      // of a Value that is written: it is also read
	Over          *ir.Value // of a Value that is written in part: the value that has the other elements; nil: all is written
}

// Number is a parameter by value.
type Number struct {
	Type string // u32, f32, u64 …
	Bits uint64
}

// paramType is the type of a parameter in PTX.
func (o *Operand) paramType() string {
	if o.Number != nil {
		return o.Number.Type
	}
	return "u64"
}

// Bytes is the size of a parameter.
func (o *Operand) Bytes() int { return ptx.Param{Type: o.paramType()}.Size() }

// Context is what a family can ask about its surroundings.
type Context struct {
	Target *target.Target
	// Align is the guaranteed alignment in bytes of a value's address (256 unless known otherwise; a view into another
	// value may have less).
	Align func(v *ir.Value) int
	// Updates reports whether out is the new value of a state binding, and old its input: a kernel may then write only
	// the elements that change. nil: there are none.
	Updates func(out, old *ir.Value) bool
	// Unpacked says that schedules are wanted, not programs: constants that kernels pack need the right size, not the
	// right bytes.
	Unpacked  bool
	Schedules ScheduleCache // nil: families choose
}

// AlignOf is Align, or 256 if the context has none.
func (c *Context) AlignOf(v *ir.Value) int {
	if c.Align == nil {
		return 256
	}
	return c.Align(v)
}

// StoresBlocks reports why a kernel cannot store what a region's BlockQuantize yields; nil if it can, or if there is
// none.
func (c *Context) StoresBlocks(region *ir.Node) error {
	n := region.Region.BlockQuantize()
	if n == nil {
		return nil
	}
	codes := region.Outputs[0]
	d := codes.Type.DType
	if !c.Target.Multiplies(d.String()) {
		return fmt.Errorf("%s (BlockQuantize): %s has no conversion to %v: use --precision fp8 or fp16, or a target that multiplies %v", n.Name, c.Target.Name, d, d)
	}
	if a, block := c.AlignOf(codes), ir.BlockSize*d.Bits()/8; a < block {
		return fmt.Errorf("%s (BlockQuantize): codes of %s are aligned to %d bytes, want %d", n.Name, codes.Name, a, block)
	}
	return nil
}

// Wait ends what a kernel may do before its predecessors have finished, where the target has dependent launch, and
// lets the next launch begin. Every thread waits before its first access to anything but constants.
func Wait(k *ptx.Kernel, t *target.Target) {
	if t.DependentLaunch {
		k.I("griddepcontrol.wait")
		k.I("griddepcontrol.launch_dependents")
	}
}

// Build prints the spec as a module of its own, for tests.
func (s *Spec) Build(t *target.Target, name string) *ptx.Module {
	m := ptx.NewModule(t.Name)
	s.EmitInto(m, name)
	return m
}

// EmitInto adds the kernel to a module under a name.
func (s *Spec) EmitInto(m *ptx.Module, name string) *ptx.Kernel {
	k := m.NewKernel(name, s.Block[0]*s.Block[1]*s.Block[2])
	params := make([]ptx.Sym, len(s.Operands))
	for i := range s.Operands {
		params[i] = k.AddParam(fmt.Sprintf("p%d", i), s.Operands[i].paramType())
	}
	s.Emit(k, params)
	return k
}
