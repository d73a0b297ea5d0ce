package randgraph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// How far rounding may take an output is measured: the graph is evaluated in float64, and again with noise at every value that a
// program may round, uniform and amplify times as great as its rounding can be (Monte Carlo arithmetic; Parker, Monte Carlo
// Arithmetic: exploiting randomness in floating-point arithmetic, 1997). The bound of an element is the greatest distance of a
// noisy evaluation from the exact one. An error within the roundings, whose effects add up like the noise's, exceeds it with a
// probability of about (1/amplify)^runs; a difference is believed when it has outlasted mostRuns evaluations. What depends on a
// comparison or a rounding that the noise decides has a wide bound, and counts as undecided.
const (
	amplify   = 8
	firstRuns = 4
	someRuns  = 16 // while a case is shrunk
	mostRuns  = 256
)

// rounding says what a program rounds.
type rounding struct {
	unit     func(d ir.DType) float64 // relative error of a value of type d that is stored
	tiny     func(d ir.DType) float64 // its absolute error, of values near 0
	narrow   ir.DType                 // in which values are stored; Invalid: in those of the file
	operands bool                     // operands of arithmetic are rounded too
	store    bool                     // values have their types exactly; unit is what computing them costs
	// constants that the importer computes have errors; as operands of products (Fourier transforms) relative to the greatest one.
	constants bool
	// Operands of products are stored in formats of fewer bits: errors relative to each number, and to the greatest one.
	// Weights may be rounded to either neighbour, and what is far out may saturate.
	step, clipped float64
}

// special is the relative error of functions that are approximated, of f32 and of f64.
func special(d ir.DType) float64 {
	if d == ir.Float64 {
		return 0x1p-44
	}
	return 0x1p-20
}

func least(d ir.DType) float64 {
	if d == ir.Float64 {
		return 0x1p-53
	}
	return 0x1p-24
}

func halfUnit(d ir.DType) float64 {
	switch d {
	case ir.Float16:
		return 0x1p-11
	case ir.BFloat16:
		return 0x1p-8
	}
	return 0
}

// roundingOf is a program's in a precision.
func roundingOf(precision string) rounding {
	narrow := map[string]ir.DType{"bf16": ir.BFloat16}[precision]
	if precision != "file" && precision != "fp32" && narrow == ir.Invalid {
		narrow = ir.Float16
	}
	if narrow == ir.Invalid {
		return rounding{unit: func(ir.DType) float64 { return 0 }, tiny: func(ir.DType) float64 { return 0 }, store: true}
	}
	r := rounding{unit: func(d ir.DType) float64 { return math.Max(halfUnit(narrow), halfUnit(d)) }, operands: true, narrow: narrow}
	switch precision {
	case "fp8":
		r.step, r.clipped = 0x1p-3, 0x1p-6
	case "fp6":
		r.step, r.clipped = 0x1p-2, 0x1p-5
	case "nvfp4":
		r.step, r.clipped = 0x1p-1, 0x1p-3
	}
	r.tiny = func(d ir.DType) float64 { return math.Max(tinyHalf(narrow), tinyHalf(d)) }
	return r
}

// others is another runtime's rounding of the file's types: it may keep some values wider.
var others = rounding{unit: loose, tiny: tinyHalf, constants: true}

// loose is the unit of other runtimes, which compute some of f64 in f32.
func loose(d ir.DType) float64 {
	if d == ir.Float64 {
		return 0x1p-22
	}
	return halfUnit(d)
}

// tinyHalf is half of the least number of f16.
func tinyHalf(d ir.DType) float64 {
	if d == ir.Float16 {
		return 0x1p-25
	}
	return 0
}

// inF32 is that of a run in f32, and of the onnx package's evaluator, which computes some of f64 in f32.
var inF32 = rounding{unit: func(d ir.DType) float64 { return math.Max(halfUnit(d), 0x1p-22) }, tiny: tinyHalf, operands: true, constants: true}

// bounds are the exact outputs of a graph and how far rounding may take each element.
type bounds struct {
	exact  map[string]*ir.Array
	radius map[string][]float64

	g      *ir.Graph
	inputs map[string]*ir.Array
	how    rounding
	r      *rand.Rand
	runs   int
	most   int
	top    float64 // greatest number of any value
}

