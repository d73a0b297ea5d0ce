package dora

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// SlotRank is the rank that slots have room for unless said otherwise: as many rows as one product on tensor cores has at least, so that
// less would save nothing. MostSlotRank is the greatest.
const (
	SlotRank     = 16
	MostSlotRank = 64
)

// SlotOptions say which adapters the slots can hold, and how the base is stored.
type SlotOptions struct {
	Count int // slots
	Rank  int // the greatest of an adapter that fits; SlotRank by default
	// Base is how the model's weights are stored, as StepOptions.Base says; "": as the precision has them. An
	// adapter that was trained with weights rounded otherwise is refused.
	Base string
}

// check fills in what was not said.
func (o *SlotOptions) check(in string) error {
	if o.Rank == 0 {
		o.Rank = SlotRank
	}
	switch {
	case o.Count < 1:
		return fmt.Errorf("%d adapter slots: want at least one", o.Count)
	case o.Rank < 1 || o.Rank > MostSlotRank:
		return fmt.Errorf("slots for adapters of rank %d: want 1 to %d", o.Rank, MostSlotRank)
	case o.Base != "" && in == precision.FP32:
		return fmt.Errorf("programs of fp32 keep weights wide: leave the base %s out, or take fp16 or bf16", o.Base)
	}
	return nil
}

// Slots compiles a model whose adapter is left open: runtime.Session.LoadAdapter puts adapters into slots,
// UseAdapter chooses one for each run. Every layer takes an adapter of any kind up to the rank of slots, depthwise
// convolutions magnitudes. A run computes both low-rank products in addition to each layer's own. Precision is
// fp32, fp16, bf16. With a narrow base, norms are those of the rounded weights, and an empty slot computes with
// these.
func Slots(ctx context.Context, m *Model, slots SlotOptions, opt compile.Options) (*compile.Result, error) {
	if err := slots.check(opt.Precision); err != nil {
		return nil, err
	}
	base, err := m.base(slots.Base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	a, err := Init(m, InitOptions{Rank: slots.Rank})
	if err != nil {
		return nil, err
	}
	s := &slotted{Model: m, adapter: a, SlotOptions: slots}
	s.trained, s.gains, s.inverse = a.vectors()
	var entries []compile.Entry
	for _, e := range []struct {
		name  string
		build func(g *ir.Graph) error
	}{{EntryRun, s.run}, {runtime.AdapterEntry, s.prepare}} {
		g, err := promoted(m.graph)
		if err != nil {
			return nil, err
		}
		g.Name = e.name
		pc := passContext(opt.Precision, s.passes(), base)
		if err := passes.Run(pc, g, []string{"insert-dora", "quantise-base"}, nil); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", m.File.Path, e.name, err)
		}
		if err := e.build(g); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", m.File.Path, e.name, err)
		}
		kept := []codegen.StateBinding{{Input: runtime.AdapterState}, {Input: runtime.AdapterGains}}
		if e.name == EntryRun {
			kept = append(kept, compile.States(g)...)
		} else {
			kept[1].Output = nextGains
		}
		entries = append(entries, compile.Entry{Name: e.name, Parts: []compile.Part{{Graph: g, Precision: opt.Precision}}, States: kept})
	}
	if opt.Slices == nil {
		if opt.Slices, err = compile.Slices(m.File, m.graph, opt.Import.Batch); err != nil {
			return nil, err
		}
	}
	opt.Digest = m.Base
	r, err := compile.Entries(ctx, m.File.Path, entries, opt)
	if err != nil {
		return nil, err
	}
	// What adapters take is no port of the model, and with empty slots the program computes what the model does.
	p := r.Program
	ours := func(q runtime.Port) bool {
		return slices.Contains([]string{runtime.AdapterState, runtime.AdapterGains, runtime.AdapterInput, nextGains}, q.Name)
	}
	p.Inputs, p.Outputs = slices.DeleteFunc(p.Inputs, ours), slices.DeleteFunc(p.Outputs, ours)
	p.States = slices.DeleteFunc(p.States, func(st runtime.State) bool { return ours(runtime.Port{Name: st.Input}) })
	p.Adapters = s.describe()
	if r.Source, err = m.graphWith(base); err != nil {
		return nil, err
	}
	return r, p.Validate()
}

