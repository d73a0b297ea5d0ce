package dora

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestAStepFitsItsMemory: what is computed again has the same bits, in every precision, from all the memory that a step takes
// down to the least (make test-full; else from half of it or the least).
func TestAStepFitsItsMemory(t *testing.T) {
	fulltest.Long(t)
	for _, name := range models {
		for _, in := range []string{"fp32", "fp16", "bf16"} {
			if short := name == "policy" && in == "bf16"; !short && ((name == "policy") == (in == "fp16") || !fulltest.Runs(t.Name())) {
				continue
			}
			m := small(t, name)
			train := func(memory int) (arena int, state []byte, losses []float64, again []compile.Recomputed, err error) {
				a := trained(t, m, InitOptions{Rank: 2})
				s, err := NewStep(context.Background(), m, a, StepOptions{Precision: in, Memory: memory, ClipNorm: 10})
				if err != nil {
					return 0, nil, nil, nil, err
				}
				tr := trainer(t, s, name == "policy")
				for i := range 2 {
					feed(t, m, tr.Session(), i)
					r, err := tr.Step(context.Background(), 1e-3)
					require.NoError(t, err)
					losses = append(losses, r.Loss, r.Norm)
				}
				state, err = tr.Session().State(keptAdapter)
				require.NoError(t, err)
				return s.Program.Variants[0].ArenaBytes, state, losses, s.Compile.Recomputed, nil
			}
			most, want, wantLosses, none, err := train(0)
			require.NoError(t, err)
			require.Empty(t, none)
			_, _, _, _, err = train(1)
			var over *compile.MemoryError
			require.True(t, errors.As(err, &over), "%v", err)
			assert.Less(t, over.Least, most*11/20, "%s %s", name, in) // small policy in fp32 takes 0.513 of it
			bounds := []int{most, most * 3 / 4, max(most/2, over.Least), over.Least}
			if !fulltest.All() { // a bound of the slow models takes 20 s
				bounds = map[string][]int{"vision": bounds[2:3], "supercombo": bounds[3:]}[name]
				if len(bounds) == 0 {
					bounds = []int{max(most/2, over.Least), over.Least}
				}
			}
			for _, memory := range bounds {
				arena, got, losses, again, err := train(memory)
				require.NoError(t, err, "%s %s in %d bytes of %d", name, in, memory, most)
				assert.LessOrEqual(t, arena, memory, "%s %s", name, in)
				assert.Equal(t, memory < most, len(again) > 0)
				assert.Equal(t, wantLosses, losses, "%s %s in %d bytes of %d", name, in, memory, most)
				assert.Equal(t, want, got, "%s %s in %d bytes of %d", name, in, memory, most)
				times, macs := 0, int64(0)
				for _, c := range again {
					times, macs = times+c.Times, macs+c.MACs
				}
				t.Logf("%s %s: %d bytes of %d, %d allowed, %d launches again, %d MACs", name, in, arena, most, memory, times, macs)
			}
		}
	}
}

// TestAStepSaysWhatItComputesAgain: the step has as many more launches than one without a bound as Explain lists,
// of products too.
func TestAStepSaysWhatItComputesAgain(t *testing.T) {
	m := small(t, "policy")
	a := trained(t, m, InitOptions{Rank: 2})
	explained := func(memory int) (s *Step, times map[string]int, text string) {
		s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp16", Memory: memory})
		require.NoError(t, err)
		times, text = map[string]int{}, s.Explain()
		for _, line := range regexp.MustCompile(`(?m)^  \S+: (.*), \d+ bytes(?:, (\d+) times)?$`).FindAllStringSubmatch(text, -1) {
			n := 1
			if line[2] != "" {
				n, err = strconv.Atoi(line[2])
				require.NoError(t, err)
			}
			times[line[1]] += n
		}
		return s, times, text
	}
	launches := func(s *Step) int { return len(s.Program.Variants[0].Entry(EntryStep).Launches) }
	all, none, text := explained(0)
	most := all.Program.Variants[0].ArenaBytes
	assert.Empty(t, none)
	assert.Equal(t, fmt.Sprintf("policy.onnx, fp16, for sm_121: %d layers with an adapter, %d trained numbers\nlaunches: run %d, step %d, prepare %d\nbytes between launches: %d, nothing is computed again\n",
		len(a.Layers), a.Params(), len(all.Program.Variants[0].Entry(EntryRun).Launches), launches(all), len(all.Program.Variants[0].Entry(EntryPrepare).Launches), most), text)
	_, none, text = explained(most)
	assert.Empty(t, none)
	assert.Contains(t, text, fmt.Sprintf("bytes between launches: %d, %d allowed, nothing is computed again", most, most))
	half, times, text := explained(most / 2)
	t.Log(text)
	sum, products := 0, 0
	for what, n := range times {
		sum += n
		if strings.Contains(what, "MatMul") {
			products += n
		}
	}
	for _, l := range half.Program.Variants[0].Entry(EntryStep).Launches {
		if strings.Contains(l.Note, "MatMul") {
			products--
		}
	}
	for _, l := range all.Program.Variants[0].Entry(EntryStep).Launches {
		if strings.Contains(l.Note, "MatMul") {
			products++
		}
	}
	assert.Zero(t, products, "kernels of products")
	assert.Equal(t, launches(half)-launches(all), sum)
	assert.Contains(t, text, fmt.Sprintf("step: %d launches of %d computed again", sum, launches(half)))
}

