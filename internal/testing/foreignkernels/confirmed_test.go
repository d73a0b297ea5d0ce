package foreignkernels

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
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

// TestConfirmedInstructions_AreListed: docs/data/confirmed.csv has each mma, move of matrices, asynchronous copy, shuffle,
// reduction, atomic and conversion of floats with the number of kernels that execute it, by compiler. UPDATE=1 writes it.
func TestConfirmedInstructions_AreListed(t *testing.T) {
	by := confirmations(t)
	compilers := []string{"Triton", "CuTe", "nvcc"}
	kernels := map[string]int{}
	for _, c := range Cases() {
		kernels[c.By()]++
	}
	rows := [][]string{append([]string{"instruction"}, compilers...)}
	confirmed := 0
	for _, op := range ptx.Opcodes() {
		if !listed(ptx.Lookup(op)) {
			continue
		}
		if by[op] != nil {
			confirmed++
		}
		row := []string{op}
		for _, c := range compilers {
			row = append(row, strconv.Itoa(by[op][c]))
		}
		rows = append(rows, row)
	}
	golden.CSV(t, "../../../docs/data/confirmed.csv", rows)
	golden.States(t, "../../../docs/testing.md", fmt.Sprintf("%d kernels of Triton, %d of CuTe and %d of nvcc", kernels["Triton"], kernels["CuTe"], kernels["nvcc"]))
	golden.States(t, "../../../docs/testing.md", fmt.Sprintf("They confirm %d of the %d instructions", confirmed, len(rows)-1))
}
