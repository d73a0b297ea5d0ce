package emu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// elsewhere are the tests of rules that need more than a kernel.
var elsewhere = map[Rule]string{
	Deadlock:      "TestBlocksThatWaitForEachOtherAreReported",
	StepLimit:     "TestAWaitThatCountsHitsTheStepLimit",
	GlobalRace:    "TestTheLastBlockToArriveMayReadAllParts, TestKnowledgeTravelsByReleaseAndAcquire, TestAReleaseDoesNotCoverAnotherWarp, TestAReleaseDoesNotCoverAnotherLane",
	MissingEdge:   "TestGraphChecks",
	ScaleSelector: "TestUndefinedSelectors",
}

// rules are what the device checks, as docs/checks.md lists them.
var rules = []struct {
	Rule   Rule
	What   string // what breaks it
	Always bool   // found with checks off too
}{
	{OutOfBounds, "an access or prefetch outside every allocation or the launch's shared memory; an asynchronous copy of more bytes than its size", true},
	{Misaligned, "an address that is no multiple of the access size (bulk prefetches: address and size, of 16)", true},
	{PrefetchSize, "a bulk prefetch of 1 MiB or more: GPUs take 20 bits of its size", true},
	{StepLimit, "a block that runs more warp instructions than Options.StepLimit, or a loop that changes no state", true},
	{Deadlock, "warps at different barriers; blocks that wait for a write that none of them makes", true},
	{ScaleSelector, "a block-scaled mma whose selector names a byte or thread outside the shape", true},
	{Undeclared, "an access that the launch does not declare; a write to constants; a prefetch of anything but declared constants", false},
	{Uninitialized, "a read before this run writes, also of shared memory and outputs", false},
	{UndefinedRegister, "a read of a register or guard that the thread has not written; selp reads only the operand it selects", false},
	{SharedRace, "two unordered accesses by different threads, at least one a write, not both atomic", false},
	{GlobalRace, "the same in global memory, in a block or between blocks", false},
	{Divergence, "a .sync or .aligned instruction that some of its lanes do not execute: barriers after threads have exited, mma, ldmatrix, shuffles, bra.uni", false},
	{AsyncUnwaited, "an access to its destination before the issuing thread has waited", false},
	{DependentEarly, "in a dependent launch, an access to anything but constants before griddepcontrol.wait; a launch in which no thread waits", false},
	{MissingEdge, "two launches or copies that access the same bytes, one writing, without a path of After edges", false},
}

// TestRules_AreDocumentedAndBroken: some kernel of the tests breaks each rule, and docs/checks.md lists it.
func TestRules_AreDocumentedAndBroken(t *testing.T) {
	const page = "../../docs/checks.md"
	raw, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, r := range rules {
		if !slices.ContainsFunc(kernelCases, func(c kernelCase) bool { return c.rule == r.Rule }) {
			require.NotEmpty(t, elsewhere[r.Rule], "no kernel breaks %s", r.Rule)
		}
	}
	head, rest, found := strings.Cut(string(raw), tableHead)
	require.True(t, found)
	_, rest, found = strings.Cut(rest, "\n\n")
	require.True(t, found)
	var rows strings.Builder
	for _, r := range rules {
		when := "--check"
		if r.Always {
			when = "always"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", r.Rule, when, r.What)
	}
	golden.Text(t, page, head+tableHead+rows.String()+"\n"+rest)
}

const tableHead = "| rule | checked | violated by |\n|---|---|---|\n"
