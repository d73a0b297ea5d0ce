package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

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

// compiled is a model of the repository's own, of small size, with its origins.
func compiled(t *testing.T, model, precision string, targets ...string) *compile.Result {
	t.Helper()
	src, err := driving.Made(model, driving.Small)
	require.NoError(t, err)
	return built(t, model, src.ONNX, precision, targets...)
}

func built(t *testing.T, name string, raw []byte, precision string, targets ...string) *compile.Result {
	t.Helper()
	m, err := onnx.Decode(name+".onnx", raw)
	require.NoError(t, err)
	if targets == nil {
		targets = []string{"sm_121"}
	}
	r, err := compile.Compile(t.Context(), m, compile.Options{Precision: precision, Targets: targets, Generated: 2, Trace: true})
	require.NoError(t, err)
	return r
}

// traced traces a program, which may not be r's own, on the CPU device.
func traced(t *testing.T, p *runtime.Program, r *compile.Result, check bool, patterns ...string) (*Trace, *Tracer, map[string][]byte) {
	t.Helper()
	in := compile.RandomInputs(r.Source, 3)
	tr, err := New(t.Context(), p, &p.Variants[0], r, in, patterns, false, nil)
	require.NoError(t, err)
	out := outputsOf(t, tr.Program, in, check, func(s *runtime.Session) *Trace {
		found, err := tr.Compare(context.Background(), s)
		require.NoError(t, err)
		return found
	})
	return out.trace, tr, out.bytes
}

type ran struct {
	trace *Trace
	bytes map[string][]byte
}

func outputsOf(t *testing.T, p *runtime.Program, in map[string]*ir.Array, check bool, then func(*runtime.Session) *Trace) (out ran) {
	t.Helper()
	d, err := emu.Open(emu.Options{Check: check})
	require.NoError(t, err)
	defer d.Close()
	return outputsOn(t, d, p, in, then)
}

func outputsOn(t *testing.T, d hal.Device, p *runtime.Program, in map[string]*ir.Array, then func(*runtime.Session) *Trace) (out ran) {
	t.Helper()
	s, err := runtime.Open(t.Context(), p, d, runtime.ModelOptions{Target: p.Variants[0].Target})
	require.NoError(t, err)
	defer s.Close()
	for _, q := range p.Inputs {
		require.NoError(t, s.Set(q.Name, in[q.Name].Tensor().Dense()))
	}
	require.NoError(t, s.Run(t.Context()))
	out.bytes = map[string][]byte{}
	for _, q := range p.Outputs {
		out.bytes[q.Name] = bytes.Clone(s.Output(q.Name))
	}
	out.trace = then(s)
	return out
}

var nothing = func(*runtime.Session) *Trace { return nil }

// TestTheTracedProgramIsTheOneThatRuns: the same code, constants, arena and launches, and the same bits at the outputs. No
// region of a sound program is bad.
func TestTheTracedProgramIsTheOneThatRuns(t *testing.T) {
	for _, c := range []struct{ model, precision string }{
		{"policy", "fp16"}, {"policy", "fp32"}, {"policy", "bf16"}, {"policy", "nvfp4"}, {"vision", "fp16"}, {"dmonitoring", "fp16"}, {"dmonitoring", "fp8"}, {"dmonitoring", "bf16"}, {"dmonitoring", "fp6"}, {"supercombo", "fp16"},
	} {
		t.Run(c.model+"/"+c.precision, func(t *testing.T) {
			if c.model != "policy" {
				fulltest.Long(t)
			}
			r := compiled(t, c.model, c.precision)
			p := r.Program
			plain := outputsOf(t, p, compile.RandomInputs(r.Source, 3), false, nothing)
			found, tr, got := traced(t, p, r, false)
			for _, q := range p.Outputs {
				require.Equal(t, plain.bytes[q.Name], got[q.Name], q.Name)
			}
			v, w := p.Variants[0], tr.Program.Variants[0]
			require.Equal(t, v.PTX, w.PTX)
			require.Equal(t, v.ArenaBytes, w.ArenaBytes)
			require.Equal(t, v.Buffers, w.Buffers[:len(v.Buffers)])
			require.Equal(t, p.Weights, tr.Program.Weights)
			launches := slices.DeleteFunc(slices.Clone(w.Entries[0].Launches), func(l runtime.Launch) bool { return strings.HasPrefix(l.Note, "trace ") })
			require.Len(t, launches, len(v.Entries[0].Launches))
			for i, l := range launches {
				want := v.Entries[0].Launches[i]
				l.After, l.Dependent, want.After, want.Dependent = nil, false, nil, false // copies stand between
				require.Equal(t, want, l)
			}
			rows := map[int]bool{}
			for _, row := range found.Rows {
				require.False(t, row.Bad, "%+v", row)
				require.LessOrEqual(t, row.Own, 1.5*row.RelL2+1e-6, row.Region)
				rows[row.Launch] = true
			}
			require.Nil(t, found.FirstBad)
			for i, l := range v.Entries[0].Launches {
				require.Equal(t, l.Copy == nil, rows[i], "launch %d, %s", i, l.Note)
			}
			for _, o := range found.Outputs {
				require.Less(t, o.Passes, 1e-4, o.Name)
			}
		})
	}
}

