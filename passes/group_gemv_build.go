package passes

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// buildDepth makes one SegmentedMatVec of the units of a depth whose inputs can lie in one vector without a copy, and
// one for each other input.
func (s *gemvGrouper) buildDepth(units []*layer) error {
	bases, groups := s.inputsOf(units)
	var joined []*layer
	var parts []*ir.Value
	for i, base := range bases {
		if len(bases) > 1 && (base.Def == nil || s.placed[base]) {
			if err := s.build(groups[i], []*ir.Value{base}); err != nil {
				return err
			}
			continue
		}
		at := 0
		for _, p := range parts {
			at += p.Type.Numel()
		}
		for _, u := range groups[i] {
			u.offset += at
		}
		joined, parts = append(joined, groups[i]...), append(parts, base)
	}
	if len(joined) == 0 {
		return nil
	}
	if len(parts) > 1 {
		for _, p := range parts {
			s.placed[p] = true
		}
	}
	return s.build(joined, parts)
}

// inputsOf groups units by the value whose elements they read, in order of first use.
func (s *gemvGrouper) inputsOf(units []*layer) ([]*ir.Value, [][]*layer) {
	slices.SortStableFunc(units, func(a, b *layer) int { return s.rank(a) - s.rank(b) })
	var bases []*ir.Value
	var groups [][]*layer
	for _, u := range units {
		base, offset := viewRange(resolve(s.to, u.x))
		u.offset = offset
		k := slices.Index(bases, base)
		if k < 0 {
			k = len(bases)
			bases, groups = append(bases, base), append(groups, nil)
		}
		groups[k] = append(groups[k], u)
	}
	return bases, groups
}

// rank orders rows as a Concat that reads them wants them; others come first, as in the graph.
func (s *gemvGrouper) rank(u *layer) int {
	if u.out != nil && s.order[u.out] > 0 {
		return len(s.pos) + s.order[u.out]
	}
	if u.node == nil {
		return len(s.pos)
	}
	return s.pos[u.node]
}

// viewRange follows views from v to their base, and returns the offset of v's first element in it.
func viewRange(v *ir.Value) (base *ir.Value, offset int) {
	for v.Def != nil && v.Def.IsView() {
		if v.Def.Op.Name == "Slice" {
			o, _ := v.Def.SliceOffset()
			offset += o
		}
		v = v.Def.Inputs[0]
	}
	return v, offset
}

// build adds the SegmentedMatVec of units over the concatenation of parts.
func (s *gemvGrouper) build(units []*layer, parts []*ir.Value) error {
	slices.SortStableFunc(units, func(a, b *layer) int { return s.rank(a) - s.rank(b) })
	b := builder{g: s.g, name: unitName(units), made: s.made}
	for _, u := range units {
		b.from = ir.JoinOrigins(b.from, u.from)
	}
	x := b.vector(parts)
	y := b.matVec(x, units)
	z := b.activate(y, units)
	at := 0
	for _, u := range units {
		n := len(u.rows)
		part := z
		if n != z.Type.Numel() {
			part = b.add("Slice", ir.Attrs{"starts": []int{at}, "sizes": []int{n}}, z)
		}
		at += n
		if u.feeds != nil {
			u.feeds.x = part
			continue
		}
		s.to[u.out] = b.add("Reshape", ir.Attrs{"shape": slices.Clone(u.out.Type.Shape)}, part)
	}
	return b.err
}

func unitName(units []*layer) string {
	for _, u := range units {
		if u.node != nil {
			return u.node.Name
		}
	}
	return "pass"
}

// builder appends nodes and remembers the first error.
type builder struct {
	g    *ir.Graph
	name string
	from []ir.Origin // of what computes
	made *constPool
	err  error
}

// constant returns the constant that was made of an equal tensor before, if any: steps of an unrolled recurrence have
// the same weights.
func (b *builder) constant(t *ir.Tensor) *ir.Value {
	return b.made.constant(t, func() *ir.Value { return b.g.Constant(b.name, t) })
}

func (b *builder) add(op string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	if b.err != nil {
		return &ir.Value{}
	}
	n, err := b.g.Add(op, b.name, attrs, inputs...)
	if err != nil {
		b.err = fmt.Errorf("node %q: %w", b.name, err)
		return &ir.Value{}
	}
	if !n.Moves() {
		n.From = b.from
	}
	return n.Outputs[0]
}

