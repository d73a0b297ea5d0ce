package emu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhere are the tests of rules that need more than a kernel.
var elsewhere = map[Rule]string{
	Deadlock:      "TestBlocksThatWaitForEachOtherAreReported",
	StepLimit:     "TestAWaitThatCountsHitsTheStepLimit",
	GlobalRace:    "TestTheLastBlockToArriveMayReadAllParts, TestKnowledgeTravelsByReleaseAndAcquire, TestAReleaseDoesNotCoverAnotherWarp, TestAReleaseDoesNotCoverAnotherLane",
	MissingEdge:   "TestGraphChecks",
	ScaleSelector: "TestUndefinedSelectors",
}

// TestEveryRuleIsDocumentedAndBroken: docs/checks.md lists each rule with the kernels that break it in the tests, at least
// one each. UPDATE=1 writes it anew.
func TestEveryRuleIsDocumentedAndBroken(t *testing.T) {
	var rows strings.Builder
	for _, r := range Rules() {
		var broken []string
		for _, c := range kernelCases {
			if c.rule == r.Rule {
				broken = append(broken, c.name)
			}
		}
		if e := elsewhere[r.Rule]; e != "" {
			broken = append(broken, "`"+strings.ReplaceAll(e, ", ", "`, `")+"`")
		}
		require.NotEmpty(t, broken, r.Rule)
		when := "--check"
		if r.Always {
			when = "always"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", r.Rule, when, r.What, strings.Join(broken, "; "))
	}
	text := fmt.Sprintf(checksText, rows.String())
	path := filepath.Join("..", "..", "docs", "checks.md")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(have), text, "UPDATE=1 go test ./hal/emu -run Documented")
}

const checksText = `# What the CPU device checks

` + "`spark-run --check`" + `, and every test that runs kernels, executes PTX with all checks on. A report names the kernel, the PTX
line and its text, block, thread, address, and for a race the other access. Written by

    UPDATE=1 go test ./hal/emu -run Documented

which also holds every rule to a kernel that breaks it; ` + "`docs/mutants.md`" + ` says what becomes of real kernels that are broken.

| rule | found | what breaks it | kernels that break it in the tests |
|---|---|---|---|
%s
Before anything runs, loading refuses PTX that does not parse, instructions outside the table or that the module's target
lacks, registers out of their declared number, and unknown labels, with line and reason; a launch beyond the limits of a
grid, a block, the target's shared memory or the kernel's parameters is refused as the driver would.

Happens-before is program order of a thread, barriers, warp barriers, waits for asynchronous copies, release and acquire
(also by fences around relaxed atomics), and the edges between launches. Lanes of a warp are unordered between ` + "`.sync`" + `
instructions, blocks of a launch always.

What this does not find:

- Races are found in the execution that took place. Of a word of global memory the last write and the last read are
  remembered, of a word of shared memory the last write and all warps that read: a write that races with an older read of
  global memory by a third thread can go unnoticed, a read that races with a write cannot.
- A fence makes later relaxed atomics of its thread releases of everything up to the atomic, not up to the fence.
- Registers are followed by the lane, memory by the byte; bits within a byte are not.
- Checks run in the interpreter, on one order of warps within a block; native code runs without them.
`
