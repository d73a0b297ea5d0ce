// Package trace compares what each launch of a program computes with the float64 evaluator, to find the layer that is wrong.
//
// The program that is traced is the one that runs: the same kernels, launches, constants and memory plan, with copies between
// the launches. Copies are taken of what a region reads, before it runs, and of what it computes, before the memory plan
// lets another region overwrite it. A region is judged by the inputs that it had, so that a fault is not also that of what
// comes after it:
//
//	error    the output against the file's: the graph of regions before anything is rounded, in float64, on the same inputs
//	own      the output against the same region, exact, on the inputs that the launch had: what the region adds itself
//	bad      an element is outside of what rounding in f32 and storage, in any order, can make of these inputs
//
// The last needs no tolerance (internal/roundoff). Where an operator has no such bound, a relative L2 stands for it.
package trace

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/roundoff"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Trace is what was found, as it stands in reports.
type Trace struct {
	Definitions map[string]string `json:"definitions"`
	Rows        []Row             `json:"rows"`                // in the order of the launches
	FirstBad    *int              `json:"first_bad,omitempty"` // an index into Rows; absent: none is bad
	Most        *int              `json:"most,omitempty"`      // an index into Rows: which adds most itself
	Outputs     []Output          `json:"outputs"`             // of the model
	SameBits    bool              `json:"same_bits"`           // the traced run had the outputs of the run without copies, bit for bit
}

// Row is a value that a region computes.
type Row struct {
	Launch int      `json:"launch"`
	Region string   `json:"region"` // of a chain whose values between are not in memory: all its regions, joined by " + "
	Nodes  []string `json:"nodes"`  // of the file that are inside of the region
	Kernel string   `json:"kernel"`
	Family string   `json:"family"`
	Value  string   `json:"value"`
	Shape  []int    `json:"shape"`  // images are NHWC
	Stored string   `json:"stored"` // type of the numbers
	Scale  float64  `json:"scale"`  // of all elements
	Metrics
	Own float64 `json:"own_rel_l2"` // what the region adds itself, relative to the file's value
	// Outside is the number of elements that rounding cannot produce from the inputs, and Beyond the worst one's
	// distance to what it can produce. For an operator without a bound, Unbounded names it, RoundedRelL2 is the relative
	// L2 from the evaluator that rounds where the region does, on the same inputs, and Limit what is allowed.
	Outside      int     `json:"outside"`
	Beyond       float64 `json:"beyond,omitempty"`
	Unbounded    string  `json:"unbounded,omitempty"`
	RoundedRelL2 float64 `json:"apart_rel_l2,omitempty"`
	Limit        float64 `json:"apart_limit,omitempty"`
	Changed      string  `json:"changed,omitempty"` // an input that is not what its region had computed
	Bad          bool    `json:"bad"`
}

// Metrics are those of a comparison, and where the worst element is.
type Metrics struct {
	RelL2  float64 `json:"rel_l2"`
	Cosine float64 `json:"cosine"`
	MaxAbs float64 `json:"max_abs"`
	Worst  []int   `json:"worst"`
}

// Output is an output of the model against the file, evaluated in float64 as it was imported.
type Output struct {
	Name string `json:"name"`
	Metrics
	Passes float64 `json:"passes_rel_l2"` // of the exact regions: what the passes changed
}

// Tracer traces one variant of a program.
type Tracer struct {
	Program *runtime.Program // with copies

	source  *ir.Graph
	origin  *compile.Origin
	variant *runtime.Variant
	names   *names
	steps   []step
	tensor  bool                 // the device has tensor cores of its own
	exact   map[string]*ir.Array // what regions compute, by name in Origin.Exact
	passed  map[string]*ir.Array // outputs of Origin.Exact
	outputs map[string]*ir.Array // of the file
	meter   *console.Meter
}

