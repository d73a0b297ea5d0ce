package ir

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// matrices reads an operand of MatMul as matrices of r×c, rows along the contracted dimension last if lastIsK.
type matrices struct {
	a      *Array
	shape  []int // with at least two dimensions, transposition applied
	stride []int
}

func matrixView(a *Array, transpose, isRight bool) matrices {
	shape := a.Shape
	if len(shape) == 1 {
		shape = []int{1, a.Shape[0]}
		if isRight {
			shape = []int{a.Shape[0], 1}
		}
	}
	m := matrices{a, append([]int(nil), shape...), strides(shape)}
	if k := len(shape); transpose {
		m.shape[k-1], m.shape[k-2] = m.shape[k-2], m.shape[k-1]
		m.stride[k-1], m.stride[k-2] = m.stride[k-2], m.stride[k-1]
	}
	return m
}

func evalMatMul(n *Node, in []*Array) ([]*Array, error) {
	out := NewArray(n.Outputs[0].Type)
	a := matrixView(in[0], n.Attrs.Bool("transA"), false)
	b := matrixView(in[1], n.Attrs.Bool("transB"), true)
	ra, rb := len(a.shape), len(b.shape)
	m, k, cols := a.shape[ra-2], a.shape[ra-1], b.shape[rb-1]
	batch, err := Broadcast(a.shape[:ra-2], b.shape[:rb-2])
	if err != nil || out.Len() == 0 {
		return []*Array{out}, err
	}
	stepA := expandStrides(a.shape[:ra-2], a.stride[:ra-2], batch)
	stepB := expandStrides(b.shape[:rb-2], b.stride[:rb-2], batch)
	c := newCursor(batch, 0, stepA, stepB)
	for i := range out.Len() / (m * cols) {
		baseA, baseB := c.at[0], c.at[1]
		if out.F != nil {
			left := packRows(a.a.F, baseA, m, k, a.stride[ra-2], a.stride[ra-1])
			right := packRows(b.a.F, baseB, cols, k, b.stride[rb-1], b.stride[rb-2])
			product(left, right, k, out.F[i*m*cols:(i+1)*m*cols])
		} else {
			for p := range m * cols {
				s := int64(0)
				for q := range k {
					s += a.a.I[baseA+p/cols*a.stride[ra-2]+q*a.stride[ra-1]] * b.a.I[baseB+q*b.stride[rb-2]+p%cols*b.stride[rb-1]]
				}
				out.I[i*m*cols+p] = WrapInt(out.DType, s)
			}
		}
		c.next()
	}
	return []*Array{out}, nil
}

// expandStrides are the strides of a shape read at indices of the shape to, which it broadcasts to.
func expandStrides(shape, stride, to []int) []int {
	out := make([]int, len(to))
	for i, d := range shape {
		if d != 1 {
			out[i+len(to)-len(shape)] = stride[i]
		}
	}
	return out
}

// packRows returns count rows of k elements, one after the other; without copying if they lie so already.
func packRows(x []float64, base, count, k, rowStep, step int) []float64 {
	if step == 1 && rowStep == k || count == 1 && step == 1 {
		return x[base : base+count*k]
	}
	out := make([]float64, count*k)
	parallel.Ranges(count, 1+(1<<14)/max(k, 1), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			at := base + r*rowStep
			for i := range k {
				out[r*k+i] = x[at]
				at += step
			}
		}
	})
	return out
}

// product computes c[i][j] = left_i·right_j for rows of length k.
func product(left, right []float64, k int, c []float64) {
	if k == 0 {
		return
	}
	a, b := blas.Rows{F: left, Stride: k, Count: len(left) / k}, blas.Rows{F: right, Stride: k, Count: len(right) / k}
	m, cols := a.Count, b.Count
	tile := tileRows(k)
	// Split the longer side over the cores; the other one streams past each tile.
	parallel.Ranges((max(m, cols)+tile-1)/tile, 1+(1<<16)/max(tile*k*min(m, cols), 1), func(lo, hi int) {
		lo, hi = lo*tile, min(hi*tile, max(m, cols))
		for ; lo < hi; lo += tile {
			if rows := min(tile, hi-lo); m >= cols {
				blas.Dots(c[lo*cols:], cols, a.Part(lo, rows), b, k)
			} else {
				blas.Dots(c[lo:], cols, a, b.Part(lo, rows), k)
			}
		}
	})
}

func evalAttention(n *Node, in []*Array) ([]*Array, error) {
	q, k, v, out := in[0], in[1], in[2], NewArray(n.Outputs[0].Type)
	heads, kv := q.Shape[1], k.Shape[1]
	s, t, d, dv := q.Shape[2], k.Shape[2], q.Shape[3], v.Shape[3]
	scale, cap, causal := n.Attrs.Float("scale", 1), n.Attrs.Float("softcap", 0), n.Attrs.Bool("causal")
	var mask []float64
	if len(in) > 3 && in[3] != nil {
		full := T(Float64, q.Shape[0], heads, s, t)
		mask = in[3].strided(full, 0, broadcastStrides(in[3].Shape, full.Shape)).F
	}
	parallel.Ranges(q.Shape[0]*heads, 1, func(lo, hi int) {
		weights := make([]float64, t)
		for bh := lo; bh < hi; bh++ {
			keys := bh/heads*kv + bh%heads/(heads/kv)
			for i := range s {
				row := q.F[(bh*s+i)*d : (bh*s+i+1)*d]
				for j := range weights {
					w := float64(blas.Dot(row, k.F[(keys*t+j)*d:(keys*t+j+1)*d]) * scale)
					if cap > 0 {
						w = float64(cap * tanh(w/cap))
					}
					if mask != nil {
						w += mask[(bh*s+i)*t+j]
					}
					if causal && j > i {
						w = math.Inf(-1)
					}
					weights[j] = w
				}
				if !slices.ContainsFunc(weights, func(w float64) bool { return !math.IsInf(w, -1) }) {
					continue // no key is seen: 0 (ONNX Attention 23)
				}
				softmaxRow(weights)
				y := out.F[(bh*s+i)*dv : (bh*s+i+1)*dv]
				for j, w := range weights {
					for c := range y {
						y[c] += float64(w * v.F[(keys*t+j)*dv+c])
					}
				}
			}
		}
	})
	return []*Array{out}, nil
}

func softmaxRow(x []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		x[i] = exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func evalSegmentedMatVec(n *Node, in []*Array) ([]*Array, error) {
	x, w, offset, length, out := in[0], in[1], in[3], in[4], NewArray(n.Outputs[0].Type)
	width := w.Shape[1]
	for j := range out.Len() {
		from, count := int(offset.I[j]), int(length.I[j])
		if from < 0 || count < 0 || count > width || from > x.Len()-count {
			return nil, fmt.Errorf("row %d: %d elements from %d do not fit %d weights and %d inputs", j, count, from, width, x.Len())
		}
		if out.F != nil {
			out.F[j] = blas.Dot(w.F[j*width:j*width+count], x.F[from:from+count])
			if in[2] != nil {
				out.F[j] += in[2].F[j]
			}
			continue
		}
		s := int64(0)
		for k := range count {
			s += w.I[j*width+k] * x.I[from+k]
		}
		if in[2] != nil {
			s += in[2].I[j]
		}
		out.I[j] = WrapInt(out.DType, s)
	}
	return []*Array{out}, nil
}