// TestTheTracedRunIsSound under every check of the CPU device.
func TestTheTracedRunIsSound(t *testing.T) {
	for _, c := range []struct{ model, precision string }{{"policy", "fp16"}, {"dmonitoring", "fp16"}} {
		r := compiled(t, c.model, c.precision)
		found, _, _ := traced(t, r.Program, r, true)
		require.Nil(t, found.FirstBad)
	}
}

// TestPartsOfARegionAreTraced: a launch may compute a part of a region of the graph, which shares its outputs.
func TestPartsOfARegionAreTraced(t *testing.T) {
	r := compiled(t, "policy", "fp16")
	whole, _, _ := traced(t, r.Program, r, false)
	parts := *r
	parts.Origins = slices.Clone(r.Origins)
	origin := *r.Origins[0]
	origin.Regions = slices.Clone(origin.Regions)
	for i, n := range origin.Regions {
		if n != nil {
			part := *n
			origin.Regions[i] = &part
		}
	}
	parts.Origins[0] = &origin
	found, _, _ := traced(t, r.Program, &parts, false)
	require.Equal(t, whole.Rows, found.Rows)
}

// TestTrace_NamesBothTowers in every part of a launch that computes both, and every layer of a grouped GEMV.
func TestTrace_NamesBothTowers(t *testing.T) {
	r := compiled(t, "vision", "fp16")
	both := 0
	for i, name := range r.RegionNames() {
		for part := range strings.SplitSeq(name, " + ") {
			require.NotContains(t, part, "/narrow/", "launch %d", i)
			require.NotContains(t, part, "/wide/", "launch %d", i)
			if strings.HasPrefix(part, "/{narrow,wide}/") {
				both++
			}
		}
	}
	require.Greater(t, both, 40)
	require.Contains(t, strings.Join(r.RegionNames(), "\n"), "/heads.0/heads.0.2/Gemm and 9 more\n")
}

// TestAChangedWeightIsTheFirstBadLayer changes the sign of one number of each layer's weights in turn. The layer that reads it is
// named, and nothing else is blamed.
func TestAChangedWeightIsTheFirstBadLayer(t *testing.T) {
	fulltest.Long(t)
	r := compiled(t, "dmonitoring", "fp16")
	v := &r.Program.Variants[0]
	in := compile.RandomInputs(r.Source, 3)
	sound, tr, _ := traced(t, r.Program, r, false)
	values := outputsOf(t, tr.Program, in, false, nothing).bytes
	require.Nil(t, sound.FirstBad)
	tried, unseen := 0, 0
	for i, l := range v.Entries[0].Launches {
		n := r.Origins[0].Regions[i]
		if n == nil || !slices.ContainsFunc(n.Parts(), func(part *ir.Node) bool { return part.Region.Anchor() != nil }) {
			continue
		}
		at := weightsOf(v, &l)
		for _, where := range largest(r.Program, v.Buffers[at], n) {
			p := *r.Program
			p.Weights = bytes.Clone(p.Weights)
			p.Weights[where] ^= 0x80
			port := fmt.Sprintf("trace %d writes 0", i)
			changed := *tr.Program
			changed.Weights = p.Weights
			if bytes.Equal(values[port], outputsOf(t, &changed, in, false, nothing).bytes[port]) {
				unseen++ // what it is multiplied by is zero, or what comes of it
				continue
			}
			tried++
			found, _, _ := traced(t, &p, r, false)
			require.NotNil(t, found.FirstBad, "launch %d, %s", i, n.Name)
			row := found.Rows[*found.FirstBad]
			require.Equal(t, i, row.Launch)
			require.Equal(t, compile.RegionName(n), row.Region)
			for _, part := range n.Parts() {
				require.Contains(t, row.Nodes, compile.Original(part.Name))
			}
			require.Positive(t, row.Outside)
			for _, other := range found.Rows {
				require.True(t, !other.Bad || other.Launch == i || at == weightsOf(v, &v.Entries[0].Launches[other.Launch]), "launch %d is blamed for launch %d", other.Launch, i)
			}
			break
		}
	}
	t.Logf("%d layers, %d changes without consequence", tried, unseen)
	require.Greater(t, tried, 8)
}