func newBounds(g *ir.Graph, inputs map[string]*ir.Tensor, how rounding, most int) (*bounds, error) {
	b := &bounds{g: g, how: how, most: most, inputs: map[string]*ir.Array{}, r: rand.New(rand.NewPCG(1, 2)), radius: map[string][]float64{}}
	for _, v := range g.Inputs {
		b.inputs[v.Name] = inputs[v.Name].Array()
	}
	var err error
	if b.exact, err = b.evaluate(0); err != nil {
		return nil, err
	}
	for name, a := range b.exact {
		b.radius[name] = make([]float64, a.Len())
	}
	return b, b.more(firstRuns)
}

// more evaluates until there have been a number of noisy evaluations.
func (b *bounds) more(runs int) error {
	for ; b.runs < runs; b.runs++ {
		out, err := b.evaluate(amplify)
		if err != nil {
			return err
		}
		for name, a := range out {
			exact, r := b.exact[name].Floats(), b.radius[name]
			for i, x := range a.Floats() {
				d := math.Abs(x - exact[i])
				if x == exact[i] || math.IsNaN(x) && math.IsNaN(exact[i]) {
					d = 0
				} else if math.IsNaN(d) {
					d = math.Inf(1)
				}
				r[i] = math.Max(r[i], d)
			}
		}
	}
	return nil
}

// evaluate evaluates the graph with noise.
func (b *bounds) evaluate(noise float64) (out map[string]*ir.Array, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while evaluating: %v", p)
		}
	}()
	env := values{}
	for _, v := range b.g.Inputs {
		env[v] = b.inputs[v.Name]
	}
	if err := b.nodes(b.g.Nodes, env, noise); err != nil {
		return nil, err
	}
	out = map[string]*ir.Array{}
	for _, v := range b.g.Outputs {
		a := env.of(v)
		switch {
		case noise == 0:
		case !v.IsConst():
			a = b.noisy(a, noise, b.how.unit(a.DType), 0)
		case b.how.constants:
			a = shaken(a, noise, math.Max(0x1p-20, b.how.unit(a.DType)), b.r) // folded, perhaps of several nodes
		}
		out[v.Name] = a
	}
	return out, nil
}

type values map[*ir.Value]*ir.Array

func (e values) of(v *ir.Value) *ir.Array {
	if v == nil {
		return nil
	}
	if e[v] == nil {
		e[v] = v.Const.Array()
	}
	return e[v]
}

// nodes evaluates nodes with noise, composite ones as the nodes that they stand for.
func (b *bounds) nodes(list []*ir.Node, env values, noise float64) error {
	for _, n := range list {
		in := make([]*ir.Array, len(n.Inputs))
		exact := moves(n)
		for i, v := range n.Inputs {
			if in[i] = env.of(v); in[i] == nil {
				continue
			}
			was := in[i]
			if exact {
				if b.how.constants && v.IsConst() && was.F != nil { // folded, of a constant that also decides a shape
					in[i] = shaken(was, noise, 0x1p-22, b.r)
				}
				continue
			}
			kept := 0.0
			if !n.Op.Pointwise() && !n.Op.Exact {
				kept = 0x1p-22
			}
			if n.Op.Name == "QuantizeLinear" { // the quotient is f32's, or the scale's type's
				kept = math.Max(least(ir.Float32), halfUnit(was.DType))
			}
			in[i] = b.noisy(was, noise, b.operand(n, was.DType), kept)
			if b.how.step > 0 && noise > 0 && n.Op.Kind == ir.KindContraction {
				in[i] = shaken(in[i], 1, b.how.clipped, b.r)
				for k := range in[i].F {
					in[i].F[k] += b.how.step * was.F[k] * (2*b.r.Float64() - 1)
				}
			}
			switch {
			case was.F == nil:
			case n.Op.Name == "Attention" && b.how.narrow != ir.Invalid: // probabilities are rounded as factors
				in[i] = b.noisy(was, noise, b.how.unit(was.DType), b.how.unit(was.DType))
			case b.how.constants && (v.IsConst() || !n.Op.Pointwise() && n.Op.Kind != ir.KindContraction):
				in[i] = shaken(in[i], noise, 0x1p-23, b.r)
			}
		}
		if noise > 0 && n.Op.Expand != nil {
			if err := b.expanded(n, in, env, noise); err != nil {
				return err
			}
			continue
		}
		outs, err := ir.EvaluateNode(b.moved(n, noise), in)
		if err != nil {
			return err
		}
		for i, v := range n.Outputs {
			a := outs[i]
			if b.how.step > 0 && noise > 0 && n.Op.Kind == ir.KindContraction {
				// a channel's mean error is subtracted everywhere
				a = shaken(a, 1, b.how.clipped, b.r)
			}
			if !exact {
				a = b.noisy(a, noise, b.result(n, a.DType), special(a.DType))
				if b.how.constants && (n.Op.Name == "Sigmoid" || n.Op.Name == "Tanh") { // ONNX Runtime's are as good where they are small as near 1
					for k := range a.F {
						a.F[k] += noise * 0x1p-24 * (2*b.r.Float64() - 1)
					}
				}
				if n.Op.Name == "Gelu" { // x·(1+erf(x/√2)), which cancels
					for k, x := range in[0].F {
						a.F[k] += noise * 0x1p-23 * x * (2*b.r.Float64() - 1)
					}
				}
			}
			if b.how.store {
				a = a.Rounded()
			}
			env[v] = a
			if noise == 0 {
				for _, x := range a.F {
					if !math.IsInf(x, 0) {
						b.top = math.Max(b.top, math.Abs(x))
					}
				}
			}
		}
	}
	return nil
}

