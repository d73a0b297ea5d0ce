package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var recogniseLayerNorm = Pass{
	Name:    "recognise-layernorm",
	Summary: "(x-mean)/√(var+ε)·scale+bias spelled out becomes LayerNorm, x/√(mean x²+ε)·scale RMSNorm",
	After: map[string]string{
		"simplify": "matching sees through no casts or expansions",
		"cse":      "the two x-mean that exporters write must be one value",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			switch n.Op.Name {
			case "Div":
				if sqrt := defOp(n.Inputs[1], "Sqrt"); sqrt != nil {
					normalise(s, n, n.Inputs[0], sqrt.Inputs[0])
				}
			case "Mul":
				if !mirrored(n, func(d, r *ir.Value) bool {
					v := underReciprocalRoot(r)
					return v != nil && normalise(s, n, d, v)
				}) {
					normScale(s, n)
				}
			case "Add":
				normBias(s, n)
			}
		})
	},
}

// underReciprocalRoot returns v if r = 1/√v, else nil.
func underReciprocalRoot(r *ir.Value) *ir.Value {
	n := defOp(r, "Reciprocal", "Div", "Pow", "Sqrt")
	if n == nil {
		return nil
	}
	switch n.Op.Name {
	case "Reciprocal":
		if sqrt := defOp(n.Inputs[0], "Sqrt"); sqrt != nil {
			return sqrt.Inputs[0]
		}
	case "Sqrt":
		if rec := defOp(n.Inputs[0], "Reciprocal"); rec != nil {
			return rec.Inputs[0]
		}
	case "Div":
		if one, ok := scalarOf(n.Inputs[0]); ok && one == 1 {
			if sqrt := defOp(n.Inputs[1], "Sqrt"); sqrt != nil {
				return sqrt.Inputs[0]
			}
		}
	case "Pow":
		if p, ok := scalarOf(n.Inputs[1]); ok && p == -0.5 {
			return n.Inputs[0]
		}
	}
	return nil
}

// normalise replaces n = d/√v where v = mean(d²)+ε: by LayerNorm of x if d = x - mean(x), else by RMSNorm of d.
func normalise(s *sweep, n *ir.Node, d, v *ir.Value) bool {
	add := defOp(v, "Add")
	if add == nil || !d.Type.Equal(n.Outputs[0].Type) || !d.Type.DType.IsFloat() {
		return false
	}
	var epsilon float64
	var axis int
	if !mirrored(add, func(e, mean *ir.Value) bool {
		eps, ok := scalarOf(e)
		m := defOp(mean, "ReduceMean")
		if !ok || m == nil || !isSquare(m.Inputs[0], d) {
			return false
		}
		epsilon = eps
		axis, ok = keptTrailingAxes(m)
		return ok
	}) {
		return false
	}
	op, x := "RMSNorm", d
	if sub := defOp(d, "Sub"); sub != nil {
		m := defOp(sub.Inputs[1], "ReduceMean")
		if m != nil && m.Inputs[0] == sub.Inputs[0] && sub.Inputs[0].Type.Equal(d.Type) {
			if a, ok := keptTrailingAxes(m); ok && a == axis {
				op, x = "LayerNorm", sub.Inputs[0]
			}
		}
	}
	s.replace(n.Outputs[0], s.add(op, n.Name, ir.Attrs{"axis": axis, "epsilon": epsilon}, x))
	return true
}

// keptTrailingAxes is the first axis of a reduction over the last dimensions whose result broadcasts back.
func keptTrailingAxes(n *ir.Node) (int, bool) {
	axis, ok := trailingAxes(n.Attrs.Ints("axes"), n.Inputs[0].Type.Rank())
	return axis, ok && n.Attrs.Bool("keepdims")
}

// isSquare reports whether v = d².
func isSquare(v, d *ir.Value) bool {
	n := defOp(v, "Mul", "Pow")
	if n == nil || n.Inputs[0] != d {
		return false
	}
	if n.Op.Name == "Mul" {
		return n.Inputs[1] == d
	}
	two, ok := scalarOf(n.Inputs[1])
	return ok && two == 2
}

// normScale takes a constant factor over the normalised dimensions into the norm's scale.
func normScale(s *sweep, n *ir.Node) {
	mirrored(n, func(x, scale *ir.Value) bool {
		norm := defOp(x, "LayerNorm", "RMSNorm")
		if norm == nil || !s.only(x) || norm.In(1) != nil || norm.In(2) != nil || !fitsNorm(norm, scale) {
			return false
		}
		s.replace(n.Outputs[0], s.add(norm.Op.Name, n.Name, norm.Attrs, norm.Inputs[0], scale))
		return true
	})
}

// normBias takes a constant term over the normalised dimensions into the norm's bias.
func normBias(s *sweep, n *ir.Node) {
	mirrored(n, func(x, bias *ir.Value) bool {
		norm := defOp(x, "LayerNorm")
		if norm == nil || !s.only(x) || norm.In(2) != nil || !fitsNorm(norm, bias) {
			return false
		}
		s.replace(n.Outputs[0], s.add("LayerNorm", n.Name, norm.Attrs, norm.Inputs[0], norm.In(1), bias))
		return true
	})
}

// fitsNorm reports whether c is a constant of the norm's type that varies along normalised dimensions only.
func fitsNorm(norm *ir.Node, c *ir.Value) bool {
	x := norm.Inputs[0].Type
	if !c.IsConst() || c.Type.DType != x.DType {
		return false
	}
	inner := x.Shape[norm.Attrs.Int("axis", 0):]
	return c.Type.Rank() <= len(inner) && slices.Equal(broadcastShape(inner, c.Type.Shape), inner)
}