// New prepares tracing of the regions that patterns name, on inputs of the model by name. r is the compilation of the file that p
// is a program of, with its Origins, and v the variant of p that runs; p may be another copy of the program, with other
// constants or code. hardware says that the device is not the CPU device. Progress goes to m.
func New(ctx context.Context, p *runtime.Program, v *runtime.Variant, r *compile.Result, inputs map[string]*ir.Array, patterns []string, hardware bool, m *console.Meter) (*Tracer, error) {
	at := slices.IndexFunc(r.Program.Variants, func(w runtime.Variant) bool { return w.Target == v.Target })
	if at < 0 || at >= len(r.Origins) {
		return nil, fmt.Errorf("%s was not compiled for %s", p.Model, v.Target)
	}
	t := &Tracer{origin: r.Origins[at], variant: v, tensor: hardware, exact: map[string]*ir.Array{}, meter: m}
	m.Begin(0, "evaluating the file in float64")
	wanted := map[string]bool{}
	for _, n := range t.origin.Graph.Nodes {
		for _, v := range n.Outputs {
			wanted[t.origin.Provenance[v.Name]] = !n.IsFamily(ir.FamilyView)
		}
	}
	var err error
	if t.passed, err = ir.Evaluate(ctx, t.origin.Exact, typed(t.origin.Exact, inputs), ir.EvalOptions{Observe: func(v *ir.Value, a *ir.Array) {
		if wanted[v.Name] {
			t.exact[v.Name] = a
		}
	}}); err != nil {
		return nil, err
	}
	if t.outputs, err = ir.Evaluate(ctx, r.Source, typed(r.Source, inputs), ir.EvalOptions{}); err != nil {
		return nil, err
	}
	t.source = r.Source
	t.names = newNames(r.Source, t.origin.Graph)
	chosen, err := t.names.choose(patterns)
	if err != nil {
		return nil, err
	}
	t.Program, t.steps, err = instrument(p, v, t.origin, chosen)
	return t, err
}

// Compare compares the run that a session of Program has made with the inputs.
func (t *Tracer) Compare(ctx context.Context, s *runtime.Session) (*Trace, error) {
	c := &comparison{Tracer: t, ctx: ctx, session: s, stored: map[*ir.Value][]byte{}}
	out := &Trace{Definitions: Definitions(), Rows: []Row{}}
	t.meter.Begin(0, "comparing regions")
	for i, st := range t.steps {
		t.meter.Step(i, len(t.steps), float64(i)/float64(len(t.steps)))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows, err := c.step(st)
		if err != nil {
			return nil, fmt.Errorf("launch %d, region %q: %w", st.launch, st.region.Name, err)
		}
		out.Rows = append(out.Rows, rows...)
	}
	for i := range out.Rows {
		r := &out.Rows[i]
		if r.Bad && out.FirstBad == nil {
			out.FirstBad = &i
		}
		if out.Most == nil || r.Own > out.Rows[*out.Most].Own {
			out.Most = &i
		}
	}
	return out, c.compareOutputs(out)
}

// typed are inputs in the types of a graph, which evaluates in float64 whatever these are.
func typed(g *ir.Graph, inputs map[string]*ir.Array) map[string]*ir.Array {
	out := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		if a := inputs[v.Name]; a != nil {
			out[v.Name] = &ir.Array{Type: ir.Type{DType: v.Type.DType, Shape: a.Shape}, F: a.F, I: a.I}
		}
	}
	return out
}

// Definitions says what the figures of a trace mean.
func Definitions() map[string]string {
	return map[string]string{
		"rel_l2":     "‖output − exact‖ / ‖exact‖, where exact is the file's value: the graph of regions before any rounding, in float64, from the same inputs of the model",
		"own_rel_l2": "‖output − f(inputs)‖ / ‖exact‖, where f is the region without any rounding, in float64, on the inputs that the launch had: what the region adds itself by rounding weights, activations and results, or by a fault",
		"bad":        "an element is outside of what rounding (f32 sums in any order, the types in which operands are read and results stored) can make of the inputs that the launch had (docs/design/regions.md, internal/roundoff); or an input is not what the region in front had computed",
		"apart":      fmt.Sprintf("for operators whose rounding has no bound: relative L2 from the evaluator, which rounds where the region does, on the inputs that the launch had; bad above half a unit in the last place of the stored type, or %.1g if that is more", limit32),
	}
}