// largest are the places of the signs of the four largest of a layer's weights in the weights' bytes.
func largest(p *runtime.Program, b runtime.Buffer, n *ir.Node) (at []int) {
	var weights *ir.Value // of the layer that has most
	for _, v := range n.Inputs {
		if v.IsConst() && (weights == nil || v.Type.Bytes() > weights.Type.Bytes()) {
			weights = v
		}
	}
	size := weights.Type.DType.Bits() / 8
	data := p.Weights[b.Offset : b.Offset+b.Bytes]
	for i := 0; i+size <= len(data); i += size {
		at = append(at, i)
	}
	number := func(i int) float64 {
		if size == 4 {
			return math.Abs(float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))))
		}
		return math.Abs(ir.Float16.Format().Decode(uint32(binary.LittleEndian.Uint16(data[i:]))))
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(number(b), number(a)) })
	at = at[:4]
	for k := range at {
		at[k] += b.Offset + size - 1
	}
	return at
}

// weightsOf is the largest constant that a launch reads.
func weightsOf(v *runtime.Variant, l *runtime.Launch) int {
	at := -1
	for _, a := range l.Reads {
		if v.Buffers[a.Buffer].Kind == runtime.ConstantBuffer && (at < 0 || a.Bytes > v.Buffers[at].Bytes) {
			at = a.Buffer
		}
	}
	return at
}

// TestABrokenKernelIsTheFirstBadLayer changes an instruction of a kernel.
func TestABrokenKernelIsTheFirstBadLayer(t *testing.T) {
	r := compiled(t, "policy", "fp16")
	v := r.Program.Variants[0]
	for _, c := range []struct{ kernel, from, to string }{
		{"layernorm_matmul_f16", "sqrt.rn.f32", "rcp.rn.f32"}, {"attention_matmul_f16", "rcp.rn.f32", "sqrt.rn.f32"}, {"matmul_f16", "add.rn.f32", "sub.rn.f32"}, {"layernorm_segmentedmatvec", "max.NaN.f32", "min.NaN.f32"},
	} {
		at, _, ok := strings.Cut(v.PTX, ".entry "+c.kernel+"(")
		require.True(t, ok, c.kernel)
		end := strings.Index(v.PTX[len(at)+1:], ".entry ")
		if end < 0 {
			end = len(v.PTX) - len(at) - 1
		}
		body := v.PTX[len(at) : len(at)+1+end]
		last := strings.LastIndex(body, c.from)
		require.Positive(t, last, c.kernel)
		p, w := *r.Program, v
		w.PTX = at + body[:last] + c.to + body[last+len(c.from):] + v.PTX[len(at)+1+end:]
		p.Variants = []runtime.Variant{w}
		found, _, _ := traced(t, &p, r, false)
		require.NotNil(t, found.FirstBad, c.kernel)
		row := found.Rows[*found.FirstBad]
		require.Equal(t, c.kernel, row.Kernel)
		first := slices.IndexFunc(v.Entries[0].Launches, func(l runtime.Launch) bool { return l.Kernel == c.kernel })
		require.Equal(t, first, row.Launch)
		for _, other := range found.Rows {
			require.True(t, !other.Bad || other.Kernel == c.kernel, "%s is blamed for %s", other.Kernel, c.kernel)
		}
		var text bytes.Buffer
		require.NoError(t, found.Table(&text))
		require.Contains(t, text.String(), "first bad layer: "+row.Region+" (launch ")
	}
}

