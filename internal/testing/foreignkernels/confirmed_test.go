package foreignkernels

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// listed are the instructions whose meaning is easily misread.
func listed(d *ptx.Def) bool {
	switch d.Name {
	case "mma", "ldmatrix", "stmatrix", "shfl", "redux", "atom", "cp":
		return true
	case "cvt": // of floats
		return strings.Contains(d.Op, "f") || strings.Contains(d.Op, "e4m3") || strings.Contains(d.Op, "e2m1")
	}
	return false
}

// confirmations are the kernels by compiler that executed each instruction which stands in their source, with the answers of the
// reference.
func confirmations(t *testing.T) map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, c := range Cases() {
		source, err := c.Source()
		require.NoError(t, err)
		lines := strings.Split(source, "\n")
		executed := map[*ptx.Def]bool{}
		onLine := map[int]int{}
		var sites []emu.Site
		require.NoError(t, c.Run(emu.Options{Workers: 1, Profile: func(k *emu.Counts) { sites = append(sites, k.Sites...) }}, nil))
		for _, s := range sites {
			onLine[s.Line]++
		}
		for _, s := range sites { // not those that the rewriter put there
			d := s.Instr.Def
			if strings.Contains(lines[s.Line-1], d.Name+".") && (onLine[s.Line] == 1 || strings.Contains(lines[s.Line-1], d.Op)) && s.Lanes > 0 {
				executed[d] = true
			}
		}
		for d := range executed {
			if all[d.Op] == nil {
				all[d.Op] = map[string]int{}
			}
			all[d.Op][c.By()]++
		}
	}
	return all
}

const begin, end = "<!-- confirmed: UPDATE=1 go test ./internal/testing/foreignkernels -run Document -->\n", "<!-- end -->\n"

// TestTheDocumentSaysWhatIsConfirmed: docs/gpu.md lists each mma, move of matrices, asynchronous copy, shuffle, reduction, atomic and
// conversion of floats of the table with the kernels that confirm it. UPDATE=1 writes the list anew.
func TestTheDocumentSaysWhatIsConfirmed(t *testing.T) {
	by := confirmations(t)
	var rows strings.Builder
	var nobody []string
	kernels := map[string]int{}
	for _, c := range Cases() {
		kernels[c.By()]++
	}
	confirmed := 0
	for _, op := range ptx.Opcodes() {
		if !listed(ptx.Lookup(op)) {
			continue
		}
		if by[op] == nil {
			nobody = append(nobody, "`"+op+"`")
			continue
		}
		confirmed++
		var who []string
		for _, name := range slices.Sorted(maps.Keys(by[op])) {
			who = append(who, fmt.Sprintf("%s (%d)", name, by[op][name]))
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", op, strings.Join(who, ", "))
	}
	text := fmt.Sprintf("%d kernels of Triton, %d of CuTe and %d of nvcc confirm %d of these instructions, and %d of all that the table has.\n\n"+
		"| instruction | kernels that execute it, by compiler |\n|---|---|\n%s\nOf the same kinds no kernel confirms %s.\n",
		kernels["Triton"], kernels["CuTe"], kernels["nvcc"], confirmed, len(by), rows.String(), strings.Join(nobody, ", "))
	path := filepath.Join("..", "..", "..", "docs", "gpu.md")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok)
	have, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+text+end+after), 0o644))
		return
	}
	require.Equal(t, text, have, "docs/gpu.md is out of date: UPDATE=1 go test ./internal/testing/foreignkernels -run Document")
}
