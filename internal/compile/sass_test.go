package compile

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptxas"
	"github.com/spark-compile/spark-compile/internal/target"
)

var (
	entryOf  = regexp.MustCompile(`\.entry (\w+)\(`)
	loadsOf  = regexp.MustCompile(`\b(ld\.global|cp\.async\.c[ag])`)
	textOf   = regexp.MustCompile(`\.section\s+\.text\.(\w+)`)
	opcodeOf = regexp.MustCompile(`/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)`)
)

// earlyLoads counts, for each kernel of a module that waits for its predecessors, the loads in front of the wait: those of constants.
func earlyLoads(text string) map[string]int {
	out := map[string]int{}
	at := entryOf.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if before, _, waits := strings.Cut(text[m[1]:end], "griddepcontrol.wait"); waits {
			out[text[m[2]:m[3]]] = len(loadsOf.FindAllString(before, -1))
		}
	}
	return out
}

// acquired counts, for each kernel, the loads from global memory in front of ACQBULK, which is what the wait becomes; -1: it has none.
func acquired(sass string) map[string]int {
	out := map[string]int{}
	at := textOf.FindAllStringSubmatchIndex(sass, -1)
	for i, m := range at {
		end := len(sass)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		loads, waits := 0, false
		for _, op := range opcodeOf.FindAllStringSubmatch(sass[m[1]:end], -1) {
			if waits = op[1] == "ACQBULK"; waits {
				break
			}
			if strings.HasPrefix(op[1], "LDG") {
				loads++
			}
		}
		if !waits {
			loads = -1
		}
		out[sass[m[2]:m[3]]] = loads
	}
	return out
}

// requireEarlyLoads: the constants that PTX loads before it waits for the launches in front of it, the machine code loads before, too.
// ptxas moves ld.global.nc behind the wait, so that a kernel begins its weights when it could use them.
func requireEarlyLoads(t *testing.T, tool *ptxas.Tool, text string, cubin []byte, tg *target.Target) {
	t.Helper()
	if !tg.DependentLaunch {
		return
	}
	sass, err := tool.Disassemble(context.Background(), cubin)
	if errors.Is(err, ptxas.ErrNotFound) {
		t.Log("no nvdisasm: where loads lie in machine code is not looked at")
		return
	}
	require.NoError(t, err)
	got := acquired(sass)
	for kernel, want := range earlyLoads(text) {
		require.GreaterOrEqual(t, got[kernel], want, "%s for %s: loads of constants that the wait is not in front of", kernel, tg.Name)
	}
}

func TestLoadsInFrontOfTheWaitAreCounted(t *testing.T) {
	require.Equal(t, map[string]int{"a": 2, "c": 0}, earlyLoads(`.visible .entry a(.param .u64 p) { ld.param.u64 %rd0, [p]; ld.global.b32 %r0, [%rd0];
	cp.async.cg.shared.global [%r1], [%rd0], 16; griddepcontrol.wait; ld.global.b32 %r1, [%rd0]; }
.visible .entry b() { ld.global.b32 %r0, [%rd0]; ret; }
.visible .entry c() { griddepcontrol.wait; ld.global.b32 %r0, [%rd0]; }`))
	require.Equal(t, map[string]int{"a": 1, "b": -1}, acquired(`	.section	.text.a,"ax"
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDG.E R0, desc[UR6][R10.64] ;
        /*0020*/                   ACQBULK ;
        /*0030*/                   LDG.E.CONSTANT R2, desc[UR6][R10.64] ;
	.section	.text.b,"ax"
        /*0000*/                   LDG.E R0, desc[UR6][R10.64] ;`))
}