// TestAValueThatIsOverwrittenTooSoonIsNamed: a plan of memory that puts a value where another is still read is not the fault of
// the layer that reads it.
func TestAValueThatIsOverwrittenTooSoonIsNamed(t *testing.T) {
	r := compiled(t, "supercombo", "fp16")
	o, v := r.Origins[0], r.Program.Variants[0]
	for i, first := range o.Regions {
		if first == nil { // a copy
			continue
		}
		value := first.Outputs[0]
		reads := func(n *ir.Node) bool { return n != nil && slices.Contains(n.Inputs, value) }
		for k := i + 1; k < len(o.Regions) && v.Buffers[o.Places[value].Buffer].Kind == runtime.ArenaBuffer; k++ {
			j := k + slices.IndexFunc(o.Regions[k:], reads)
			if j <= k || o.Regions[k] == nil { // k is to write where the value is, before another launch reads it
				continue
			}
			a, b := o.Places[value], o.Places[o.Regions[k].Outputs[0]]
			if v.Buffers[a.Buffer].Kind != runtime.ArenaBuffer || v.Buffers[b.Buffer].Kind != runtime.ArenaBuffer || b.Bytes > a.Bytes {
				continue
			}
			p, w := *r.Program, v
			w.Buffers = slices.Clone(v.Buffers)
			w.Buffers[b.Buffer].Offset = w.Buffers[a.Buffer].Offset
			p.Variants = []runtime.Variant{w}
			found, _, _ := traced(t, &p, r, false)
			require.NotNil(t, found.FirstBad)
			row := found.Rows[*found.FirstBad]
			require.Equal(t, j, row.Launch)
			require.Contains(t, row.Changed, first.Name)
			require.Zero(t, row.Outside, "it computes what it can of what it finds")
			return
		}
	}
	t.Fatal("no value of the program lives long enough")
}

// TestTrace_ComparesUnboundedWithEvaluator: a sine, which roundoff knows nothing of, times a constant that is changed.
func TestTrace_ComparesUnboundedWithEvaluator(t *testing.T) {
	b := onnx.NewBuilder("waves", 17)
	b.Input("x", ir.Float32, 1, 64)
	c := make([]float64, 64)
	for i := range c {
		c[i] = 1 + float64(i)/64
	}
	b.Node("Mul", []string{b.Op("Sin", []string{"x"}), b.Initializer("c", ir.FromFloats(ir.T(ir.Float32, 64), c))}, []string{"y"})
	b.Output("y", ir.Float32, 1, 64)
	m, err := b.Model()
	require.NoError(t, err)
	raw, err := m.Marshal()
	require.NoError(t, err)
	for _, precision := range []string{"fp32", "fp16"} {
		r := built(t, "waves", raw, precision)
		found, _, _ := traced(t, r.Program, r, false)
		require.Nil(t, found.FirstBad)
		require.Contains(t, found.Rows[0].Unbounded, "Sin")
		p := *r.Program
		p.Weights = bytes.Clone(p.Weights)
		p.Weights[3] ^= 0x80
		found, _, _ = traced(t, &p, r, false)
		require.NotNil(t, found.FirstBad, precision)
		require.Greater(t, found.Rows[0].RoundedRelL2, found.Rows[0].Limit)
	}
}

