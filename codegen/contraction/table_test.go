package contraction_test

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTableOfLargeContractions checks every contraction of 5 MMAC or more of the repository's full-size models for
// what a GPU wants, as assembled: operands are used at least twice a shared-memory load, are copied 16 bytes at a
// time and before they are needed, fill the machine or say why not, and nothing spills. It takes a while:
// SPARK_FULL=1, or UPDATE=1 to write docs/measurements/contractions.csv anew.
func TestTableOfLargeContractions(t *testing.T) {
	update := os.Getenv("UPDATE") != ""
	if !update && !fulltest.Runs(t.Name()) {
		t.Skip("full-size models: SPARK_FULL=1")
	}
	file := filepath.Join("..", "..", "docs", "measurements", "contractions.csv")
	rows, _ := contractions(t, driving.Full, 5_000_000)
	if update {
		require.NoError(t, os.WriteFile(file, []byte(rows), 0o644))
		return
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, rows, string(have), "contractions.csv is out of date: UPDATE=1 writes it")
}

// TestContractionsOfSmallModels is the same, without the table, of the small models, which have few products of that
// size. What lies below it cannot use a shared load often, or fill the machine.
func TestContractionsOfSmallModels(t *testing.T) {
	fulltest.Long(t)
	_, count := contractions(t, driving.Small, 1_000_000)
	require.Greater(t, count, 20)
}

// contractions checks every contraction of a size or more of the repository's models, and returns them as a CSV file,
// and their number.
func contractions(t *testing.T, size driving.Size, least int64) (rows string, count int) {
	t.Helper()
	ctx := context.Background()
	tool, err := toolchain.FindPtxas(ctx)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	var out strings.Builder
	w := csv.NewWriter(&out)
	require.NoError(t, w.Write(tableHead))
	for _, name := range []string{"dmonitoring", "policy", "vision"} {
		src, err := driving.Make(name, size)
		require.NoError(t, err)
		m, err := onnx.Decode(name+".onnx", src.ONNX)
		require.NoError(t, err)
		for _, precision := range []string{"fp16", "fp32"} {
			r, err := compile.Compile(ctx, m, compile.Options{Precision: precision, Targets: []string{"sm_121"}, Assembler: tool})
			require.NoError(t, err)
			require.Empty(t, r.Fallbacks)
			tabulate(t, w, name, precision, &r.Program.Variants[0], least)
		}
	}
	w.Flush()
	return out.String(), strings.Count(out.String(), "\n") - 1
}

var tableHead = []string{"model", "precision", "kernel", "launches", "MMAC", "schedule", "products a shared load", "16-byte accesses (%)",
	"stages", "blocks", "why fewer than 48 blocks", "registers", "spills"}

// TestContractionsOfEveryPrecision: the generator's small policy, in every precision, multiplies in the types that
// the precision stands for, copies 16 bytes at a time and before they are needed, and uses what a shared load reads
// as often as the large models do. The policy multiplies matrices only; TestNarrowKernelsDeserveAGPU has
// convolutions.
func TestContractionsOfEveryPrecision(t *testing.T) {
	fulltest.Long(t)
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	want := map[string]struct {
		kernel string
		least  float64 // products a shared load
	}{"fp32": {"matmul_f32", 8}, "fp16": {"matmul_f16", 2}, "bf16": {"matmul_bf16", 2}, "fp8": {"matmul_e4m3(x2_of_f16)?", 2},
		"fp6": {"matmul_f16_e3m2", 1.5}, "nvfp4": {"matmul_(f16_)?e2m1", 2.5}}
	for _, row := range precision.All() {
		if row.Name == "file" { // what the file has: several types
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			want := want[row.Name]
			require.NotEmpty(t, want.kernel, "say what a new precision multiplies in")
			r, err := compile.Compile(t.Context(), m, compile.Options{Precision: row.Name, Targets: []string{"sm_121"}, Generated: 1, Smaller: true}) // no layer is spared its few bits
			require.NoError(t, err)
			require.Empty(t, r.Fallbacks)
			v := &r.Program.Variants[0]
			mod, err := ptx.Parse(v.PTX)
			require.NoError(t, err)
			products := 0
			for i, k := range v.Kernels {
				if k.Family != "contraction" && k.Family != "chain" || strings.HasPrefix(k.Name, "attention") {
					continue
				}
				products++
				require.Regexp(t, "^((layernorm_)?"+want.kernel+"(_"+want.kernel+")?|layernorm_segmentedmatvec)(_[0-9]+)?$", k.Name)
				if strings.Contains(k.Name, "segmentedmatvec") { // a loop
					continue
				}
				l := kerneltest.InspectKernel(mod.Kernels[i], [3]int{})
				least := want.least
				if strings.Contains(k.Name, "matmul_e2m1") { // an mma is 64 deep: of the policy's few rows, one to a load
					least = 1
				}
				wide := 0.9
				if strings.Count(k.Name, "matmul") > 1 { // the loop also has the producer's bias and factors, for few rows
					least, wide = least/2, 0.5
				}
				require.GreaterOrEqual(t, l.PerSharedLoad(), least, k.Name)
				require.GreaterOrEqual(t, l.Wide(), wide, k.Name)
				require.Greater(t, l.Stages, 2, k.Name)
			}
			require.Greater(t, products, 3)
		})
	}
}

// largeFused is the number of MACs from which a fused kernel's operands must be used twice a shared load: smaller
// ones wait for weights.
const largeFused = 5_000_000

// tabulate checks the large contractions of a variant, fused ones included, and writes a row each.
func tabulate(t *testing.T, w *csv.Writer, model, precision string, v *runtime.Variant, large int64) {
	mod, err := ptx.Parse(v.PTX)
	require.NoError(t, err)
	kernels, grids := map[string]*ptx.Kernel{}, map[string][3]int{}
	for _, k := range mod.Kernels {
		kernels[k.Name] = k
	}
	for _, l := range v.Entries[0].Launches {
		grids[l.Kernel] = l.Grid
	}
	for _, k := range v.Kernels {
		fused := k.Family == "chain"
		if k.Family != "contraction" && !fused || k.MACs < large {
			continue
		}
		l := kerneltest.InspectKernel(kernels[k.Name], grids[k.Name])
		if fused && l.Stages == 0 { // of windows, or of loops
			continue
		}
		what, uses := model+" "+precision+" "+k.Name, l.PerSharedLoad()
		if fused {
			uses = l.AllPerSharedLoad()
		}
		if !fused || k.MACs >= largeFused {
			require.GreaterOrEqual(t, uses, 2.0, what)
			require.GreaterOrEqual(t, l.Wide(), 0.9, what)
		}
		require.GreaterOrEqual(t, l.Stages, 2, what)
		require.True(t, l.Blocks >= 48 || k.Reason != "", "%s: %d blocks and no reason", what, l.Blocks)
		require.Zero(t, k.Spills, what)
		require.Positive(t, k.Regs, what)
		why := ""
		if l.Blocks < 48 {
			why = k.Reason
		}
		require.NoError(t, w.Write([]string{model, precision, k.Name, strconv.Itoa(k.Launches), fmt.Sprintf("%.1f", float64(k.MACs)/1e6), k.Schedule,
			fmt.Sprintf("%.1f", uses), fmt.Sprintf("%.0f", 100*l.Wide()), strconv.Itoa(l.Stages), strconv.Itoa(l.Blocks), why, strconv.Itoa(k.Regs),
			strconv.Itoa(k.Spills)}))
	}
}
