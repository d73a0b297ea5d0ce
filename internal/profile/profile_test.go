package profile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/browser"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

func compiled(t *testing.T, name, precision string) *runtime.Program {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(context.Background(), m, compile.Options{Precision: precision, Generated: 2, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	return r.Program
}

func counted(t *testing.T, p *runtime.Program, workers int) []*emu.Counts {
	t.Helper()
	ctx := context.Background()
	var counts []*emu.Counts
	d, err := emu.Open(emu.Options{Workers: workers, Profile: func(c *emu.Counts) { counts = append(counts, c) }})
	require.NoError(t, err)
	m, err := runtime.NewModel(ctx, p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	s, err := m.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx))
	return counts
}

func gb10(t *testing.T) *target.Target {
	on, err := target.OfDevice("gb10")
	require.NoError(t, err)
	return on
}

// TestCountsHangOnLittle: Run, which executes only what counts hang on, counts what a run of everything does, in kernels of every
// family and precision.
func TestCountsHangOnLittle(t *testing.T) {
	fulltest.Long(t)
	for name, precisions := range map[string][]string{"policy": {"fp32", "fp16", "fp8"}, "vision": {"fp32", "nvfp4"}, "dmonitoring": {"fp16", "fp8"}} {
		for _, precision := range precisions {
			t.Run(name+" "+precision, func(t *testing.T) {
				p := compiled(t, name, precision)
				v := &p.Variants[0]
				all, err := profile.New(p, v, "run", counted(t, p, 0), gb10(t))
				require.NoError(t, err)
				few, err := profile.Run(context.Background(), p, v, "run", nil)
				require.NoError(t, err)
				want, err := json.Marshal(all)
				require.NoError(t, err)
				got, err := json.Marshal(few)
				require.NoError(t, err)
				require.JSONEq(t, string(want), string(got))
			})
		}
	}
}

// TestProfile_RangeCoversL2: a model that just finds room in L2 takes longer where L2 keeps less, and no less where it keeps more. A machine
// that was measured leaves no such doubt.
func TestProfile_RangeCoversL2(t *testing.T) {
	p := compiled(t, "policy", "fp16")
	v := &p.Variants[0]
	counts := counted(t, p, 0)
	touched := len(p.Weights)
	for _, b := range v.Buffers {
		if b.Kind != runtime.ConstantBuffer {
			touched += (b.Bytes + 16<<10) &^ (16<<10 - 1)
		}
	}
	row := *gb10(t)
	row.L2Bytes = touched * 4 / 3 // 3/4 of which is kept
	kept := func(share float64) *profile.Profile {
		on, err := cost.Measure(&row, map[string]cost.Figure{"kept_share": {Low: share, Middle: share, High: share}})
		require.NoError(t, err)
		prof, err := profile.New(p, v, "run", counts, on)
		require.NoError(t, err)
		return prof
	}
	known, less, more := kept(0.75), kept(0.5), kept(1)
	require.Greater(t, less.Total.US, 1.02*known.Total.US)
	require.Equal(t, known.Total.US, more.Total.US)
	doubted, err := profile.New(p, v, "run", counts, &row)
	require.NoError(t, err)
	require.Equal(t, known.Total.US, doubted.Total.US)
	up, of := doubted.Range.High-doubted.Range.Middle, known.Range.High-known.Range.Middle
	require.InEpsilon(t, math.Hypot(of, less.Total.US-known.Total.US), up, 1e-9, "errors add as squares")
	require.Equal(t, known.Range.Low, doubted.Range.Low)
	require.Greater(t, doubted.Waited.High, known.Waited.High)
	require.Greater(t, doubted.ColdRange.High, known.ColdRange.High-1e-9)
}

// TestProfile_CountsWhatLaunchesDeclare: each launch reads the constants that the compiler declares, to the byte, and so do
// kernels without a workspace read and write all else. A window's multiplications are those of its formula, and a
// contraction's no fewer. Nothing depends on how many blocks run at a time.
func TestProfile_CountsWhatLaunchesDeclare(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"policy", "vision", "supercombo"} {
		t.Run(name, func(t *testing.T) {
			if name == "supercombo" && !fulltest.Runs(t.Name()) {
				t.Skip("profiles three times what the others are, of the same families: set SPARK_FULL=1")
			}
			p := compiled(t, name, "fp16")
			v := &p.Variants[0]
			prof, err := profile.New(p, v, "run", counted(t, p, 1), gb10(t))
			require.NoError(t, err)
			again, err := profile.New(p, v, "run", counted(t, p, 3), gb10(t))
			require.NoError(t, err)
			first, err := json.Marshal(prof)
			require.NoError(t, err)
			second, err := json.Marshal(again)
			require.NoError(t, err)
			require.JSONEq(t, string(first), string(second))

			require.Len(t, prof.Launches, len(v.Entries[0].Launches))
			kernels := map[string]runtime.KernelInfo{}
			for _, k := range v.Kernels {
				kernels[k.Name] = k
			}
			windows, contractions := 0, 0
			for i, l := range prof.Launches {
				op, k := &v.Entries[0].Launches[i], kernels[l.Kernel]
				var constants, reads, writes int64
				for _, a := range op.Reads {
					reads += int64(a.Bytes)
					if v.Buffers[a.Buffer].Kind == runtime.ConstantBuffer {
						constants += int64(a.Bytes)
					}
				}
				for _, a := range op.Writes {
					writes += int64(a.Bytes)
				}
				require.Equal(t, constants, l.Constants, l.Kernel)
				if k.Family != "chain" { // whose partial sums are more to read, and need not all be written
					require.Equal(t, [2]int64{reads, writes}, [2]int64{l.UniqueRead, l.UniqueWrite}, l.Kernel)
				}
				switch k.Family {
				case "window":
					windows++
					require.Equal(t, k.MACs, l.MACs+l.FMAs, l.Kernel)
				case "contraction": // its tiles have rows and columns to spare
					contractions++
					require.GreaterOrEqual(t, l.MACs, k.MACs, l.Kernel)
				}
				require.LessOrEqual(t, l.ActiveLanes, 32.0)
				require.LessOrEqual(t, l.Coalescing, 1.0)
				require.GreaterOrEqual(t, l.ColdUS, l.Time.US)
			}
			require.Positive(t, windows+contractions)

			var table, page bytes.Buffer
			require.NoError(t, prof.WriteTable(&table))
			require.NoError(t, prof.WriteHTML(&page))
			for _, k := range prof.Kernels {
				require.Contains(t, table.String(), k.Kernel)
				require.Contains(t, page.String(), k.Kernel)
			}
			require.Equal(t, 1, strings.Count(page.String(), "</html>"))
			require.Len(t, regexp.MustCompile(`<td class="l">[^<]*</td></tr>`).FindAllString(page.String(), -1), len(prof.Kernels),
				"what a kernel does is left in its column")
			path := filepath.Join(t.TempDir(), "p.html")
			require.NoError(t, os.WriteFile(path, page.Bytes(), 0o644))
			browser.Check(t, "profile-"+name, "file://"+path)
			t.Log("\n" + table.String())
		})
	}
}