func (b *builder) vector(parts []*ir.Value) *ir.Value {
	flat := make([]*ir.Value, len(parts))
	for i, p := range parts {
		if flat[i] = p; p.Type.Rank() != 1 {
			flat[i] = b.add("Reshape", ir.Attrs{"shape": []int{p.Type.Numel()}}, p)
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return b.add("Concat", ir.Attrs{"axis": 0}, flat...)
}

func (b *builder) matVec(x *ir.Value, units []*layer) *ir.Value {
	rows, widest, hasB := 0, 0, false
	for _, u := range units {
		rows += len(u.rows)
		hasB = hasB || u.hasB
		for _, r := range u.rows {
			widest = max(widest, len(r.w))
			hasB = hasB || r.bias != 0
		}
	}
	bias, offset, length := make([]float64, rows), make([]int64, rows), make([]int64, rows)
	j := 0
	for _, u := range units {
		for _, r := range u.rows {
			bias[j], offset[j], length[j] = r.bias, int64(u.offset+r.offset), int64(len(r.w))
			j++
		}
	}
	var bv *ir.Value
	if hasB {
		bv = b.constant(ir.FromFloats(ir.T(ir.Float32, rows), bias).Compact())
	}
	return b.add("SegmentedMatVec", nil, x,
		b.constant(packRows(units, rows, widest)), bv,
		b.constant(ir.FromInts(ir.T(ir.Int32, rows), offset).Compact()),
		b.constant(ir.FromInts(ir.T(ir.Int32, rows), length).Compact()))
}

// packRows stacks the weights of rows, padding shorter ones with zeros.
func packRows(units []*layer, rows, widest int) *ir.Tensor {
	t := ir.T(ir.Float32, rows, widest)
	if x, ok := oneWeight(units, widest); ok {
		return ir.Splat(t, float64(x))
	}
	data := make([]byte, t.Bytes())
	j := 0
	for _, u := range units {
		for _, r := range u.rows {
			for k, x := range r.w {
				binary.LittleEndian.PutUint32(data[4*(j*widest+k):], math.Float32bits(x))
			}
			j++
		}
	}
	return &ir.Tensor{Type: t, Data: data}
}

// oneWeight returns the number that all weights share, if no row needs padding.
func oneWeight(units []*layer, widest int) (float32, bool) {
	first := units[0].rows[0].w[0]
	for _, u := range units {
		for j, r := range u.rows {
			if len(r.w) != widest {
				return 0, false
			}
			if j > 0 && &r.w[0] == &u.rows[j-1].w[0] {
				continue
			}
			for _, x := range r.w {
				if math.Float32bits(x) != math.Float32bits(first) {
					return 0, false
				}
			}
		}
	}
	return first, true
}

// activate applies each unit's activation to its rows: one for all, or a selection by constant masks.
func (b *builder) activate(y *ir.Value, units []*layer) *ir.Value {
	var keys []string
	first := map[string]*layer{}
	for _, u := range units {
		k := actKey(u.act)
		if first[k] == nil {
			first[k] = u
			keys = append(keys, k)
		}
	}
	if len(keys) == 1 {
		return b.applyActivation(y, units[0])
	}
	z := y
	for _, k := range keys {
		if k == "" {
			continue
		}
		var mask []int64
		for _, u := range units {
			in := int64(0)
			if actKey(u.act) == k {
				in = 1
			}
			for range u.rows {
				mask = append(mask, in)
			}
		}
		m := b.g.Constant(b.name, ir.FromInts(ir.T(ir.Bool, len(mask)), mask))
		z = b.add("Where", nil, m, b.applyActivation(y, first[k]), z)
	}
	return z
}

// actKey distinguishes activations.
func actKey(act []*ir.Node) string {
	var k strings.Builder
	for _, n := range act {
		fmt.Fprintf(&k, "%s%s(", n.Op.Name, n.Attrs.Key())
		for _, v := range n.Inputs {
			if c, ok := scalarOf(v); ok {
				fmt.Fprintf(&k, "%v:%x,", v.Type.DType, c)
			} else {
				k.WriteString("x,")
			}
		}
		k.WriteString(")")
	}
	return k.String()
}

// applyActivation applies the unit's activation to y.
func (b *builder) applyActivation(y *ir.Value, u *layer) *ir.Value {
	for _, n := range u.act {
		inputs := make([]*ir.Value, len(n.Inputs))
		for i, v := range n.Inputs {
			if inputs[i] = y; v.IsConst() {
				inputs[i] = b.g.Constant(b.name, rankless(v.Const))
			}
		}
		y = b.add(n.Op.Name, n.Attrs, inputs...)
	}
	return y
}

// rankless is a constant of one number as a scalar.
func rankless(t *ir.Tensor) *ir.Tensor {
	if t.DType.IsFloat() {
		return ir.ScalarFloat(t.DType, t.FloatAt(0))
	}
	return ir.ScalarInt(t.DType, t.IntAt(0))
}

// joinSlices merges operands of a flat Concat that are adjacent in one value.
func joinSlices(s *sweep, n *ir.Node) {
	if !n.IsFlatConcat() {
		return
	}
	axis := n.Attrs.Int("axis", 0)
	var parts []*ir.Value
	for i := 0; i < len(n.Inputs); {
		base, from := viewRange(n.Inputs[i])
		size, along, j := n.Inputs[i].Type.Numel(), n.Inputs[i].Type.Shape[axis], i+1
		for ; j < len(n.Inputs); j++ {
			if b, o := viewRange(n.Inputs[j]); b != base || o != from+size || base.IsConst() {
				break
			}
			size += n.Inputs[j].Type.Numel()
			along += n.Inputs[j].Type.Shape[axis]
		}
		part := n.Inputs[i]
		if j > i+1 {
			shape := slices.Clone(part.Type.Shape)
			shape[axis] = along
			part = s.add("Reshape", n.Name, ir.Attrs{"shape": shape}, flatRange(s, n.Name, base, from, size))
		}
		parts = append(parts, part)
		i = j
	}
	switch {
	case len(parts) == 1:
		s.replace(n.Outputs[0], parts[0])
	case len(parts) < len(n.Inputs):
		s.replace(n.Outputs[0], s.add("Concat", n.Name, n.Attrs, parts...))
	}
}

// flatRange is the vector of size elements of base from one on.
func flatRange(s *sweep, name string, base *ir.Value, from, size int) *ir.Value {
	v := base
	if v.Type.Rank() != 1 {
		v = s.add("Reshape", name, ir.Attrs{"shape": []int{base.Type.Numel()}}, v)
	}
	if size == base.Type.Numel() {
		return v
	}
	return s.add("Slice", name, ir.Attrs{"starts": []int{from}, "sizes": []int{size}}, v)
}