// comparison is the comparison of one run.
type comparison struct {
	*Tracer
	ctx     context.Context
	session *runtime.Session
	stored  map[*ir.Value][]byte // as regions have left them
}

// compareOutputs compares the outputs of the model with the file as it was imported.
func (c *comparison) compareOutputs(t *Trace) error {
	for i, v := range c.source.Outputs { // the program's are in the same order, followed by its copies
		got, err := runtime.Float64s(c.Program.Outputs[i].DType, c.session.Output(v.Name))
		if err != nil {
			return fmt.Errorf("output %q: %w", v.Name, err)
		}
		m, err := compare(got, c.outputs[v.Name].Floats(), v.Type.Shape)
		if err != nil {
			return fmt.Errorf("output %q: %w", v.Name, err)
		}
		passes, err := compare(c.passed[v.Name].Floats(), c.outputs[v.Name].Floats(), v.Type.Shape)
		if err != nil {
			return fmt.Errorf("output %q: %w", v.Name, err)
		}
		t.Outputs = append(t.Outputs, Output{v.Name, m, passes.RelL2})
	}
	return nil
}

// bytes is a copy that the traced program has made.
func (c *comparison) bytes(k kept) []byte {
	if k.port == "" {
		return []byte{}
	}
	return c.session.Output(k.port)
}

// step compares the outputs of one launch.
func (c *comparison) step(s step) ([]Row, error) {
	had := map[*ir.Value]*ir.Array{}
	changed := ""
	for _, k := range s.ins {
		data := c.bytes(k)
		x, err := ir.NewTensor(k.value.Type, data)
		if err != nil {
			return nil, err
		}
		had[k.value] = x.Array()
		if before, err := c.left(k.value); err != nil {
			return nil, err
		} else if before != nil && !bytes.Equal(before, data) && changed == "" {
			changed = fmt.Sprintf("%s was changed between %s, which computes it, and this launch", compile.Original(k.value.Name), k.value.Def.Name)
		}
	}
	got := map[*ir.Value]*ir.Array{}
	for _, k := range s.outs {
		data := c.bytes(k)
		c.stored[k.value] = data
		x, err := ir.NewTensor(k.value.Type, data)
		if err != nil {
			return nil, err
		}
		got[k.value] = x.Array()
	}
	parts := s.region.Parts()
	if slices.ContainsFunc(parts, func(n *ir.Node) bool { return got[n.Outputs[0]] == nil }) {
		parts = []*ir.Node{s.region} // what is between is not in memory
	}
	var rows []Row
	for _, n := range parts {
		of, err := c.rows(n, had, got)
		if err != nil {
			return nil, err
		}
		for i := range of {
			r := &of[i]
			r.Launch = s.launch
			r.Kernel, r.Family = c.kernel(s.launch)
			if changed != "" {
				r.Changed, r.Bad = changed, true
			}
		}
		rows = append(rows, of...)
		for _, v := range n.Outputs { // the next part reads it
			had[v] = got[v]
		}
	}
	return rows, nil
}

