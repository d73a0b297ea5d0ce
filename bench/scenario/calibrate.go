package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// Networks of precisions that are calibrated are calibrated on what they see in loops of the built-in families, which they
// drive in fp16. The loops are always the same, so that neither the scenarios of a batch nor its seed change the network.
const (
	calibrationSets  = 8
	calibrationEvery = 12         // steps: sets span 4.2 seconds
	calibrationSeed  = 1<<63 + 39 // of loops that nobody else runs
)

// recordedPrefix starts the names of outputs that repeat what networks see, where a batch records it.
const recordedPrefix = "recorded:"

// network is the graph of what an algorithm learned and its precision; nil if nothing did.
func (d *design) network() (g *ir.Graph, in string) {
	switch {
	case d.models != nil:
		return d.models.batch, d.models.precision
	case d.policy != nil:
		return d.policy.graph, d.policy.precision
	}
	return nil, ""
}

// learned is what the network keeps from step to step.
func (d *design) learned() []codegen.StateBinding {
	if d.models != nil {
		return d.models.kept()
	}
	return d.policy.kept()
}

// part is a network as a part of a step.
func (d *design) part() compile.Part {
	g, in := d.network()
	p := compile.Part{Graph: g, Precision: in}
	if precision.Calibrates(in) {
		p.Calibrate, p.MinCosine = []string{d.calibration}, compile.Budget(in, d.minCosine)
	}
	return p
}

// calibrate records what the network sees, if its precision is calibrated, in a directory that done removes.
func (d *design) calibrate(ctx context.Context, r *Runner) (done func(), err error) {
	_, in := d.network()
	if in == "" || !precision.Calibrates(in) {
		return func() {}, nil
	}
	if d.calibration, err = os.MkdirTemp("", "spark-sim-"); err != nil {
		return nil, err
	}
	done = func() { os.RemoveAll(d.calibration) }
	if err := d.record(ctx, r); err != nil {
		done()
		return nil, fmt.Errorf("calibration in %s: %w", in, err)
	}
	return done, nil
}

// record runs loops of the built-in families with the network in fp16 and writes what it sees.
func (d *design) record(ctx context.Context, r *Runner) error {
	half := *d
	half.recording, half.warn, half.knots = true, nil, 0
	if d.view != nil { // drawn, also where the batch sees a recording
		v := *d.view
		v.film, half.view = nil, &v
	}
	if d.models != nil {
		m := *d.models
		m.precision, half.models = precision.FP16, &m
	} else {
		n := *d.policy
		n.precision, half.policy = precision.FP16, &n
	}
	b, err := half.open(ctx, r)
	if err != nil {
		return err
	}
	defer b.session.Close()
	b.seed = calibrationSeed
	families := d.tier.Families()
	for i := range b.size {
		f := &families[i%len(families)]
		s, err := f.Draw(calibrationSeed, i)
		if err != nil {
			return err
		}
		s.Values[paramIndex["duration"]] = Step * (1 + (calibrationSets-1)*calibrationEvery)
		b.list, b.numbers = append(b.list, s), append(b.numbers, uint64(i))
	}
	g, _ := d.network()
	var states map[string][]byte
	step := 0
	b.record = func(b *batch) error {
		if k := step - 1; k >= 0 && k%calibrationEvery == 0 {
			if err := b.write(g, states, filepath.Join(d.calibration, fmt.Sprintf("step%04d.npz", k))); err != nil {
				return err
			}
		}
		step++
		if states, err = b.states(g); err != nil {
			return err
		}
		return ctx.Err()
	}
	b.tell = func(int, int) {}
	_, err = b.run(ctx, nil)
	return err
}

// states are what a network will read of its states in the next step, by name.
func (b *batch) states(g *ir.Graph) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, k := range b.learned() {
		i := slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == k.Input })
		data, err := b.session.State(k.Input)
		if err != nil {
			return nil, err
		}
		all[k.Input] = data[:g.Inputs[i].Type.Bytes()]
	}
	return all, nil
}

// write writes the inputs that a network had in the last step.
func (b *batch) write(g *ir.Graph, states map[string][]byte, path string) error {
	arrays := map[string]*npy.Array{}
	for _, v := range g.Inputs {
		data := states[v.Name]
		if data == nil {
			data = b.session.Output(recordedPrefix + v.Name)
		}
		if len(data) != v.Type.Bytes() {
			return fmt.Errorf("input %s of the network has %d bytes, and %d were recorded", v.Name, v.Type.Bytes(), len(data))
		}
		arrays[v.Name] = &npy.Array{DType: v.Type.DType.String(), Shape: v.Type.Shape, Data: slices.Clone(data)}
	}
	return npy.WriteZip(path, arrays)
}

// sees reports whether an output of the first half of a step is an input of the network.
func (d *design) sees(output string) bool {
	g, _ := d.network()
	return g != nil && slices.ContainsFunc(g.Inputs, func(in *ir.Value) bool { return in.Name == output })
}
