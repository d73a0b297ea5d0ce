package kerneltest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// Assembler is ptxas, with the cache of SPARK_CACHE; without it the test is skipped.
func Assembler(t testing.TB) *toolchain.Ptxas {
	t.Helper()
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	tool.Cache = os.Getenv("SPARK_CACHE")
	if tool.Cache != "" {
		tool.Cache = filepath.Join(tool.Cache, "ptxas")
	}
	return tool
}

// Assembled has ptxas take a program's kernels for all of its targets: no refusal, no spills, constants loaded before
// the wait.
func Assembled(t testing.TB, tool *toolchain.Ptxas, p *runtime.Program) {
	t.Helper()
	for _, v := range p.Variants {
		tg, err := target.Lookup(v.Target)
		require.NoError(t, err)
		out, err := tool.Assemble(context.Background(), v.PTX, tg.Name)
		require.NoError(t, err, "%s for %s", p.Model, v.Target)
		require.Len(t, out.Usage, len(v.Kernels))
		for _, u := range out.Usage {
			require.Zero(t, u.Spills, "%s of %s for %s spills", u.Kernel, p.Model, v.Target)
		}
		requireEarlyLoads(t, tool, v.PTX, out.Cubin, tg)
	}
}

var (
	entryOf  = regexp.MustCompile(`\.entry (\w+)\(`)
	loadsOf  = regexp.MustCompile(`\b(ld\.global|cp\.async\.c[ag])`)
	textOf   = regexp.MustCompile(`\.section\s+\.text\.(\w+)`)
	opcodeOf = regexp.MustCompile(`/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)`)
)

// earlyLoads counts the loads before the wait, which are of constants, in each kernel that waits for its
// predecessors.
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

// acquired counts, for each kernel, the loads from global memory before ACQBULK, the machine code of the wait; -1
// without one.
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

// requireEarlyLoads: constants that PTX loads before it waits for its predecessors are loaded before the wait in
// machine code too. ptxas moves ld.global.nc after the wait, so such a kernel would load its weights only when it
// could already use them.
func requireEarlyLoads(t testing.TB, tool *toolchain.Ptxas, text string, cubin []byte, tg *target.Target) {
	t.Helper()
	if !tg.DependentLaunch {
		return
	}
	sass, err := tool.Disassemble(context.Background(), cubin)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Log("no nvdisasm: where loads lie in machine code is not looked at")
		return
	}
	require.NoError(t, err)
	got := acquired(sass)
	for kernel, want := range earlyLoads(text) {
		require.GreaterOrEqual(t, got[kernel], want, "%s for %s: loads of constants before the wait", kernel, tg.Name)
	}
}