// TestAStepIsCountedWhereItsCamerasLook: the warp's reads of frames are counted for cameras that face forward.
// With matrices of zeros it would read one pixel. Frames are twice as large as what is read of them.
func TestAStepIsCountedWhereItsCamerasLook(t *testing.T) {
	var models []*onnx.Model
	for _, name := range []string{"vision", "policy"} {
		src, err := driving.Made(name, driving.Small)
		require.NoError(t, err)
		m, err := onnx.Decode(name+".onnx", src.ONNX)
		require.NoError(t, err)
		models = append(models, m)
	}
	loop := openpilot.Options{Largest: generation.VisionIPC(482, 302)}
	r, err := compile.Loop(context.Background(), models, loop, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	prof, err := profile.Run(context.Background(), r.Program, &r.Program.Variants[0], "run", nil)
	require.NoError(t, err)
	warp, frames := &prof.Launches[0], 2*int64(loop.Largest.Bytes())
	require.Contains(t, warp.Note, "WarpFrame")
	require.Greater(t, 32*warp.L2Read, frames/5)
	require.Greater(t, warp.DRAM, frames/10)
	require.Less(t, warp.UniqueRead, frames/5)
	require.Less(t, 32*warp.L2Read, frames*4/5, "a pixel is loaded from its own frame alone")
	last := &prof.Launches[len(prof.Launches)-1]
	require.Equal(t, []float64{prof.Total.US, prof.Total.ColdUS}, []float64{last.EndUS, last.ColdEndUS})
}

// TestProgramsInTurnShareL2: two that fit in it together take the sum of their own times. Where it holds only one
// of them, both find their weights evicted.
func TestProgramsInTurnShareL2(t *testing.T) {
	p := compiled(t, "policy", "fp16")
	row := *gb10(t)
	row.MemoryGBps /= 10 // so that weights of a small model take long
	turns := func(l2 int) (two, alone, cold float64) {
		row.L2Bytes = l2 * 4 / 3 // 3/4 of which is kept
		two, err := profile.InTurn(context.Background(), []*runtime.Program{p, p}, &row)
		require.NoError(t, err)
		prof, err := profile.Run(context.Background(), p, &p.Variants[0], "run", &row)
		require.NoError(t, err)
		return two, prof.Total.US, prof.Total.ColdUS
	}
	two, alone, _ := turns(8 * len(p.Weights))
	require.InEpsilon(t, 2*alone, two, 1e-3)
	two, alone, cold := turns(len(p.Weights) * 6 / 5)
	require.InEpsilon(t, 2*cold, two, 0.05)
	require.Greater(t, two, 2.2*alone)
}

// TestDRAMServesWeightsOnce: a model that fits in L2 reads its weights from DRAM once where they are cold, and not
// at all where they are warm. Nearly all are prefetched; without a plan they are fetched when they are read.
func TestDRAMServesWeightsOnce(t *testing.T) {
	p := compiled(t, "policy", "fp16")
	v := &p.Variants[0]
	for _, prefetch := range []bool{true, false} {
		if !prefetch { // as a program whose launches ask for nothing
			for i := range v.Entries[0].Launches {
				v.Entries[0].Launches[i].Prefetch = nil
			}
		}
		got, err := profile.Run(context.Background(), p, v, "run", nil)
		require.NoError(t, err)
		all := got.Total
		inputs := 0
		for _, in := range v.Buffers {
			if in.Kind == runtime.InputBuffer {
				inputs += (in.Bytes + 31) &^ 31
			}
		}
		require.EqualValues(t, inputs, all.DRAM, "inputs alone")
		require.InEpsilon(t, float64(all.Constants), float64(all.ColdDRAM-all.DRAM), 0.02)
		if prefetch {
			require.Greater(t, float64(all.Prefetched), 0.8*float64(all.Constants))
			require.LessOrEqual(t, float64(all.Prefetched), 1.02*float64(all.Constants))
		}
	}
}
