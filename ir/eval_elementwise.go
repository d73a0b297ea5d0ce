package ir

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// strides of a dense row-major shape.
func strides(shape []int) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// broadcastStrides are the strides with which a value of the given shape is read at indices of shape to.
func broadcastStrides(shape, to []int) []int { return expandStrides(shape, strides(shape), to) }

// cursor walks the indices of a shape in row-major order and keeps an offset for each of several stride vectors.
type cursor struct {
	shape   []int
	strides [][]int
	index   []int
	at      []int
}

// newCursor stands at row-major position pos.
func newCursor(shape []int, pos int, strides ...[]int) *cursor {
	c := &cursor{shape: shape, strides: strides, index: make([]int, len(shape)), at: make([]int, len(strides))}
	for i := len(shape) - 1; i >= 0 && pos > 0; i-- {
		c.index[i] = pos % shape[i]
		pos /= shape[i]
		for k, s := range strides {
			c.at[k] += c.index[i] * s[i]
		}
	}
	return c
}

func (c *cursor) next() {
	for i := len(c.shape) - 1; i >= 0; i-- {
		c.index[i]++
		if c.index[i] < c.shape[i] {
			for k, s := range c.strides {
				c.at[k] += s[i]
			}
			return
		}
		c.index[i] = 0
		for k, s := range c.strides {
			c.at[k] -= s[i] * (c.shape[i] - 1)
		}
	}
}

// evalPointwise broadcasts the inputs and applies the row's function to every element.
func evalPointwise(n *Node, in []*Array) ([]*Array, error) {
	out := NewArray(n.Outputs[0].Type)
	inFloats := out.F != nil
	steps := make([][]int, len(in))
	for i, a := range in {
		inFloats = inFloats || a.DType.IsFloat()
		steps[i] = broadcastStrides(a.Shape, out.Shape)
	}
	if inFloats && n.Op.Scalar == nil || !inFloats && n.Op.ScalarInt == nil {
		return nil, fmt.Errorf("no meaning for %v", in[0].Type)
	}
	onlyFloats := out.F != nil && !slices.ContainsFunc(in, func(a *Array) bool { return a.F == nil })
	parallel.Ranges(out.Len(), 1<<12, func(lo, hi int) {
		if onlyFloats {
			eachRow(out.Shape, steps, lo, hi, func(p, count int, at, step []int) { floatRow(n, out.F[p:][:count], in, at, step) })
			return
		}
		x, xi := make([]float64, len(in)), make([]int64, len(in))
		eachRow(out.Shape, steps, lo, hi, func(p, count int, at, step []int) {
			for q := range count {
				if !inFloats {
					for i, a := range in {
						xi[i] = a.I[at[i]+q*step[i]]
					}
					out.I[p+q] = WrapInt(out.DType, n.Op.ScalarInt(n, xi))
					continue
				}
				for i, a := range in {
					if a.F != nil {
						x[i] = a.F[at[i]+q*step[i]]
					} else {
						x[i] = intToFloat(a.DType, a.I[at[i]+q*step[i]])
					}
				}
				if y := n.Op.Scalar(n, x); out.F != nil {
					out.F[p+q] = y
				} else {
					out.I[p+q] = floatToInt(out.DType, y)
				}
			}
		})
	})
	return []*Array{out}, nil
}

// floatRow evaluates one row of an op of floats.
func floatRow(n *Node, out []float64, in []*Array, at, step []int) {
	switch {
	case n.Op.One != nil:
		f, a := n.Op.One, in[0].F[at[0]:]
		for q := range out {
			out[q] = f(a[q*step[0]])
		}
	case n.Op.Two != nil:
		f, a, b := n.Op.Two, in[0].F[at[0]:], in[1].F[at[1]:]
		for q := range out {
			out[q] = f(a[q*step[0]], b[q*step[1]])
		}
	default:
		x := make([]float64, len(in))
		for q := range out {
			for i, a := range in {
				x[i] = a.F[at[i]+q*step[i]]
			}
			out[q] = n.Op.Scalar(n, x)
		}
	}
}