// TestNodesAreFoundByTheirNamesInTheFile: also those that passes merge into others, turn into one or move elsewhere.
func TestNodesAreFoundByTheirNamesInTheFile(t *testing.T) {
	r := compiled(t, "dmonitoring", "fp16")
	launchesOf := func(patterns ...string) (out []int) {
		found, _, _ := traced(t, r.Program, r, false, patterns...)
		for _, row := range found.Rows {
			out = append(out, row.Launch)
		}
		return out
	}
	conv := r.Source.Nodes[0]
	require.Equal(t, "Conv", conv.Op.Name)
	norm := r.Source.Nodes[1]
	require.Equal(t, "BatchNorm", norm.Op.Name)
	require.Equal(t, []int{1}, launchesOf(conv.Name), "folded into what comes behind it")
	require.Equal(t, []int{1}, launchesOf(norm.Name, conv.Outputs[0].Name), "values have names too")
	all := len(launchesOf("all"))
	require.Equal(t, all, len(launchesOf()))
	require.Less(t, len(launchesOf("*BatchNorm*")), all)
	for _, c := range []struct{ pattern, message string }{
		{r.Source.Inputs[0].Name, "is an input, which no kernel computes"},
		{norm.Name[:len(norm.Name)-1] + "x", "the file has no node or value of that name; near: " + norm.Name},
		{"*nothing*", "the file has no node or value of that name; near: "},
	} {
		_, err := New(t.Context(), r.Program, &r.Program.Variants[0], r, compile.RandomInputs(r.Source, 3), []string{c.pattern}, false, nil)
		require.ErrorContains(t, err, c.message)
	}
}

// TestEveryTargetHasItsOwnOrigin: a package's second variant is traced by its own regions.
func TestEveryTargetHasItsOwnOrigin(t *testing.T) {
	r := compiled(t, "policy", "nvfp4", "sm_121", "sm_80")
	p := *r.Program
	p.Variants = p.Variants[1:]
	found, tr, _ := traced(t, &p, r, false)
	require.Nil(t, found.FirstBad)
	require.Equal(t, "sm_80", tr.Program.Variants[0].Target)
}

// discrete is the CPU device with memory that the host does not see, as a GPU on a card has.
type discrete struct{ hal.Device }

type hidden struct{ hal.Memory }

func (hidden) Bytes() []byte { return nil }

func (d discrete) Info() hal.Info { return hal.Info{Name: "card", Backend: "cuda"} }

func (d discrete) Alloc(n int, k hal.MemoryKind) (hal.Memory, error) {
	m, err := d.Device.Alloc(n, k)
	return hidden{m}, err
}

func (d discrete) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	seen := func(m hal.Memory) hal.Memory {
		if h, ok := m.(hidden); ok {
			return h.Memory
		}
		return m
	}
	ops = slices.Clone(ops)
	for i := range ops {
		o := &ops[i]
		o.Dst, o.Src = seen(o.Dst), seen(o.Src)
		for _, list := range [][]hal.Range{o.Reads, o.Writes, o.Prefetch} {
			for k := range list {
				list[k].Memory = seen(list[k].Memory)
			}
		}
	}
	return d.Device.Capture(ctx, ops)
}

// TestValuesAreFetchedFromADeviceWithItsOwnMemory: the figures are the same.
func TestValuesAreFetchedFromADeviceWithItsOwnMemory(t *testing.T) {
	r := compiled(t, "policy", "fp16")
	here, _, _ := traced(t, r.Program, r, false)
	cpu, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer cpu.Close()
	in := compile.RandomInputs(r.Source, 3)
	tr, err := New(t.Context(), r.Program, &r.Program.Variants[0], r, in, nil, true, nil)
	require.NoError(t, err)
	there := outputsOn(t, discrete{cpu}, tr.Program, in, func(s *runtime.Session) *Trace {
		found, err := tr.Compare(t.Context(), s)
		require.NoError(t, err)
		return found
	}).trace
	require.Equal(t, here, there)
}

// TestTensorCoresHaveAWiderRange by what docs/gpu.md says: of operands of 8 bits far wider than of 16, of f32 not at all.
func TestTensorCoresHaveAWiderRange(t *testing.T) {
	fulltest.Long(t)
	for precision, want := range map[string]float64{"fp32": 0, "fp16": 0x1p-23, "bf16": 0x1p-23, "fp6": 0x1p-23, "fp8": 0x1p-13} {
		r := compiled(t, "policy", precision)
		most := 0.0
		for _, n := range r.Graph.Nodes {
			c := &comparison{Tracer: &Tracer{tensor: true}}
			most = max(most, c.addition(n))
			c.tensor = false
			require.Zero(t, c.addition(n))
		}
		require.Equal(t, want, most, precision)
	}
}