// TestADeviceThatIsTooSmallSaysWhatFits, and that does.
func TestADeviceThatIsTooSmallSaysWhatFits(t *testing.T) {
	fulltest.Long(t)
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	file, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	steps := map[[2]int]*Step{} // by batch and memory
	open := func(batch, memory int, device func(all, arena int) int) (arena int, err error) {
		s := steps[[2]int{batch, memory}]
		if s == nil {
			m, err := Open(file, onnx.ImportOptions{Batch: batch})
			require.NoError(t, err)
			a := trained(t, m, InitOptions{Rank: 2})
			if s, err = NewStep(context.Background(), m, a, StepOptions{Precision: "fp16", Memory: memory}); err != nil {
				return 0, err
			}
			steps[[2]int{batch, memory}] = s
		}
		arena = s.Program.Variants[0].ArenaBytes
		d, err := emu.Open(emu.Options{Memory: device(s.Program.Memory(&s.Program.Variants[0]), arena)})
		require.NoError(t, err)
		tr, err := s.Open(context.Background(), d)
		if err != nil {
			return arena, err
		}
		return arena, tr.Close()
	}
	_, err = open(2, 0, func(all, _ int) int { return all })
	require.NoError(t, err, "what a program says that it takes is what it takes")

	said := func(err error, pattern string) int {
		t.Helper()
		require.Error(t, err)
		t.Log(err)
		found := regexp.MustCompile(pattern).FindStringSubmatch(err.Error())
		require.NotNil(t, found, "%v", err)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	most, others := 0, 0
	arena, err := open(2, 0, func(all, arena int) int { most, others = arena, all-arena; return all - arena/3 })
	require.ErrorIs(t, err, hal.ErrOutOfMemory)
	fits := said(err, `StepOptions.Memory = (\d+) makes it fit`)
	assert.Equal(t, most-most/3, fits)
	_, err = open(2, fits, func(int, int) int { return others + fits })
	require.NoError(t, err)

	_, err = open(2, 0, func(all, arena int) int { return all - arena + arena/10 })
	require.ErrorIs(t, err, hal.ErrOutOfMemory)
	least := said(err, `values between launches take (\d+), but there is room for`)
	assert.Less(t, least, arena)
	_, err = open(2, least, func(all, _ int) int { return all })
	require.NoError(t, err)
	_, err = open(2, least/2, nil)
	assert.Equal(t, least, said(err, `with all that may be computed again they take (\d+): set StepOptions.Memory`))
	_, err = open(2, least-1, nil)
	batch := said(err, `or take a batch of about (\d+) instead of 2`)
	_, err = open(batch, least-1, func(all, _ int) int { return all })
	require.NoError(t, err)

	_, err = open(1, 0, func(all, arena int) int { return all - arena - 1 })
	said(err, `the device has (\d+): that is too few for weights, inputs`)
}

// TestAStepKeepsEachWeightOnce: the product of a layer, the gradient of its input and the norms of its adapter
// read the same bytes, which are in the blob once, as are biases and tables. Heads of small policy multiply
// vectors with a batch of 1, by kernels of another family.
func TestAStepKeepsEachWeightOnce(t *testing.T) {
	for _, in := range []string{"fp16", "bf16"} {
		src, err := driving.Made("policy", driving.Small)
		require.NoError(t, err)
		file, err := onnx.Decode("policy.onnx", src.ONNX)
		require.NoError(t, err)
		m, err := Open(file, onnx.ImportOptions{Batch: 2})
		require.NoError(t, err)
		a := trained(t, m, InitOptions{Rank: 2})
		s, err := NewStep(context.Background(), m, a, StepOptions{Precision: in})
		require.NoError(t, err)
		dtype := map[string]ir.DType{"fp16": ir.Float16, "bf16": ir.BFloat16}[in]
		constants, weights := len(s.Program.Weights), 0
		for _, b := range s.Program.Variants[0].Buffers {
			if b.Kind == runtime.VariableBuffer {
				constants -= b.Bytes
			}
		}
		up := func(n int) int { return (n + 15) / 16 * 16 }
		for _, w := range m.Weights {
			weights += 2 * up(w.Out) * up(w.Row)
			// Eight neighbours along either side, of the last 8×8 matrix of the first block: where a program has the weight, it has one of
			// the two.
			rows, times := w.Rows(), 0
			o, i := min(8, w.Out-8), min(8, w.Row-8)
			for _, step := range []int{1, w.Row} {
				x := make([]float64, 8)
				for j := range x {
					x[j] = rows[o*w.Row+i+j*step]
				}
				times += bytes.Count(s.Program.Weights, ir.FromFloats(ir.T(dtype, 8), x).Dense())
			}
			assert.Equal(t, 1, times, "%s: %s [%d, %d]", in, w.Name, w.Out, w.Row)
		}
		t.Logf("%s: %d bytes of weights, %d of constants", in, weights, constants)
		assert.Less(t, constants, weights+weights/20, in)
	}
}