// eachRow calls f for the parts of the positions lo to hi that lie in one row of the last dimension: for each of
// several stride vectors, the offset of the first and the step to the next.
func eachRow(shape []int, strides [][]int, lo, hi int, f func(p, count int, at, step []int)) {
	length, rows, step := 1, shape, make([]int, len(strides))
	if k := len(shape) - 1; k >= 0 {
		length, rows = shape[k], shape[:k]
		for i, s := range strides {
			step[i] = s[k]
		}
	}
	if lo >= hi {
		return
	}
	c := newCursor(rows, lo/length, strides...)
	at := make([]int, len(strides))
	for p := lo; p < hi; {
		skip := p % length
		count := min(length-skip, hi-p)
		for i := range at {
			at[i] = c.at[i] + skip*step[i]
		}
		f(p, count, at, step)
		p += count
		c.next()
	}
}

// floatToInt truncates. Where the type cannot hold the result, 32 and 64 bits saturate as the hardware's conversion
// does; narrower types keep the low bits of the i32. NaN gives 0, or true.
func floatToInt(d DType, x float64) int64 {
	switch {
	case d == Bool:
		return choose[int64](x != 0, 1, 0)
	case d.Bits() < 32:
		return WrapInt(d, minifloat.Truncate(x, 32, true))
	case d == Uint32 || d == Uint64 && x < 0:
		return WrapInt(d, minifloat.Truncate(x, 64, true))
	}
	return minifloat.Truncate(x, d.Bits(), d.IsSigned())
}

func evalCast(n *Node, in []*Array) ([]*Array, error) {
	x, out := in[0], NewArray(n.Outputs[0].Type)
	to := out.DType
	saturate := n.Flag("saturate")
	direction := map[string]minifloat.Direction{"up": minifloat.Up, "down": minifloat.Down}[n.Attrs.String("round", "nearest")]
	narrow := func(v float64) float64 { return v } // f16 and wider are rounded by the evaluator
	switch {
	case to == Float8E8M0:
		narrow = func(v float64) float64 {
			return minifloat.DecodeE8M0(minifloat.EncodeE8M0(v, direction, saturate))
		}
	case to.IsFloat() && to.Bits() <= 8:
		f := to.Format()
		narrow = func(v float64) float64 { return f.Round(v, saturate) }
	}
	parallel.Ranges(out.Len(), 1<<14, func(lo, hi int) {
		if x.F != nil && out.F != nil && to.Bits() > 8 {
			copy(out.F[lo:hi], x.F[lo:hi])
			return
		}
		for i := lo; i < hi; i++ {
			switch {
			case x.F != nil && out.F != nil:
				out.F[i] = narrow(x.F[i])
			case x.F != nil:
				out.I[i] = floatToInt(to, x.F[i])
			case out.F != nil:
				v := x.I[i]
				if to != Float64 {
					v = roundToOdd(v)
				}
				out.F[i] = narrow(intToFloat(x.DType, v))
			default:
				out.I[i] = WrapInt(to, x.I[i])
			}
		}
	})
	return []*Array{out}, nil
}

// roundToOdd makes a large 64-bit integer exact in float64 such that rounding that to a narrower type gives what
// rounding the integer once does.
func roundToOdd(v int64) int64 {
	const low = 1<<11 - 1
	if v>>53 == 0 || v>>53 == -1 || v&low == 0 {
		return v
	}
	return v&^low | (low + 1)
}

func evalBitCast(n *Node, in []*Array) ([]*Array, error) {
	t := in[0].Tensor()
	out := &Tensor{Type: n.Outputs[0].Type, Data: t.Data}
	return []*Array{out.Array()}, nil
}

// retyped returns the same elements under another type of the same number of elements.
func (a *Array) retyped(t Type) *Array {
	return &Array{Type: Type{t.DType, slices.Clone(t.Shape)}, F: a.F, I: a.I}
}
