package trace

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// step is a launch that is traced: what it reads and writes, each with the output of the traced program that has a copy.
type step struct {
	launch    int // of the program
	region    *ir.Node
	ins, outs []kept
}

// kept is a copy of a value.
type kept struct {
	value *ir.Value
	port  string // "" if it has no bytes
}

// instrument returns the program of one variant whose launches, kernels, constants and memory plan are the same, with copies
// between the launches: of what a chosen region reads, before it runs, and of what it computes, before that is overwritten.
func instrument(p *runtime.Program, v *runtime.Variant, o *compile.Origin, chosen map[*ir.Node]bool) (*runtime.Program, []step, error) {
	out, w := *p, *v
	w.Buffers, w.Entries = slices.Clone(v.Buffers), slices.Clone(v.Entries)
	out.Outputs = slices.Clone(p.Outputs)
	at := slices.IndexFunc(w.Entries, func(e runtime.Entry) bool { return e.Name == "run" })
	if at < 0 || len(w.Entries[at].Launches) != len(o.Regions) {
		return nil, nil, fmt.Errorf("%s for %s has other launches than its graph: this is a bug in tracing, please report it", p.Model, v.Target)
	}
	var steps []step
	var launches []runtime.Launch
	keep := func(value *ir.Value, name string) (kept, error) {
		from, ok := o.Places[value]
		switch {
		case !ok:
			return kept{}, fmt.Errorf("value %q has no place: this is a bug in tracing, please report it", value.Name)
		case from.Bytes == 0:
			return kept{value, ""}, nil
		}
		to := runtime.Access{Buffer: len(w.Buffers), Bytes: from.Bytes}
		w.Buffers = append(w.Buffers, runtime.Buffer{Name: name, Kind: runtime.OutputBuffer, Bytes: from.Bytes})
		out.Outputs = append(out.Outputs, runtime.Port{Name: name, DType: ir.Uint8.String(), Shape: []int{from.Bytes}})
		launches = append(launches, runtime.Launch{Copy: &runtime.Copy{Src: from, Dst: to, Bytes: from.Bytes}, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
			Params: []runtime.Param{}, Reads: []runtime.Access{from}, Writes: []runtime.Access{to}, Note: "trace " + value.Name})
		return kept{value, name}, nil
	}
	for i, l := range w.Entries[at].Launches {
		n := o.Regions[i]
		s := step{launch: i, region: n}
		wanted := n != nil && chosen[n.Outputs[0].Def] // which n may be a part of
		if wanted {
			for k, value := range n.Inputs {
				if value.IsConst() || slices.ContainsFunc(s.ins, func(c kept) bool { return c.value == value }) {
					continue
				}
				c, err := keep(value, fmt.Sprintf("trace %d reads %d", i, k))
				if err != nil {
					return nil, nil, err
				}
				s.ins = append(s.ins, c)
			}
		}
		l.Dependent = l.Dependent && len(launches) > 0 && launches[len(launches)-1].Copy == nil
		launches = append(launches, l)
		if !wanted {
			continue
		}
		for k, value := range n.Outputs {
			c, err := keep(value, fmt.Sprintf("trace %d writes %d", i, k))
			if err != nil {
				return nil, nil, err
			}
			s.outs = append(s.outs, c)
		}
		steps = append(steps, s)
	}
	w.Order(launches)
	w.Entries[at].Launches = launches
	out.Variants = []runtime.Variant{w}
	if err := out.Validate(); err != nil {
		return nil, nil, fmt.Errorf("the traced program: %w: this is a bug in tracing, please report it", err)
	}
	return &out, steps, nil
}
