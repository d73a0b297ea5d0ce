package emu

// RuleInfo describes a rule for a reader.
type RuleInfo struct {
	Rule   Rule
	What   string // what breaks it
	Always bool   // found with checks off too
}

// Rules lists what the device finds.
func Rules() []RuleInfo {
	return []RuleInfo{
		{OutOfBounds, "an access outside every memory of the device, outside the launch's shared memory, or of more bytes than a copy has", true},
		{Misaligned, "an address that is no multiple of the access's size, sources of zero-filled copies included", true},
		{StepLimit, "a block that executes more warp instructions than Options.StepLimit; a loop that goes round without changing anything, at once", true},
		{Deadlock, "warps at different barriers; blocks that all wait for a write that none of them will make, which is proved by their state repeating", true},
		{Undeclared, "an access to memory that the launch does not declare to read or write; a write to constants", false},
		{Uninitialized, "a read of global or shared memory that nobody wrote: an arena before this run's writes, a range that an earlier launch was to overwrite and did not, an output", false},
		{UndefinedRegister, "a read of a register that the thread has not written, guards included; selp counts as a read of what it takes", false},
		{SharedRace, "two accesses of shared memory by different threads, one of them a write, that no barrier, warp barrier or wait orders", false},
		{GlobalRace, "the same in global memory, within a block and between blocks; order travels by release and acquire, fences around relaxed atomics, barriers, and from a lane to its warp only by a warp barrier", false},
		{Divergence, "a .sync or .aligned instruction that not all lanes it needs execute: barriers of exited threads, mma, ldmatrix, shuffles and their member masks, bra.uni that some lanes take, groups of asynchronous copies", false},
		{AsyncUnwaited, "shared memory that an asynchronous copy is still to write, read or written before the wait of the thread that issued it", false},
		{DependentEarly, "in a dependent launch, an access to anything but constants before the thread's griddepcontrol.wait; a launch in which no thread waits", false},
		{MissingEdge, "two launches or copies that touch the same bytes, one of them writing, without a path of After edges between them", false},
		{ScaleSelector, "a block-scaled mma whose selector names bytes or threads that the shape does not have", true},
	}
}
