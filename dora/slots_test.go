package dora

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// counting counts the bytes that the host allocates on a device and copies to it.
type counting struct {
	hal.Device
	allocated, written int
}

type countedMemory struct {
	hal.Memory
	device *counting
}

func (d *counting) Alloc(n int, kind hal.MemoryKind) (hal.Memory, error) {
	d.allocated += n
	m, err := d.Device.Alloc(n, kind)
	return &countedMemory{m, d}, err
}

func (m *countedMemory) Write(data []byte, at int) error {
	m.device.written += len(data)
	return m.Memory.Write(data, at)
}

func (d *counting) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	plain := func(m hal.Memory) hal.Memory {
		if c, ok := m.(*countedMemory); ok {
			return c.Memory
		}
		return m
	}
	for i := range ops {
		o := &ops[i]
		o.Src, o.Dst = plain(o.Src), plain(o.Dst)
		for _, list := range [][]hal.Range{o.Reads, o.Writes, o.Prefetch} {
			for k := range list {
				list[k].Memory = plain(list[k].Memory)
			}
		}
	}
	return d.Device.Capture(ctx, ops)
}

// outputsOn are a session's outputs on the model's first drawn inputs.
func outputsOn(t *testing.T, m *Model, s *runtime.Session) map[string][]float64 {
	t.Helper()
	for name, a := range calibrate.Generate(m.graph, 1)[0] {
		require.NoError(t, s.Set(name, a.Tensor().Dense()))
	}
	require.NoError(t, s.Run(context.Background()))
	out, err := s.Float64s()
	require.NoError(t, err)
	for name, x := range out {
		out[name] = append([]float64{}, x...)
	}
	return out
}

// requireClose holds outputs against others of the same names, but for the rounding of those that are f16: half a unit in the
// last of 11 bits.
func requireClose(t *testing.T, m *Model, want, got map[string][]float64, bound float64, what string) {
	t.Helper()
	for _, v := range m.graph.Outputs {
		c, err := runtime.Compare(got[v.Name], want[v.Name], 0, 0)
		require.NoError(t, err)
		if v.Type.DType == ir.Float16 {
			bound += 1. / 2048
		}
		require.Less(t, c.RelL2, bound, "%s: %s", what, v.Name)
	}
}

// TestSlotsComputeWhatMergedModelsDo: adapters of every kind in slots, in the order of their loading and others, against programs
// that have them merged; several sessions share the model's weights, and loading copies the adapter alone.
func TestSlotsComputeWhatMergedModelsDo(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for _, name := range []string{"policy", "dmonitoring"} {
		m := small(t, name)
		opt := compile.Options{Precision: "fp32", Targets: []string{"sm_121"}}
		dir := t.TempDir()
		var paths []string
		var want, merged []map[string][]float64 // of the base, then of each adapter: in float64, and of a program of the merged file
		base := 0
		for i, o := range []InitOptions{{}, {Rank: 3, Alpha: 2, RS: true}, {Kind: LoRA, Rank: 5, Alpha: 20, Targets: []string{m.Weights[1].Module, m.Weights[3].Module}}, {Kind: Magnitude}, {Rank: 16, Alpha: 4}} {
			file := m.File
			var a *Adapter
			if i > 0 {
				paths = append(paths, filepath.Join(dir, fmt.Sprintf("%d.safetensors", i)))
				path := paths[len(paths)-1]
				a = trained(t, m, o)
				require.NoError(t, a.Save(path))
				var err error
				file, err = MergedFrom(m.File, path)
				require.NoError(t, err)
			}
			r, err := compile.Compile(ctx, file, opt)
			require.NoError(t, err)
			base = len(r.Program.Variants[0].Entries[0].Launches)
			d, err := emu.Open(emu.Options{})
			require.NoError(t, err)
			s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
			require.NoError(t, err)
			merged = append(merged, outputsOn(t, m, s))
			exact := map[string][]float64{}
			for name, x := range outputs(t, m, a, calibrate.Generate(m.graph, 1)[0]) {
				exact[name] = x.F
			}
			want = append(want, exact)
			if i > 0 {
				c, err := runtime.Compare(exact[m.graph.Outputs[0].Name], want[0][m.graph.Outputs[0].Name], 0, 0)
				require.NoError(t, err)
				t.Logf("%s: adapter %d changes %.3g", name, i, c.RelL2)
				require.Greater(t, c.RelL2, 4e-3, "what the adapter changes")
			}
			require.NoError(t, s.Close())
			require.NoError(t, d.Close())
		}
		for _, k := range []int{1, 3} {
			r, err := Slots(ctx, m, SlotOptions{Count: k}, opt)
			require.NoError(t, err)
			layers := len(r.Program.Adapters.Layers)
			launches := len(r.Program.Variants[0].Entry("run").Launches)
			t.Logf("%s, %d slots: %d layers, %d launches, %d of the base, %d to prepare", name, k, layers, launches, base, len(r.Program.Variants[0].Entry("prepare").Launches))
			require.Len(t, r.Program.Inputs, len(m.graph.Inputs))
			require.Len(t, r.Program.Outputs, len(m.graph.Outputs))
			plain, err := emu.Open(emu.Options{Check: k == 3})
			require.NoError(t, err)
			d := &counting{Device: plain}
			model, err := runtime.NewModel(ctx, r.Program, d, runtime.ModelOptions{})
			require.NoError(t, err)
			first := d.allocated
			var sessions []*runtime.Session
			for range 2 {
				s, err := model.NewSession(ctx, runtime.SessionOptions{})
				require.NoError(t, err)
				sessions = append(sessions, s)
			}
			perSession := (d.allocated - first) / 2
			assert.GreaterOrEqual(t, first, len(r.Program.Weights), "the weights are the model's")
			assert.Less(t, perSession, first+4*k*r.Program.Adapters.Size, "and no session's")
			load := func(s *runtime.Session, slot, adapter int) {
				d.written = 0
				require.NoError(t, s.LoadAdapter(ctx, slot, paths[adapter]))
				assert.Equal(t, 4*r.Program.Adapters.Size, d.written, "bytes copied")
			}
			run := func(s *runtime.Session, slot, adapter int, what string) {
				require.NoError(t, s.UseAdapter(slot))
				got := outputsOn(t, m, s)
				requireClose(t, m, want[adapter+1], got, 1e-5, what)
				requireClose(t, m, merged[adapter+1], got, 2e-3, what+", merged into a file of f16")
			}
			a, b := sessions[0], sessions[1]
			run(a, 0, -1, "an empty slot")
			load(a, 0, 0)
			load(b, 0, 1)
			run(a, 0, 0, "dora")
			run(b, 0, 1, "lora in another session")
			run(a, 0, 0, "dora again")
			if k > 1 {
				load(a, 2, 3)
				load(a, 1, 2)
				run(a, 0, 0, "dora after others were loaded")
				run(a, 1, 2, "magnitudes")
				run(a, 2, 3, "rank 16")
				load(a, 0, 1)
				requireClose(t, m, want[4], outputsOn(t, m, a), 1e-5, "rank 16 still, which was chosen before another slot was loaded")
				run(a, 0, 1, "lora over dora")
				require.NoError(t, a.UnloadAdapter(ctx, 2))
				run(a, 2, -1, "an emptied slot")
				run(a, 1, 2, "magnitudes still")
			}
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			require.NoError(t, model.Close())
			require.NoError(t, plain.Close())
		}
	}
}

