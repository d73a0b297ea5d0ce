package ir

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// Reductions and normalisations. Axes are in [0, rank), sorted; an empty list reduces nothing.
var _ = register(
	Op{Name: "ReduceSum", Kind: KindReduction, In: "x number",
		Attrs:   []Attr{{Name: "axes", Default: []int(nil), Required: true, Axes: true}, {Name: "keepdims", Default: false}},
		Summary: "sum over axes (none: identity)",
		Grad:    gradReduceSum, Batch: alongAxes, Infer: reduced, Eval: evalReduce},
	Op{Name: "ReduceMean", Kind: KindReduction, In: "x number",
		Attrs:   []Attr{{Name: "axes", Default: []int(nil), Required: true, Axes: true}, {Name: "keepdims", Default: false}},
		Summary: "mean over axes; integers truncate",
		Grad:    gradReduceMean, Batch: alongAxes, Infer: reduced, Eval: evalReduce},
	Op{Name: "ReduceMax", Exact: true, Kind: KindReduction,
		Attrs:   []Attr{{Name: "axes", Default: []int(nil), Required: true, Axes: true}, {Name: "keepdims", Default: false}},
		Summary: "maximum over axes; empty: least value of the type",
		Grad:    gradReduceExtreme, Batch: alongAxes, Infer: reduced, Eval: evalReduce},
	Op{Name: "ReduceMin", Exact: true, Kind: KindReduction,
		Attrs:   []Attr{{Name: "axes", Default: []int(nil), Required: true, Axes: true}, {Name: "keepdims", Default: false}},
		Summary: "minimum over axes",
		Grad:    gradReduceExtreme, Batch: alongAxes, Infer: reduced, Eval: evalReduce},
	Op{Name: "ReduceProd", Kind: KindReduction, In: "x number",
		Attrs:   []Attr{{Name: "axes", Default: []int(nil), Required: true, Axes: true}, {Name: "keepdims", Default: false}},
		Summary: "product over axes",
		Grad:    gradReduceProd, Batch: alongAxes, Infer: reduced, Eval: evalReduce},
	Op{Name: "ArgMax", Kind: KindReduction, Rereads: true, In: "x number",
		Attrs:   []Attr{{Name: "axis", Default: 0, Axes: true}, {Name: "keepdims", Default: false}, {Name: "last", Default: false}},
		Summary: "i64 index of the maximum, first or last of equals",
		Batch:   alongAxes, Infer: inferArg, Eval: evalArg},
	Op{Name: "ArgMin", Kind: KindReduction, Rereads: true, In: "x number",
		Attrs:   []Attr{{Name: "axis", Default: 0, Axes: true}, {Name: "keepdims", Default: false}, {Name: "last", Default: false}},
		Summary: "i64 index of the minimum",
		Batch:   alongAxes, Infer: inferArg, Eval: evalArg},
	Op{Name: "CumSum", Kind: KindScan, In: "x number",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "exclusive", Default: false}, {Name: "reverse", Default: false}},
		Summary: "prefix sums along axis",
		Grad:    gradCumSum, Batch: alongAxes, Infer: alongAxis, Eval: evalCumulative},
	Op{Name: "CumProd", Kind: KindScan, In: "x number",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "exclusive", Default: false}, {Name: "reverse", Default: false}},
		Summary: "prefix products along axis",
		Grad:    gradCumProd, Batch: alongAxes, Infer: alongAxis, Eval: evalCumulative},
	Op{Name: "TopK", Kind: KindOther, In: "x number", Out: []string{"values", "indices"},
		Attrs:   []Attr{{Name: "k", Default: 0, Required: true}, {Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "largest", Default: true}},
		Summary: "the k largest (least) along axis in order, i64 indices; of equals the lower index first (ONNX TopK 11, sorted)",
		Grad:    gradTopK, Batch: alongAxes, Infer: inferTopK, Eval: evalTopK},
)