// expanded evaluates a composite node.
func (b *bounds) expanded(n *ir.Node, in []*ir.Array, env values, noise float64) error {
	nodes, outs, err := n.Expand(ir.NewGraph(n.Name))
	if err != nil {
		return err
	}
	inner := values{}
	for i, v := range n.Inputs {
		if v != nil {
			inner[v] = in[i]
		}
	}
	if err := b.nodes(nodes, inner, noise); err != nil {
		return err
	}
	for i, v := range n.Outputs {
		env[v] = inner.of(outs[i])
	}
	return nil
}

// moved is a node that computes where it reads, with noise there: other runtimes do that in f32.
func (b *bounds) moved(n *ir.Node, noise float64) *ir.Node {
	if noise == 0 || !b.how.constants || n.Op.Name != "Resize" || moves(n) {
		return n
	}
	m := *n
	m.Attrs = n.Attrs.Clone()
	scales := slices.Clone(n.Attrs.Floats("scales"))
	for i := range scales {
		scales[i] *= 1 + noise*0x1p-23*(2*b.r.Float64()-1)
	}
	m.Attrs["scales"] = scales
	return &m
}

// moves reports whether a node computes no numbers.
func moves(n *ir.Node) bool {
	switch n.Op.Name {
	case "Resize":
		return n.Attrs.String("mode", "nearest") == "nearest"
	case "GridSample", "RoiAlign", "RoiAlignWeights":
		return false
	case "ScatterElements", "ScatterND":
		return !slices.Contains([]string{"add", "mul"}, n.Attrs.String("reduction", "none"))
	}
	return n.Op.Kind == ir.KindMovement || n.Op.Kind == ir.KindOther
}

// operand is the relative error of what a node reads: all of it is rounded in a narrow precision; else it stands for the rounding
// of partial sums.
func (b *bounds) operand(n *ir.Node, d ir.DType) float64 {
	if b.how.operands {
		return b.how.unit(d)
	}
	if n.Op.Pointwise() && n.Op.Expand == nil || n.Op.Exact {
		return 0
	}
	u := b.how.unit(d)
	if n.Op.Name == "Attention" && d.Bits() == 16 {
		u = math.Max(u, 0x1p-11)
	}
	if d == ir.Float64 {
		return math.Max(u, least(d))
	}
	return math.Max(u, 0x1p-22)
}