// TestSlotsWithANarrowBase: adapters of ranks up to 64 in slots of a program that has its weights in 8 and 4 bits,
// against the model with the rounded weights: one that was trained with them, one with the file's, and another
// that is loaded over the first at run time. The program's constants are narrow, and the CPU device's checks are
// on.
func TestSlotsWithANarrowBase(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for _, c := range []struct {
		name, base, precision string
		rank                  int
		most                  float64 // of the constants relative to those of a program without a base
		bound                 float64
	}{{"policy", "", "fp16", 64, 1.001, 2e-3}, {"policy", "fp8", "fp16", 64, 0.75, 2e-3}, {"policy", "nvfp4", "bf16", 40, 0.65, 2e-2}, {"dmonitoring", "nvfp4", "fp16", 24, 0.8, 4e-3}, {"dmonitoring", "fp8", "fp16", 64, 0.8, 4e-3}} {
		if c.name == "dmonitoring" && c.base == "fp8" && !fulltest.Runs(t.Name()) {
			continue
		}
		m := small(t, c.name)
		opt := compile.Options{Precision: c.precision, Targets: []string{"sm_121"}}
		wide, err := Slots(ctx, m, SlotOptions{Count: 2, Rank: c.rank}, opt)
		require.NoError(t, err)
		r, err := Slots(ctx, m, SlotOptions{Count: 2, Rank: c.rank, Base: c.base}, opt)
		require.NoError(t, err)
		t.Logf("%v: %d bytes of constants, %d wide", c, len(r.Program.Weights), len(wide.Program.Weights))
		assert.Less(t, float64(len(r.Program.Weights)), c.most*float64(len(wide.Program.Weights)), "%v", c)
		d, err := emu.Open(emu.Options{Check: true})
		require.NoError(t, err)
		s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{})
		require.NoError(t, err)
		base, in := rounded(t, m, c.base), calibrate.Generate(m.graph, 1)[0]
		exact := func(m *Model, a *Adapter) map[string][]float64 {
			out := map[string][]float64{}
			for name, x := range outputs(t, m, a, in) {
				out[name] = x.F
			}
			return out
		}
		load := func(slot int, trainedWith string, o InitOptions) *Adapter {
			a := trained(t, m, o)
			for _, l := range a.Layers {
				l.Part.Base = trainedWith
			}
			path := filepath.Join(t.TempDir(), "a.safetensors")
			require.NoError(t, a.Save(path))
			require.NoError(t, s.LoadAdapter(ctx, slot, path), "%v", c)
			return a
		}
		run := func(slot int, a *Adapter, what string) {
			require.NoError(t, s.UseAdapter(slot))
			requireClose(t, m, exact(base, a), outputsOn(t, m, s), c.bound, fmt.Sprint(c, ": ", what))
		}
		run(0, nil, "an empty slot")
		first := load(0, c.base, InitOptions{Rank: c.rank, Alpha: 4})
		least := 0
		for _, l := range first.Layers {
			least = max(least, l.Rank)
		}
		require.Greater(t, least, SlotRank, "a rank above 16")
		second := load(1, "", InitOptions{Kind: LoRA, Rank: 5, Alpha: 20})
		run(0, first, "trained with the base")
		run(1, second, "trained with the file's weights")
		third := load(0, c.base, InitOptions{Rank: 17, Alpha: 2})
		run(0, third, "another one loaded over it")
		run(1, second, "the other slot as before")
		require.NoError(t, s.UnloadAdapter(ctx, 0))
		run(0, nil, "an emptied slot")

		// What the source of a package's golden run computes is what an empty slot does.
		source := *m
		source.graph = r.Source
		requireClose(t, m, exact(base, nil), exact(&source, nil), 1e-6, "the source")
		require.NoError(t, s.Close())
		require.NoError(t, d.Close())
	}
}

