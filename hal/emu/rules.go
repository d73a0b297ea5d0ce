package emu

// RuleInfo documents a rule.
type RuleInfo struct {
	Rule   Rule
	What   string // what violates it
	Always bool   // checked even with Options.Check off
}

// Rules lists the rules that the device checks.
func Rules() []RuleInfo {
	return []RuleInfo{
		{OutOfBounds, "an access outside every allocation of the device or outside the launch's shared memory; an asynchronous copy of more source bytes than its size", true},
		{Misaligned, "an address that is not a multiple of the access size, including the sources of zero-filled copies", true},
		{StepLimit, "a block that executes more warp instructions than Options.StepLimit; a loop that repeats without changing any state is reported at once", true},
		{Deadlock, "warps waiting at different barriers; blocks that all wait for a write that none of them makes, detected by their state repeating", true},
		{Undeclared, "an access to memory that the launch does not declare to read or write; a write to constants", false},
		{Uninitialized, "a read of global or shared memory before it is written: an arena before this run's writes, a range that an earlier launch should have overwritten, an output", false},
		{UndefinedRegister, "a read of a register that the thread has not written, including guards; selp reads only the operand it selects", false},
		{SharedRace, "two accesses to shared memory by different threads, at least one a write, not ordered by a barrier, warp barrier or wait", false},
		{GlobalRace, "the same in global memory, within a block and between blocks; order is established by release and acquire, fences around relaxed atomics and barriers, and between the lanes of a warp only by a warp barrier", false},
		{Divergence, "a .sync or .aligned instruction that some of its required lanes do not execute: barriers after threads have exited, mma, ldmatrix, shuffles and their member masks, bra.uni taken by some lanes, groups of asynchronous copies", false},
		{AsyncUnwaited, "a read or write of shared memory that is the destination of an asynchronous copy, before the issuing thread has waited for the copy", false},
		{DependentEarly, "in a dependent launch, an access to anything but constants before the thread's griddepcontrol.wait, or a launch in which no thread waits", false},
		{MissingEdge, "two launches or copies that access the same bytes, at least one writing, without a path of After edges between them", false},
		{ScaleSelector, "a block-scaled mma whose selector names a byte or thread outside the shape", true},
	}
}
