package scenario

import (
	"encoding/binary"
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// builder writes the step of a batch of loops as IR: a value holds one number a loop.
type builder struct {
	x     *ir.Expansion
	loops int
	float ir.DType // of all numbers: f32, and f64 where tests compare with plain Go
}

// num is a number of every loop, or one constant for all of them; cond is a condition of every loop.
type (
	num  struct{ v *ir.Value }
	cond struct{ v *ir.Value }
)

func (b *builder) add(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	return b.x.Add(op, attrs, in...)
}

// c is a constant.
func (b *builder) c(f float64) num {
	return num{b.x.Constant(ir.FromFloats(ir.T(b.float), []float64{f}))}
}

// all is a constant as a value of every loop.
func (b *builder) all(f float64) num {
	return num{b.add("Expand", ir.Attrs{"shape": []int{b.loops}}, b.c(f).v)}
}

func (b *builder) shape(v *ir.Value, dims ...int) *ir.Value {
	return b.add("Reshape", ir.Attrs{"shape": dims}, v)
}

// row is a row of a [rows, loops] table.
func (b *builder) row(table *ir.Value, i int) num {
	part := b.add("Slice", ir.Attrs{"starts": []int{i, 0}, "sizes": []int{1, b.loops}, "steps": []int{1, 1}}, table)
	return num{b.add("Reshape", ir.Attrs{"shape": []int{b.loops}}, part)}
}

// rows is the table of [rows, loops] that rows are.
func (b *builder) rows(list ...num) *ir.Value {
	var in []*ir.Value
	for _, x := range list {
		in = append(in, b.add("Reshape", ir.Attrs{"shape": []int{1, b.loops}}, x.v))
	}
	return b.add("Concat", ir.Attrs{"axis": 0}, in...)
}

// transposed is a table with rows as columns.
func (b *builder) transposed(table *ir.Value) *ir.Value {
	return b.add("Transpose", ir.Attrs{"perm": []int{1, 0}}, table)
}

// lookup is an element of every loop's column of a table, [rows, loops] once all dimensions but the last are one. Its row
// is a whole number.
func (b *builder) lookup(table *ir.Value, row num) num {
	lanes := make([]int32, b.loops)
	for i := range lanes {
		lanes[i] = int32(i)
	}
	size := b.x.Constant(&ir.Tensor{Type: ir.T(ir.Int32), Data: binary.LittleEndian.AppendUint32(nil, uint32(b.loops))})
	lane := b.x.Constant(&ir.Tensor{Type: ir.T(ir.Int32, b.loops), Data: runtime.Bytes(lanes)})
	at := b.add("Add", nil, b.add("Mul", nil, b.add("Cast", ir.Attrs{"to": ir.Int32}, row.v), size), lane)
	return num{b.add("Gather", ir.Attrs{"axis": 0}, b.shape(table, table.Type.Numel()), at)}
}

// entry is a number of every loop's part of a [loops, rows, columns] table. Its row is a whole number.
func (b *builder) entry(table *ir.Value, row num, column int) num {
	columns := table.Type.Shape[2]
	lanes := make([]int32, b.loops)
	for i := range lanes {
		lanes[i] = int32(i*table.Type.Shape[1]*columns + column)
	}
	width := b.x.Constant(&ir.Tensor{Type: ir.T(ir.Int32), Data: binary.LittleEndian.AppendUint32(nil, uint32(columns))})
	lane := b.x.Constant(&ir.Tensor{Type: ir.T(ir.Int32, b.loops), Data: runtime.Bytes(lanes)})
	at := b.add("Add", nil, b.add("Mul", nil, b.add("Cast", ir.Attrs{"to": ir.Int32}, row.v), width), lane)
	return num{b.add("Gather", ir.Attrs{"axis": 0}, b.shape(table, table.Type.Numel()), at)}
}

// write replaces a row of every loop in a [rows, len(list), loops] table.
func (b *builder) write(table *ir.Value, row num, list ...num) *ir.Value {
	shape := table.Type.Shape
	width := shape[1] * b.loops
	at := b.shape(b.add("Cast", ir.Attrs{"to": ir.Int32}, row.v), 1, 1, b.loops)
	at = b.shape(b.add("Expand", ir.Attrs{"shape": []int{1, shape[1], b.loops}}, at), 1, width)
	new := b.shape(b.rows(list...), 1, width)
	return b.shape(b.add("ScatterElements", ir.Attrs{"axis": 0}, b.shape(table, shape[0], width), at, new), shape...)
}

func (b *builder) two(op string, list []num) num {
	y := list[0]
	for _, x := range list[1:] {
		y = num{b.add(op, nil, y.v, x.v)}
	}
	return y
}

func (b *builder) sum(list ...num) num { return b.two("Add", list) }
func (b *builder) mul(list ...num) num { return b.two("Mul", list) }
func (b *builder) min(list ...num) num { return b.two("Min", list) }
func (b *builder) max(list ...num) num { return b.two("Max", list) }
func (b *builder) sub(x, y num) num    { return num{b.add("Sub", nil, x.v, y.v)} }
func (b *builder) div(x, y num) num    { return num{b.add("Div", nil, x.v, y.v)} }
func (b *builder) one(op string, x num) num {
	return num{b.add(op, nil, x.v)}
}
func (b *builder) clip(x, low, high num) num { return b.min(b.max(x, low), high) }

// lerp is x + share·(y - x).
func (b *builder) lerp(x, y, share num) num { return b.sum(x, b.mul(share, b.sub(y, x))) }

// ramp grows from 0 at from to 1 at to, smoothly: 3u² - 2u³.
func (b *builder) ramp(at, from, length num) num {
	u := b.clip(b.div(b.sub(at, from), b.max(length, b.c(1e-3))), b.c(0), b.c(1))
	return b.mul(u, u, b.sub(b.c(3), b.mul(b.c(2), u)))
}

func (b *builder) less(x, y num) cond { return cond{b.add("Less", nil, x.v, y.v)} }
func (b *builder) and(x, y cond) cond { return cond{b.add("And", nil, x.v, y.v)} }
func (b *builder) or(x, y cond) cond  { return cond{b.add("Or", nil, x.v, y.v)} }
func (b *builder) not(x cond) cond    { return cond{b.add("Not", nil, x.v)} }
func (b *builder) where(c cond, x, y num) num {
	return num{b.add("Where", nil, c.v, x.v, y.v)}
}

// finite says whether x is neither infinite nor NaN.
func (b *builder) finite(x num) cond { return b.less(b.one("Abs", x), b.c(1e30)) }

// nameOutput gives an output its name. A value that has one already, or is no result, is copied.
func nameOutput(b *builder, g *ir.Graph, v *ir.Value, as string) error {
	if v.Def == nil || v.IsConst() || containsValue(g.Outputs, v) {
		v = b.add("Reshape", ir.Attrs{"shape": append([]int{}, v.Type.Shape...)}, v)
	}
	if v.Def == nil {
		return fmt.Errorf("output %q is no result", as)
	}
	v.Name = as
	g.Outputs = append(g.Outputs, v)
	return nil
}

func containsValue(list []*ir.Value, v *ir.Value) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}
