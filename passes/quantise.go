package passes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Quantisation is what a calibration chose, as plain data. Values and regions are named as in the graph that enters the
// pass.
type Quantisation struct {
	// Values holds the values that are stored in less than 16 bits: numbers and their scale. Views share their
	// operand's storage. Blocks lie along the last axis, a multiple of their size; every reader of such a value is a
	// layer with blocks of weights that multiplies it unmoved.
	Values map[string]ir.Storage
	// Layers holds the regions whose anchor is changed, by the name of their first output.
	Layers map[string]Layer
}

// Layer says how one region multiplies.
type Layer struct {
	Weights *ir.Tensor // narrow numbers, of the shape of the region's weights; nil: 16 bits
	Split   bool       `json:",omitzero"` // Weights are f16, each the sum of two numbers of e4m3 that the anchor multiplies one after the other
	Scales  []float64  // of Weights, one an output channel, members one after another
	Blocks  *ir.Tensor // scales of blocks of Weights along the input channels; nil: there are none
	Across  bool       // Blocks lie along the output channels
	Read    ir.Storage `json:",omitzero"` // to whose numbers and scale activations stored in 16 bits are rounded when read; its zero value: not
	Bias    []float64  // added to each output channel, members one after another; nil: nothing
}

// withFile adds the layers whose weights the file has quantised and that the plan leaves alone; half is how
// activations of 16 bits are stored.
func (q *Quantisation) withFile(g *ir.Graph, half ir.DType) *Quantisation {
	out := &Quantisation{Values: q.Values, Layers: maps.Clone(q.Layers)}
	if out.Layers == nil {
		out.Layers = map[string]Layer{}
	}
	for _, s := range Sites(g) {
		if out.Layers[s.Name()].Weights != nil {
			continue
		}
		if l, ok := fromFile(&s, half); ok {
			l.Bias, l.Read = out.Layers[s.Name()].Bias, out.Layers[s.Name()].Read
			out.Layers[s.Name()] = l
		}
	}
	return out
}

// storer fills in how one region's operands and results are stored.
type storer struct {
	g      *ir.Graph
	r      *ir.Region // becomes the new region's
	inputs []*ir.Value
	scales []extra // of operands
}

// extra holds the tensors of scales of an operand; nil where it has none.
type extra struct{ channels, blocks *ir.Value }

// node makes the region's node.
func (q *storer) node(name string) (*ir.Node, error) {
	inputs := slices.Clone(q.inputs)
	for _, e := range q.scales {
		for _, v := range []*ir.Value{e.channels, e.blocks} {
			if v != nil {
				inputs = append(inputs, v)
			}
		}
	}
	return q.g.RegionNode(name, q.r, inputs...)
}

// layer applies the plan to the region's weights and activations.
func (q *storer) layer(l Layer, n *ir.Node) error {
	s, ok := SiteOf(n)
	if l.Weights != nil {
		if !ok {
			return fmt.Errorf("its weights cannot be quantised")
		}
		if err := q.weights(l, n, &s); err != nil {
			return err
		}
	}
	if ok && q.r.Operands[s.X].DType.Bits() == 16 {
		q.r.Operands[s.X].Read = l.Read
	}
	if l.Bias != nil {
		return q.shift(l.Bias)
	}
	return nil
}

// weights stores the plan's numbers in place of the region's weights.
func (q *storer) weights(l Layer, n *ir.Node, s *Site) error {
	i := s.Weight
	if !slices.Equal(l.Weights.Shape, n.Inputs[i].Type.Shape) {
		return fmt.Errorf("quantised weights %v for %v", l.Weights.Type, n.Inputs[i].Type)
	}
	name, o := n.Inputs[i].Name, &q.r.Operands[i]
	q.inputs[i] = q.g.Constant(name, l.Weights)
	o.Storage = ir.Storage{DType: l.Weights.DType, PerChannel: true, ChannelAxis: s.Geometry.OutputAxis()}
	if l.Split {
		o.Read = ir.Storage{DType: ir.Float8E4M3FN, SplitTerms: 2}
	}
	shape := []int{s.N}
	if q.r.Members > 0 {
		shape = []int{q.r.Members, s.N}
	}
	q.scales[i].channels = q.g.Constant(name, ir.FromFloats(ir.Type{DType: ir.Float64, Shape: shape}, l.Scales))
	if l.Blocks != nil {
		o.Block, o.BlockAxis = ir.BlockSize, s.Geometry.InputAxis()
		if l.Across {
			o.BlockAxis = s.Geometry.OutputAxis()
		}
		q.scales[i].blocks = q.g.Constant(name, l.Blocks)
	}
	return nil
}

// shift adds a correction to each output channel of the anchor, members one after another.
func (q *storer) shift(by []float64) error {
	a, members := q.r.Anchor(), q.r.Members > 0
	shape := a.ChannelShape(len(by) / q.r.Count())
	if members {
		shape = slices.Concat([]int{q.r.Members}, shape)
	}
	n := &ir.Node{Name: a.Name, Region: q.r, Inputs: q.inputs}
	if err := (&offsetter{q.g, n}).add(a.Outputs[0], ir.FromFloats(ir.Type{DType: ir.Float32, Shape: shape}, by), members); err != nil {
		return err
	}
	q.scales = append(q.scales, make([]extra, len(n.Inputs)-len(q.inputs))...)
	q.inputs = n.Inputs
	return nil
}