// reduced is the rule of ReduceX.
func reduced(n *Node) ([]Type, error) {
	x, axes := n.Inputs[0].Type, n.Attrs.Ints("axes")
	for i, a := range axes {
		if a < 0 || a >= x.Rank() || i > 0 && a <= axes[i-1] {
			return nil, fmt.Errorf("axes=%v: want ascending axes of %v", axes, x)
		}
	}
	return one(x.DType, reducedShape(x.Shape, axes, n.Attrs.Bool("keepdims"))...)
}

func reducedShape(shape, axes []int, keep bool) []int {
	out := []int{}
	for i, d := range shape {
		switch {
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

func inferArg(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	if x.Shape[axis] == 0 {
		return nil, fmt.Errorf("axis %d of %v is empty", axis, x)
	}
	return one(Int64, reducedShape(x.Shape, []int{axis}, n.Attrs.Bool("keepdims"))...)
}

// alongAxis is the rule of ops that keep the shape and work along attribute axis.
func alongAxis(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	if _, err := n.axisOf("axis", 0, x.Rank()); err != nil {
		return nil, err
	}
	return one(x.DType, x.Shape...)
}

func inferTopK(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	k := n.Attrs.Int("k", 0)
	if k < 0 || k > x.Shape[axis] {
		return nil, fmt.Errorf("k=%d of %d elements along axis %d", k, x.Shape[axis], axis)
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = k
	return []Type{{x.DType, shape}, {Int64, slices.Clone(shape)}}, nil
}

// reducer folds the elements of a row one after the other.
type reducer struct {
	float      func(acc, x float64) float64
	int        func(d DType, acc, x int64) int64
	startFloat float64
	startInt   func(d DType) int64
}

func reducerOf(op string) reducer {
	zero := func(DType) int64 { return 0 }
	switch op {
	case "ReduceMax":
		return reducer{
			func(a, x float64) float64 { return max(a, x) },
			func(d DType, a, x int64) int64 { return choose(orderInts(d, a, x) >= 0, a, x) },
			math.Inf(-1), leastInt,
		}
	case "ReduceMin":
		return reducer{
			func(a, x float64) float64 { return min(a, x) },
			func(d DType, a, x int64) int64 { return choose(orderInts(d, a, x) <= 0, a, x) },
			math.Inf(1), greatestInt,
		}
	case "ReduceProd", "CumProd":
		return reducer{
			func(a, x float64) float64 { return a * x },
			func(_ DType, a, x int64) int64 { return a * x },
			1, func(DType) int64 { return 1 },
		}
	}
	return reducer{
		func(a, x float64) float64 { return a + x },
		func(_ DType, a, x int64) int64 { return a + x },
		0, zero,
	}
}

func leastInt(d DType) int64 {
	if d == Bool {
		return 0
	}
	lo, _ := minifloat.Range(d.Bits(), d.IsSigned())
	return lo
}

func greatestInt(d DType) int64 {
	switch d {
	case Bool:
		return 1
	case Uint64:
		return -1
	}
	_, hi := minifloat.Range(d.Bits(), d.IsSigned())
	return hi
}

func evalReduce(n *Node, in []*Array) ([]*Array, error) {
	x, out := in[0], NewArray(n.Outputs[0].Type)
	axes := n.Attrs.Ints("axes")
	r, d := reducerOf(n.Op.Name), x.DType
	// Every element of x meets its accumulator: strides of the output with kept dimensions, zero along reduced axes.
	steps := strides(reducedShape(x.Shape, axes, true))
	count := 1
	for _, a := range axes {
		steps[a] = 0
		count *= x.Shape[a]
	}
	for i := range out.F {
		out.F[i] = r.startFloat
	}
	for i := range out.I {
		out.I[i] = r.startInt(d)
	}
	c := newCursor(x.Shape, 0, steps)
	for p := range x.Len() {
		at := c.at[0]
		if x.F != nil {
			out.F[at] = r.float(out.F[at], x.F[p])
		} else {
			out.I[at] = r.int(d, out.I[at], x.I[p])
		}
		c.next()
	}
	for i := range out.F {
		if n.Op.Name == "ReduceMean" {
			out.F[i] /= float64(count)
		}
	}
	for i := range out.I {
		switch {
		case n.Op.Name != "ReduceMean":
		case count == 0:
			out.I[i] = 0
		case d == Uint64:
			out.I[i] = int64(uint64(out.I[i]) / uint64(count))
		default:
			out.I[i] /= int64(count)
		}
		out.I[i] = WrapInt(d, out.I[i])
	}
	return []*Array{out}, nil
}

// rows calls f with the first position and the step of every row of a shape along an axis, on all cores.
func rows(shape []int, axis int, f func(row, base, step int)) {
	inner, d := strides(shape)[axis], shape[axis]
	outer := T(Bool, shape[:axis]...).Numel()
	parallel.Ranges(outer*inner, 1+(1<<12)/max(d, 1), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f(r, r/inner*d*inner+r%inner, inner)
		}
	})
}

// less orders elements: NaN after every number.
func (a *Array) less(i, j int) bool {
	if a.F != nil {
		x, y := a.F[i], a.F[j]
		return x < y || y != y && x == x
	}
	return orderInts(a.DType, a.I[i], a.I[j]) < 0
}

func evalArg(n *Node, in []*Array) ([]*Array, error) {
	x, out := in[0], NewArray(n.Outputs[0].Type)
	axis, last := n.Attrs.Int("axis", 0), n.Attrs.Bool("last")
	rows(x.Shape, axis, func(row, base, step int) {
		best := 0
		for k := 1; k < x.Shape[axis]; k++ {
			i, j := base+best*step, base+k*step
			if n.Op.Name == "ArgMin" {
				i, j = j, i
			}
			if x.less(i, j) || last && !x.less(j, i) {
				best = k
			}
		}
		out.I[row] = int64(best)
	})
	return []*Array{out}, nil
}

func evalCumulative(n *Node, in []*Array) ([]*Array, error) {
	x, out := in[0], NewArray(n.Outputs[0].Type)
	axis, d := n.Attrs.Int("axis", 0), x.Shape[n.Attrs.Int("axis", 0)]
	exclusive, reverse := n.Attrs.Bool("exclusive"), n.Attrs.Bool("reverse")
	r := reducerOf(n.Op.Name)
	rows(x.Shape, axis, func(_, base, step int) {
		accF, accI := r.startFloat, r.startInt(x.DType)
		for k := range d {
			i := base + k*step
			if reverse {
				i = base + (d-1-k)*step
			}
			if x.F != nil {
				before := accF
				accF = r.float(accF, x.F[i])
				out.F[i] = accF
				if exclusive {
					out.F[i] = before
				}
				continue
			}
			before := accI
			accI = WrapInt(x.DType, r.int(x.DType, accI, x.I[i]))
			out.I[i] = choose(exclusive, before, accI)
		}
	})
	return []*Array{out}, nil
}

func evalTopK(n *Node, in []*Array) ([]*Array, error) {
	x, values, indices := in[0], NewArray(n.Outputs[0].Type), NewArray(n.Outputs[1].Type)
	axis, k := n.Attrs.Int("axis", 0), n.Attrs.Int("k", 0)
	largest := n.Flag("largest")
	rows(x.Shape, axis, func(row, base, step int) {
		order := make([]int, x.Shape[axis])
		for i := range order {
			order[i] = i
		}
		sort.SliceStable(order, func(a, b int) bool {
			i, j := base+order[a]*step, base+order[b]*step
			if largest {
				i, j = j, i
			}
			return x.less(i, j)
		})
		start := row/step*k*step + row%step
		for i, o := range order[:k] {
			to := start + i*step
			indices.I[to] = int64(o)
			values.copyFrom(to, x, base+o*step, 1)
		}
	})
	return []*Array{values, indices}, nil
}