// result is the relative error of what a node computes.
func (b *bounds) result(n *ir.Node, d ir.DType) float64 {
	u := 0.0
	switch {
	case n.Op.Exact:
	case slices.Contains([]string{"Add", "Sub", "Mul", "Cast"}, n.Op.Name):
		u = least(d)
		for _, v := range n.Inputs {
			if n.Op.Name == "Cast" && v.Type.DType == d {
				u = 0
			}
		}
	case b.how.constants: // of ONNX Runtime's functions
		u = 0x1p-19
	default:
		u = special(d)
	}
	return math.Max(u, b.how.unit(d))
}

// noisy adds noise to floats. Numbers that a precision of 16 bits has exactly are as good as the f32 that they are computed in.
func (b *bounds) noisy(a *ir.Array, noise, unit, kept float64) *ir.Array {
	if noise == 0 || a.F == nil || a.DType.Bits() < 16 {
		return a
	}
	tiny := b.how.tiny(a.DType)
	if unit == 0 && tiny == 0 {
		return a
	}
	out := &ir.Array{Type: a.Type, F: make([]float64, len(a.F))}
	for i, x := range a.F {
		out.F[i] = x
		u, t := unit, tiny
		if b.kept(x, a.DType) {
			u, t = min(kept, unit), 0
		}
		if !math.IsInf(x, 0) {
			out.F[i] += noise * (u*math.Abs(x)*(2*b.r.Float64()-1) + t*(2*b.r.Float64()-1))
		}
	}
	return out
}

// kept reports whether a precision of 16 bits has a number exactly.
func (b *bounds) kept(x float64, d ir.DType) bool {
	return b.how.narrow != ir.Invalid && ir.RoundTo(b.how.narrow, x) == x && (d.Bits() != 16 || ir.RoundTo(d, x) == x)
}

// shaken adds noise relative to the greatest number, and to 1: a number may be one of a folded window that others were taken from.
func shaken(a *ir.Array, noise, unit float64, r *rand.Rand) *ir.Array {
	top := 0.0
	for _, x := range a.F {
		if !math.IsInf(x, 0) {
			top = math.Max(top, math.Abs(x))
		}
	}
	out := &ir.Array{Type: a.Type, I: a.I}
	for _, x := range a.F {
		out.F = append(out.F, x+noise*(top*unit+0x1p-24)*(2*r.Float64()-1))
	}
	return out
}

// compare compares an output with the bounds; it evaluates more often before it calls a difference one.
func (b *bounds) compare(name string, got *ir.Tensor) error {
	exact := b.exact[name]
	if exact == nil {
		return fmt.Errorf("there is no output %q", name)
	}
	if !got.Type.Equal(exact.Type) {
		return fmt.Errorf("output %q is %v, want %v", name, got.Type, exact.Type)
	}
	for {
		err := b.differs(name, got, exact)
		if err == nil || b.runs >= b.most {
			return err
		}
		if err := b.more(min(b.most, 8*b.runs)); err != nil {
			return err
		}
	}
}

func (b *bounds) differs(name string, got *ir.Tensor, exact *ir.Array) error {
	bad, worst, at := 0, 0.0, 0
	xs, want := got.Array().Floats(), exact.Floats()
	for i, x := range xs {
		if x == want[i] || math.IsNaN(x) && math.IsNaN(want[i]) {
			continue
		}
		// Where a value jumps, noise has changed it by amplify times as much before and after the jump.
		off := math.Abs(x-want[i]) / ((1+1./amplify)*b.radius[name][i] + 1e-37)
		if math.IsNaN(off) && !math.IsInf(b.radius[name][i], 1) {
			off = math.Inf(1)
		}
		if off > 1 {
			bad++
			if off > worst {
				worst, at = off, i
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("output %q: %d of %d elements differ, element %d of %v: %v, want %v ± %.2g", name, bad, len(xs), at, exact.Type, xs[at], want[at], b.radius[name][at])
}

// undecided counts the elements whose bound says little: a tenth of the output's greatest number and more.
func (b *bounds) undecided() (undecided, all int) {
	for name, r := range b.radius {
		top := 0.0
		for _, x := range b.exact[name].Floats() {
			if !math.IsInf(x, 0) && !math.IsNaN(x) {
				top = math.Max(top, math.Abs(x))
			}
		}
		for _, x := range r {
			all++
			if x > 0 && x >= top/10 {
				undecided++
			}
		}
	}
	return undecided, all
}
