package emu

import (
	"fmt"
	"strings"
)

// Rule names what a kernel did wrong.
type Rule string

// Rules. The first four stop a kernel with or without checks.
const (
	OutOfBounds       Rule = "out of bounds"
	Misaligned        Rule = "misaligned"
	PrefetchSize      Rule = "prefetch size"
	StepLimit         Rule = "step limit"
	Deadlock          Rule = "deadlock"
	Undeclared        Rule = "access outside the declared ranges"
	Uninitialized     Rule = "read of memory that was never written"
	UndefinedRegister Rule = "read of a register that was never written"
	SharedRace        Rule = "race in shared memory"
	GlobalRace        Rule = "race in global memory"
	Divergence        Rule = "divergent warp-wide instruction"
	AsyncUnwaited     Rule = "asynchronous copy used before its wait"
	DependentEarly    Rule = "access before griddepcontrol.wait"
	MissingEdge       Rule = "missing edge"
	ScaleSelector     Rule = "undefined scale selector"
)

// Access is one side of a conflict.
type Access struct {
	Line   int // of the PTX text; 0 if not known
	Text   string
	Block  [3]int
	Thread [3]int
	Write  bool
}

// Violation is an error that the emulator found in a kernel or in a launch list.
type Violation struct {
	Rule   Rule
	Kernel string
	Access
	Where    string  // the address or buffer
	Conflict *Access // the other side of a race
	Detail   string
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "emu: kernel %s: %s", v.Kernel, v.Rule)
	if v.Where != "" {
		fmt.Fprintf(&b, ": %s", v.Where)
	}
	if v.Detail != "" {
		fmt.Fprintf(&b, ": %s", v.Detail)
	}
	if v.Line > 0 {
		fmt.Fprintf(&b, ", at %s", v.Access)
	}
	if v.Conflict != nil {
		fmt.Fprintf(&b, "; conflicts with the %s of %s", map[bool]string{true: "write", false: "read"}[v.Conflict.Write], *v.Conflict)
	}
	return b.String()
}

func (a Access) String() string {
	var b strings.Builder
	if a.Line > 0 {
		fmt.Fprintf(&b, "line %d (%s), ", a.Line, a.Text)
	}
	fmt.Fprintf(&b, "block %v, thread %v", a.Block, a.Thread)
	return b.String()
}

// fault is panicked by the interpreter and recovered where a block is run.
type fault struct{ err error }

// access describes what a lane of the warp does at an instruction.
func (w *warp) access(in *inst, lane int) Access {
	a := Access{Line: in.stmt.Line, Text: in.stmt.Comment, Block: w.b.id, Thread: w.b.thread(w.id*32 + lane), Write: in.def.Writes()}
	if in.stmt.Instr != nil {
		a.Text = in.stmt.Instr.String()
	}
	return a
}

// violate stops the block.
func (w *warp) violate(rule Rule, in *inst, lane int, where, detail string, args ...any) {
	panic(fault{&Violation{Rule: rule, Kernel: w.b.l.prog.name, Access: w.access(in, lane), Where: where,
		Detail: fmt.Sprintf(detail, args...)}})
}