// rows compares what a region computed with the inputs that it had.
func (c *comparison) rows(n *ir.Node, had, got map[*ir.Value]*ir.Array) ([]Row, error) {
	verdicts, err := c.judge(n, had, got)
	if err != nil {
		return nil, err
	}
	fed, err := c.fed(n, had)
	if err != nil {
		return nil, err
	}
	var rows []Row
	at := 0 // among the node's outputs: a result, and its scales of blocks
	for k, st := range n.LastPart().Region.Results {
		v := n.Outputs[at]
		var scales *ir.Array
		r := verdicts[at]
		if at++; st.Block > 0 {
			scales = got[n.Outputs[at]]
			r.Outside += verdicts[at].Outside
			r.Bad = r.Bad || verdicts[at].Bad
			at++
		}
		exact := c.exact[c.origin.Provenance[v.Name]]
		if exact == nil {
			return nil, fmt.Errorf("value %q has no exact counterpart: this is a bug in tracing, please report it", v.Name)
		}
		x := decoded(got[v], st, scales).Floats()
		r.Region, r.Nodes, r.Value = compile.RegionName(n), c.names.inside[v.Def], compile.Original(v.Name)
		r.Shape, r.Stored, r.Scale = v.Type.Shape, v.Type.DType.String(), st.Factor()
		if r.Metrics, err = compare(x, exact.Floats(), v.Type.Shape); err != nil {
			return nil, err
		}
		own, err := compare(x, fed[k].Floats(), v.Type.Shape)
		if err != nil {
			return nil, err
		}
		r.Own = relative(own.RelL2, norm(fed[k].Floats()), norm(exact.Floats()))
		rows = append(rows, r)
	}
	return rows, nil
}

func (c *comparison) kernel(launch int) (name, family string) {
	l := c.variant.Entry("run").Launches[launch]
	for _, k := range c.variant.Kernels {
		if k.Name == l.Kernel {
			family = k.Family
		}
	}
	return l.Kernel, family
}

// left is how a region, or what a view shows, was left by the launch that computes it; nil if that was not traced.
func (c *comparison) left(v *ir.Value) ([]byte, error) {
	n := v.Def
	if n == nil || !n.IsFamily(ir.FamilyView) {
		return c.stored[v], nil
	}
	if data, ok := c.stored[v]; ok {
		return data, nil
	}
	in := make([]*ir.Array, len(n.Inputs))
	for i, x := range n.Inputs {
		data, err := c.left(x)
		if err != nil || data == nil {
			return nil, err
		}
		t, err := ir.NewTensor(x.Type, data)
		if err != nil {
			return nil, err
		}
		in[i] = t.Array()
	}
	out, err := ir.EvaluateNode(n, in)
	if err != nil {
		return nil, err
	}
	for i, a := range out {
		c.stored[n.Outputs[i]] = a.Tensor().Dense()
	}
	return c.stored[v], nil
}

// judge compares a region's outputs with what rounding can make of the inputs that it had.
func (c *comparison) judge(n *ir.Node, had, got map[*ir.Value]*ir.Array) ([]Row, error) {
	in, arrays := make([]roundoff.Range, len(n.Inputs)), make([]*ir.Array, len(n.Inputs))
	for i, v := range n.Inputs {
		if arrays[i] = had[v]; v.IsConst() {
			arrays[i] = v.Const.Array()
		}
		in[i] = roundoff.Exactly(arrays[i])
	}
	rows := make([]Row, len(n.Outputs))
	ranges, unbounded := roundoff.Model{TensorCore: c.addition(n)}.Node(n, in)
	if unbounded == nil {
		for i, v := range n.Outputs {
			rows[i].Outside, rows[i].Beyond = outside(got[v], ranges[i])
			rows[i].Bad = rows[i].Outside > 0
		}
		return rows, nil
	}
	want, err := rounding(c.ctx, n, arrays)
	if err != nil {
		return nil, err
	}
	for i, v := range n.Outputs {
		m, err := compare(got[v].Floats(), want[i].Floats(), v.Type.Shape)
		if err != nil {
			return nil, err
		}
		r := &rows[i]
		r.Unbounded, r.RoundedRelL2, r.Limit = unbounded.Error(), m.RelL2, limit(v.Type.DType)
		r.Bad = !(r.RoundedRelL2 <= r.Limit)
	}
	return rows, nil
}