// graphWith is the model's graph, or one that computes with its weights rounded.
func (m *Model) graphWith(base passes.Base) (*ir.Graph, error) {
	if base.Format == nil {
		return m.graph, nil
	}
	g, err := promoted(m.graph)
	if err == nil {
		err = passes.Run(passContext(precision.FP16, nil, base), g, []string{"quantise-base"}, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	return g, nil
}

// nextGains is the new value of the gains.
const nextGains = "next:" + runtime.AdapterGains

// slotted is a program with slots in the making.
type slotted struct {
	*Model
	SlotOptions
	adapter                 *Adapter
	trained, gains, inverse vector
}

// passes are the layers' adapters; scales are in the numbers.
func (s *slotted) passes() []passes.Adapter {
	list := s.adapter.passes()
	for i := range list {
		list[i].Scale = 1
	}
	return list
}

// describe says where an adapter's tensors lie.
func (s *slotted) describe() *runtime.Adapters {
	out := &runtime.Adapters{Base: s.Model.Base, Storage: s.SlotOptions.Base, Slots: s.Count, Size: s.trained.size}
	at := func(name string) int {
		if i := s.trained.at(name); i >= 0 {
			return s.trained.parts[i].at
		}
		return 0
	}
	for _, l := range s.adapter.Layers {
		p := passes.Adapter{Name: l.Module}
		out.Layers = append(out.Layers, runtime.AdapterLayer{Layer: l.Weight.Layer, Rank: l.Rank, A: at(p.InputA()), B: at(p.InputB()), M: at(p.InputM())})
	}
	return out
}

// slot is the input that says which slot an entry takes, within bounds; nil: there is one.
func (s *slotted) slot(x *ir.Expansion, g *ir.Graph) *ir.Value {
	if s.Count == 1 {
		return nil
	}
	number := func(i int) *ir.Value { return x.Constant(ir.ScalarInt(ir.Int32, int64(i))) }
	in := g.AddInput(runtime.AdapterInput, ir.T(ir.Int32))
	return x.Add("Min", nil, x.Add("Max", nil, in, number(0)), number(s.Count-1))
}

// row is a slot's row of what is kept [slots, n].
func (s *slotted) row(x *ir.Expansion, kept, slot *ir.Value) *ir.Value {
	if slot == nil {
		return x.Reshape(kept, kept.Type.Shape[1])
	}
	return x.Add("Gather", ir.Attrs{"axis": 0}, kept, slot)
}

// run makes the adapter and its gains those of a slot.
func (s *slotted) run(g *ir.Graph) error {
	var flat, gain, slot *ir.Value
	err := g.Build("adapter", func(x *ir.Expansion) {
		slot = s.slot(x, g)
		gain = s.row(x, g.AddInput(runtime.AdapterGains, ir.T(ir.Float32, s.Count, s.gains.size)), slot)
		gain = x.Add("Add", nil, gain, x.Like(gain, 1))
	})
	if err == nil {
		err = s.gains.split(g, gain)
	}
	if err != nil {
		return err
	}
	err = g.Build("adapter", func(x *ir.Expansion) {
		flat = s.row(x, g.AddInput(runtime.AdapterState, ir.T(ir.Float32, s.Count, s.trained.size)), slot)
	})
	if err != nil {
		return err
	}
	return s.trained.split(g, flat)
}

// prepare computes the gains of a slot, less 1, and leaves those of others as they are.
func (s *slotted) prepare(g *ir.Graph) error {
	inputs := g.Inputs
	g.Inputs, g.Outputs = nil, nil
	for _, v := range inputs {
		if s.trained.at(v.Name) >= 0 {
			g.Inputs = append(g.Inputs, v)
		}
	}
	const inverse = "inverse"
	if err := s.inverse.join(g, inverse, ""); err != nil {
		return err
	}
	var flat *ir.Value
	err := g.Build("adapter", func(x *ir.Expansion) {
		slot := s.slot(x, g)
		flat = s.row(x, g.AddInput(runtime.AdapterState, ir.T(ir.Float32, s.Count, s.trained.size)), slot)
		old := g.AddInput(runtime.AdapterGains, ir.T(ir.Float32, s.Count, s.gains.size))
		from, _ := s.trained.span(directions)
		m := x.Add("Slice", ir.Attrs{"starts": []int{from}, "sizes": []int{s.gains.size}}, flat)
		gain := x.Add("Sub", nil, x.Add("Mul", nil, m, g.Outputs[0]), x.Like(m, 1))
		none := x.Add("Less", nil, x.Like(m, math.MaxFloat32/2), m)
		gain = x.Reshape(x.Add("Where", nil, none, x.Like(m, 0), gain), 1, s.gains.size)
		if slot != nil {
			rows := make([]int64, s.Count)
			for i := range rows {
				rows[i] = int64(i)
			}
			here := x.Add("Equal", nil, x.Constant(ir.FromInts(ir.T(ir.Int32, s.Count, 1), rows)), slot)
			gain = x.Add("Where", nil, here, gain, old)
		}
		gain.Name = nextGains
		g.Outputs = []*ir.Value{gain}
	})
	if err != nil {
		return err
	}
	return s.trained.split(g, flat)
}
