package profile

import (
	"context"
	"slices"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/runtime"
)

// InTurn predicts how long programs for a target take, in µs, that run repeatedly one after the other, the entry
// run of each. In L2 a program finds what the others have left. Separate predictions give each program all of L2.
func InTurn(ctx context.Context, programs []*runtime.Program, t *target.Target) (float64, error) {
	var list []Launch
	all, weights := followed{v: &runtime.Variant{}}, 0
	for _, p := range programs {
		v, err := p.Variant(t.Name)
		if err != nil {
			return 0, err
		}
		prof, err := Run(ctx, p, v, "run", t)
		if err != nil {
			return 0, err
		}
		all.append(p, v, prof, weights)
		weights += (len(p.Weights) + blockBytes - 1) &^ (blockBytes - 1)
		list = append(list, prof.Launches...)
	}
	warm, _ := misses(&all, cost.Of(t))
	times, dependent := make([]cost.Time, len(list)), make([]bool, len(list))
	for i := range list {
		times[i], dependent[i] = list[i].estimate(cost.Of(t), warm[i]), list[i].dependent
	}
	return cost.Sequence(times, dependent), nil
}

// append adds a program's launches, with its memory after that of the others, its weights from an offset on.
func (f *followed) append(p *runtime.Program, v *runtime.Variant, prof *Profile, weights int) {
	n := len(f.v.Buffers)
	for _, b := range v.Buffers {
		switch b.Kind {
		case runtime.ConstantBuffer:
			b.Offset += weights
		case runtime.ArenaBuffer:
			b.Offset += f.v.ArenaBytes
		}
		f.v.Buffers = append(f.v.Buffers, b)
	}
	f.v.ArenaBytes += (v.ArenaBytes + blockBytes - 1) &^ (blockBytes - 1)
	f.states = append(f.states, p.States...)
	shifted := func(list []runtime.Access) []runtime.Access {
		list = slices.Clone(list)
		for i := range list {
			list[i].Buffer += n
		}
		return list
	}
	for i, l := range v.Entry("run").Launches {
		l.Reads, l.Writes = shifted(l.Reads), shifted(l.Writes)
		if l.Prefetch != nil {
			l.Prefetch = &shifted([]runtime.Access{*l.Prefetch})[0]
		}
		f.launches, f.read = append(f.launches, l), append(f.read, prof.parts[i])
	}
}