// TestSlot_RefusesBadAdapters: adapters of another base or of too great a rank, and slots that there are not, by name.
func TestSlot_RefusesBadAdapters(t *testing.T) {
	ctx := context.Background()
	m, other := small(t, "policy"), small(t, "dmonitoring")
	r, err := Slots(ctx, m, SlotOptions{Count: 2}, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	s := opened(t, r.Program)
	before, err := s.State(runtime.AdapterState)
	require.NoError(t, err)
	dir := t.TempDir()
	save := func(m *Model, opt InitOptions) string {
		path := filepath.Join(dir, "a.safetensors")
		require.NoError(t, trained(t, m, opt).Save(path))
		return path
	}
	path := save(other, InitOptions{Rank: 2})
	require.ErrorContains(t, s.LoadAdapter(ctx, 0, path), "it belongs to another base: the adapter was made of "+other.Base[:12]+", policy.onnx is "+m.Base[:12])
	path = save(m, InitOptions{Rank: 17, Targets: []string{"blocks.0.qkv"}})
	require.ErrorContains(t, s.LoadAdapter(ctx, 0, path), `layer "blocks.0.qkv": rank 17, and the program's slots take up to 16`)
	rounded := trained(t, m, InitOptions{Rank: 2})
	rounded.Layers[1].Base = "fp8"
	require.NoError(t, rounded.Save(path))
	require.ErrorContains(t, s.LoadAdapter(ctx, 0, path), "it was trained with weights rounded to fp8")
	require.ErrorContains(t, s.LoadAdapter(ctx, 2, path), "adapter slot 2: there are 2, counted from 0")
	require.ErrorContains(t, s.UseAdapter(-1), "adapter slot -1")
	require.ErrorContains(t, s.LoadAdapter(ctx, 0, filepath.Join(dir, "none")), "none")
	after, err := s.State(runtime.AdapterState)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "what was refused changed nothing")

	plain, err := compile.Compile(ctx, m.File, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.ErrorContains(t, opened(t, plain.Program).LoadAdapter(ctx, 0, path), "takes no adapters: compile it with --adapter-slots")
	for _, c := range []struct {
		opt       SlotOptions
		precision string
		want      string
	}{{SlotOptions{Count: 1, Rank: 65}, "fp16", "slots for adapters of rank 65: want 1 to 64"}, {SlotOptions{Count: 1, Base: "fp8"}, "fp32", "programs of fp32 keep weights wide"},
		{SlotOptions{Count: 1, Base: "int4"}, "fp16", `frozen weights cannot be stored as "int4"`}} {
		_, err := Slots(ctx, m, c.opt, compile.Options{Precision: c.precision, Targets: []string{"sm_121"}})
		require.ErrorContains(t, err, c.want)
	}
	r8, err := Slots(ctx, m, SlotOptions{Count: 1, Base: "nvfp4"}, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.NoError(t, rounded.Save(path))
	require.ErrorContains(t, opened(t, r8.Program).LoadAdapter(ctx, 0, path), "it was trained with weights rounded to fp8, and the program has them in nvfp4: compile with --adapter-base fp8")
	_, err = Slots(ctx, m, SlotOptions{Count: 0}, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.ErrorContains(t, err, "0 adapter slots")
	_, err = Slots(ctx, m, SlotOptions{Count: 1}, compile.Options{Precision: "fp8", Targets: []string{"sm_121"}})
	require.ErrorContains(t, err, "take fp32, fp16 or bf16")

	r.Program.Adapters.Layers[0].M = r.Program.Adapters.Size
	require.ErrorContains(t, r.Program.Validate(), "does not lie in a slot")
}

// opened is a session of a program on the CPU device.
func opened(t *testing.T, p *runtime.Program) *runtime.Session {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	s, err := runtime.Open(context.Background(), p, d, runtime.ModelOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, d.Close())
	})
	return s
}