// rounding evaluates a region that rounds where its body casts and where results are stored.
func rounding(ctx context.Context, n *ir.Node, in []*ir.Array) ([]*ir.Array, error) {
	m := *n
	g := ir.NewGraph(n.Name)
	g.Nodes, g.Outputs = []*ir.Node{&m}, n.Outputs
	m.Inputs = nil
	known := map[string]*ir.Array{}
	for i, v := range n.Inputs {
		w := &ir.Value{Name: fmt.Sprint("in", i), Type: v.Type, Const: v.Const}
		if m.Inputs = append(m.Inputs, w); !v.IsConst() {
			g.Inputs = append(g.Inputs, w)
			known[w.Name] = in[i]
		}
	}
	list := make([]*ir.Array, len(g.Inputs))
	for i, v := range g.Inputs {
		list[i] = known[v.Name]
	}
	return ir.EvaluateList(ctx, g, list, ir.EvalOptions{Round: true})
}

// limit32 is the relative L2 that is allowed to a region of an operator without a bound whose result is stored in f32 or wider:
// 2^-16, 256 roundings of f32.
const limit32 = 0x1p-16

// limit is half a unit in the last place of a type, or limit32.
func limit(d ir.DType) float64 {
	if f := d.Format(); f != nil {
		return max(limit32, math.Ldexp(1, -f.Mantissa-1))
	}
	return limit32
}

// addition is what an addition of the device's tensor cores may cost a region: docs/gpu.md.
func (c *comparison) addition(n *ir.Node) float64 {
	n = n.LastPart()
	a := n.Region.Anchor()
	if !c.tensor || !n.IsFamily(ir.FamilyContraction) || a == nil {
		return 0
	}
	widest := 0
	for _, k := range a.Op.Matrix {
		if i, _, ok := n.Region.Source(a.Inputs[k]); ok {
			o := n.Region.Operands[i]
			d := o.DType
			if o.Read.DType != ir.Invalid {
				d = o.Read.DType
			}
			widest = max(widest, d.Bits())
		}
	}
	switch {
	case widest <= 8:
		return 0x1p-13
	case widest <= 16:
		return 0x1p-23
	}
	return 0
}

// fed is the exact region on the inputs that a launch had: its results, before they are stored.
func (c *comparison) fed(n *ir.Node, had map[*ir.Value]*ir.Array) (results []*ir.Array, err error) {
	between := map[*ir.Value]*ir.Array{}
	for _, part := range n.Parts() {
		if results, err = c.fedTo(part, had, between); err != nil {
			return nil, err
		}
		for k, x := range results { // values in blocks, which have scales as well, are the last part's
			between[part.Outputs[k]] = x
		}
	}
	return results, nil
}

// fedTo is fed of a part of a region; between are the results of others.
func (c *comparison) fedTo(n *ir.Node, had, between map[*ir.Value]*ir.Array) ([]*ir.Array, error) {
	values := make([]*ir.Array, len(n.Region.Operands))
	for i, o := range n.Region.Operands {
		if v := n.Inputs[i]; !v.IsConst() {
			var scales *ir.Array
			if s := n.BlockScales(i); s != nil {
				scales = had[s]
			}
			if values[i] = between[v]; values[i] == nil {
				values[i] = decoded(had[v], o.Storage, scales)
			}
		}
	}
	was := c.origin.Provenance
	if len(n.Inputs) == 1 && was[n.Inputs[0].Name] == was[n.Outputs[0].Name] { // a copy in another type
		return values, nil
	}
	exact := c.def(was[n.Outputs[0].Name])
	if exact != nil && exact.IsFamily(ir.FamilyView) && !n.IsFamily(ir.FamilyView) {
		exact = viewed(exact.Outputs[0]).Def
	}
	if exact == nil {
		return nil, fmt.Errorf("it has no exact counterpart: this is a bug in tracing, please report it")
	}
	in := make([]*ir.Array, len(exact.Inputs))
	for i, v := range exact.Inputs {
		if v.IsConst() {
			in[i] = v.Const.Array()
			continue
		}
		at := slices.IndexFunc(n.Inputs[:len(values)], func(x *ir.Value) bool { return !x.IsConst() && was[x.Name] == v.Name })
		if at < 0 { // a part of a chain views it itself
			from := viewed(v)
			at = slices.IndexFunc(n.Inputs[:len(values)], func(x *ir.Value) bool { return !x.IsConst() && was[x.Name] == from.Name })
		}
		if at < 0 {
			return nil, fmt.Errorf("it does not read %q: this is a bug in tracing, please report it", v.Name)
		}
		in[i] = &ir.Array{Type: v.Type, F: values[at].F, I: values[at].I}
	}
	return ir.EvaluateNode(exact, in)
}

