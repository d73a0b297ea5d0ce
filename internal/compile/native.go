package compile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// native evaluates regions of f32 by their kernels on the CPU device. It keeps the programs of the regions that it has seen last; one
// with other constants than at first has a program for one call.
type native struct {
	device hal.Device
	target *target.Target
	all    bool // every program is kept
	known  map[*ir.Region]*nativeRegion
	order  []*ir.Region // the known ones, oldest first
}

// nativeRegion is a region as a program of its own, or what computes the same bits in less time.
type nativeRegion struct {
	session *runtime.Session
	inputs  []*ir.Value
	names   []string       // of the program's input that is each operand; "" of constants and repeated operands
	windows []*blas.Window // by member
	from    int            // operand that the windows read
}

// Close frees what a program holds.
func (r *nativeRegion) Close() error {
	if r.session == nil {
		return nil
	}
	return r.session.Close()
}

// keepFew is enough programs for a single walk through a graph: those of one region's parts.
const keepFew = 4

func newNative(t *target.Target) (*native, error) {
	d, err := emu.Open(emu.Options{})
	return &native{device: d, target: t, known: map[*ir.Region]*nativeRegion{}}, err
}

// Close frees what the programs hold.
func (d *native) Close() (err error) {
	for _, r := range d.known {
		err = errors.Join(err, r.Close())
	}
	return errors.Join(err, d.device.Close())
}

// Evaluate implements calibrate.Evaluator.
func (d *native) Evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, pool *calibrate.BufferPool) (outs [][]*ir.Tensor, err error) {
	if n.IsFamily(ir.FamilyView) { // has no kernel
		return view(ctx, n, in)
	}
	r := d.known[n.Region]
	switch {
	case r == nil:
		if r, err = d.open(ctx, n); err != nil {
			return nil, err
		}
		if err := d.remember(n.Region, r); err != nil {
			return nil, err
		}
	case !slices.Equal(r.inputs, n.Inputs):
		if r, err = d.open(ctx, n); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
	}
	if r.windows != nil {
		return r.evaluate(ctx, n, in, pool)
	}
	return r.run(ctx, n, in, pool)
}

// run runs a region's program.
func (r *nativeRegion) run(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, pool *calibrate.BufferPool) (outs [][]*ir.Tensor, err error) {
	for at := range in {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i, name := range r.names {
			if name != "" {
				if err := bindHost(r.session, false, name, in[at][i].Data); err != nil {
					return nil, err
				}
			}
		}
		row := make([]*ir.Tensor, len(n.Outputs))
		for k, v := range n.Outputs {
			row[k] = pool.Tensor(v.Type)
			if err := bindHost(r.session, true, output(k), row[k].Data); err != nil {
				return nil, err
			}
		}
		if err := r.session.Run(context.WithoutCancel(ctx)); err != nil { // nothing goes on in bound memory
			return nil, err
		}
		outs = append(outs, row)
	}
	return outs, nil
}

// bindHost makes bytes an input or output of a session, where they lie.
func bindHost(s *runtime.Session, output bool, name string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	at, ok := s.Memory(output, name)
	if m, binds := at.Memory.(interface{ BindHost([]byte) error }); ok && binds {
		return m.BindHost(data)
	}
	return fmt.Errorf("no memory of %s that %d bytes can be bound to", name, len(data))
}

// view evaluates a region that only moves elements. Where they stay in order the outputs share the operand's memory.
func view(ctx context.Context, n *ir.Node, in [][]*ir.Tensor) (outs [][]*ir.Tensor, err error) {
	b := n.Region.Body
	if len(b.Outputs) != 1 || len(b.Nodes) != 1 || b.Nodes[0].Op.Name != "Reshape" {
		return calibrate.Reference{}.Evaluate(ctx, n, in, nil)
	}
	at := slices.Index(b.Inputs, b.Nodes[0].Inputs[0])
	for _, operands := range in {
		outs = append(outs, []*ir.Tensor{{Type: n.Outputs[0].Type, Data: operands[at].Data}})
	}
	return outs, nil
}

// remember keeps a region's program.
func (d *native) remember(n *ir.Region, r *nativeRegion) error {
	d.known[n], d.order = r, append(d.order, n)
	return d.Keep(d.all)
}

// Keep implements calibrate.Evaluator.
func (d *native) Keep(all bool) (err error) {
	for d.all = all; !all && len(d.order) > keepFew; d.order = d.order[1:] {
		err = errors.Join(err, d.known[d.order[0]].Close())
		delete(d.known, d.order[0])
	}
	return err
}

func output(k int) string { return fmt.Sprint("out", k) }

// open prepares a region.
func (d *native) open(ctx context.Context, n *ir.Node) (*nativeRegion, error) {
	if list, from := windowsOf(n); list != nil {
		return &nativeRegion{inputs: n.Inputs, windows: list, from: from}, nil
	}
	return d.program(ctx, n)
}

// program compiles a region and loads it.
func (d *native) program(ctx context.Context, n *ir.Node) (*nativeRegion, error) {
	g, r := ir.NewGraph(n.Name), &nativeRegion{inputs: n.Inputs, names: make([]string, len(n.Inputs))}
	inner := map[*ir.Value]*ir.Value{}
	var inputs []*ir.Value
	for i, v := range n.Inputs {
		switch {
		case inner[v] != nil:
		case v.IsConst():
			inner[v] = g.Constant("const", v.Const)
		default:
			r.names[i] = fmt.Sprint("in", i)
			inner[v] = g.AddInput(r.names[i], v.Type)
		}
		inputs = append(inputs, inner[v])
	}
	node, err := g.RegionNode(n.Name, n.Region.Clone(), inputs...)
	if err != nil {
		return nil, err
	}
	g.Nodes, g.Outputs = []*ir.Node{node}, node.Outputs
	for k, v := range node.Outputs {
		v.Name = output(k)
	}
	w := codegen.NewWeights()
	out, err := codegen.Generate(entries(g), d.target, families.New(nil), w)
	if err != nil {
		return nil, err
	}
	p := &runtime.Program{Variants: []runtime.Variant{out.Variant}, Weights: w.Bytes()}
	describe(p, g, 1, nil)
	r.session, err = runtime.Open(ctx, p, d.device, runtime.ModelOptions{Target: d.target.Name})
	return r, err
}
