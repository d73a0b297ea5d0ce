package passes

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "promote-f32",
	Summary: "promote f16 and bf16 values to f32; casts keep the file's types at inputs and outputs of the graph, unless these are to be f32",
	Run:     promoteF32,
})

// PromoteF32Options make inputs and outputs of the graph f32 where the file has f16 or bf16.
type PromoteF32Options struct{ F32Inputs, F32Outputs bool }

// isHalf reports whether d is a float that promote-f32 makes f32. Eight-bit and smaller floats stay: conversions to
// them are what a quantised file means, not how its author saved memory.
func isHalf(d ir.DType) bool { return d == ir.Float16 || d == ir.BFloat16 }

// promoteF32 rebuilds the graph node by node with f32 in place of narrower floats. Constants keep their value.
func promoteF32(ctx *Context, g *ir.Graph) error {
	w := &promoter{g: g, to: map[*ir.Value]*ir.Value{}, bits: map[ir.DType][]uint32{}}
	old := g.Nodes
	g.Nodes = nil
	ctx.quantisedFile = ctx.quantisedFile || slices.ContainsFunc(old, func(n *ir.Node) bool {
		return n.Op.Name == "DequantizeLinear" && n.Inputs[0].IsConst()
	})
	for i, v := range g.Inputs {
		if !isHalf(v.Type.DType) {
			continue
		}
		if ctx.F32Inputs {
			w.to[v] = &ir.Value{Name: v.Name, Type: ir.T(ir.Float32, v.Type.Shape...), Delay: v.Delay, Sample: v.Sample}
			g.Inputs[i] = w.to[v]
			continue
		}
		cast, err := g.Add("Cast", v.Name, ir.Attrs{"to": ir.Float32}, v)
		if err != nil {
			return err
		}
		w.to[v] = cast.Outputs[0]
	}
	for _, n := range old {
		if err := w.node(n); err != nil {
			return fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, err)
		}
	}
	for i, v := range g.Outputs {
		wide := w.value(v)
		if isHalf(v.Type.DType) && !ctx.F32Outputs {
			cast, err := g.Add("Cast", v.Name, ir.Attrs{"to": v.Type.DType}, wide)
			if err != nil {
				return err
			}
			wide = cast.Outputs[0]
		}
		if wide != v && wide.Name != v.Name {
			v.Name, wide.Name = g.Fresh(v.Name), v.Name
		}
		g.Outputs[i] = wide
	}
	return nil
}

type promoter struct {
	g    *ir.Graph
	to   map[*ir.Value]*ir.Value
	bits map[ir.DType][]uint32 // the f32 of every 16-bit pattern
}

// value is v promoted to f32.
func (w *promoter) value(v *ir.Value) *ir.Value {
	if v == nil || w.to[v] != nil {
		return w.to[v]
	}
	if v.IsConst() && isHalf(v.Type.DType) {
		w.to[v] = w.g.Constant(v.Name, w.tensor(v.Const))
		return w.to[v]
	}
	return v
}

// tensor converts a constant. A table of all 16-bit patterns makes the millions of weights of a model cheap.
func (w *promoter) tensor(t *ir.Tensor) *ir.Tensor {
	wide := ir.Type{DType: ir.Float32, Shape: t.Shape}
	if t.Splat {
		return ir.Splat(wide, t.FloatAt(0))
	}
	bits := w.bits[t.DType]
	if bits == nil {
		bits = make([]uint32, 1<<16)
		for i := range bits {
			bits[i] = math.Float32bits(float32(ir.DecodeFloat(t.DType, uint64(i))))
		}
		w.bits[t.DType] = bits
	}
	data := make([]byte, wide.Bytes())
	for i := range t.Numel() {
		binary.LittleEndian.PutUint32(data[4*i:], bits[binary.LittleEndian.Uint16(t.Data[2*i:])])
	}
	return &ir.Tensor{Type: wide, Data: data}
}

// node recreates n with promoted operands; the op's rule infers the new output types.
func (w *promoter) node(n *ir.Node) error {
	attrs := n.Attrs
	if to := attrs.DType("to"); isHalf(to) && n.Op.Name != "BitCast" {
		attrs = attrs.Clone()
		attrs["to"] = ir.Float32
	}
	inputs := make([]*ir.Value, len(n.Inputs))
	for i, v := range n.Inputs {
		inputs[i] = w.value(v)
		if n.Op.Name == "BitCast" && isHalf(v.Type.DType) { // the bits are those of the narrow type
			cast, err := w.g.Add("Cast", n.Name, ir.Attrs{"to": v.Type.DType}, inputs[i])
			if err != nil {
				return err
			}
			inputs[i] = cast.Outputs[0]
		}
	}
	m, err := w.g.Add(n.Op.Name, n.Name, attrs, inputs...)
	if err != nil {
		return err
	}
	m.From = n.From
	for i, v := range n.Outputs {
		wide := m.Outputs[i]
		if isHalf(wide.Type.DType) { // a BitCast to a narrow type
			cast, err := w.g.Add("Cast", n.Name, ir.Attrs{"to": ir.Float32}, wide)
			if err != nil {
				return err
			}
			wide = cast.Outputs[0]
		}
		w.to[v] = wide
	}
	return nil
}