// viewed is what a value of the exact graph has all numbers of, in their order but another shape.
func viewed(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.IsFamily(ir.FamilyView) && len(v.Def.Inputs) == 1 && v.Def.Inputs[0].Type.Numel() == v.Type.Numel() {
		v = v.Def.Inputs[0]
	}
	return v
}

// def is the exact region that computes a value.
func (c *comparison) def(name string) *ir.Node {
	for _, n := range c.origin.Exact.Nodes {
		for _, v := range n.Outputs {
			if v.Name == name {
				return n
			}
		}
	}
	return nil
}

// decoded are the values that stored numbers stand for.
func decoded(x *ir.Array, s ir.Storage, scales *ir.Array) *ir.Array {
	if x.F == nil || s.Factor() == 1 && s.Block == 0 {
		return x
	}
	out := &ir.Array{Type: ir.Type{DType: ir.Float64, Shape: x.Shape}, F: make([]float64, len(x.F))}
	for i, f := range x.F {
		out.F[i] = f * s.Factor()
		if s.Block > 0 { // of neighbours along the last dimension
			length := x.Shape[x.Rank()-1]
			blocks := (length + s.Block - 1) / s.Block
			out.F[i] *= scales.F[i/length*blocks+i%length/s.Block]
		}
	}
	return out
}

// outside counts the elements that are not in their range, and says how far the worst is from it.
func outside(got *ir.Array, want roundoff.Range) (count int, beyond float64) {
	lo, hi := want.Lo.Floats(), want.Hi.Floats()
	for i, x := range got.Floats() {
		switch {
		case lo[i] <= x && x <= hi[i]:
		case math.IsNaN(x) && (math.IsNaN(lo[i]) || math.IsNaN(hi[i])):
		default:
			count++
			if d := max(lo[i]-x, x-hi[i]); d > beyond || math.IsNaN(d) {
				beyond = d
			}
		}
	}
	if math.IsNaN(beyond) || math.IsInf(beyond, 0) {
		beyond = math.MaxFloat64
	}
	return count, beyond
}

// compare is runtime.Compare with the place of the worst element, in figures that JSON has.
func compare(got, want []float64, shape []int) (Metrics, error) {
	m, err := runtime.Compare(got, want, 0, 0)
	if err != nil {
		return Metrics{}, err
	}
	at, worst := 0, -1.0
	for i, w := range want {
		d := math.Abs(got[i] - w)
		switch {
		case got[i] == w || math.IsNaN(got[i]) && math.IsNaN(w):
			d = 0
		case math.IsNaN(d):
			d = math.Inf(1)
		}
		if d > worst {
			at, worst = i, d
		}
	}
	out := Metrics{RelL2: min(m.RelL2, math.MaxFloat64), Cosine: m.Cosine, MaxAbs: min(m.MaxAbs, math.MaxFloat64), Worst: make([]int, len(shape))}
	for k, dim := range slices.Backward(shape) {
		if dim > 0 {
			out.Worst[k] = at % dim
			at /= dim
		}
	}
	return out, nil
}

func norm(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			sum += float64(x * x)
		}
	}
	return math.Sqrt(sum)
}

// relative makes an error relative to one norm relative to another.
func relative(e, to, other float64) float64 {
	if to > 0 {
		e *= to
	}
	if other > 0 {
		e /= other
	}
	return min(e, math.MaxFloat64)
}
