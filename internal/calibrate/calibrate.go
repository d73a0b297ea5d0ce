package calibrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Calibration fits low-precision formats to one graph of f32 regions by running it on data.
type Calibration struct {
	walk      *walk
	evaluator Evaluator
	storage   *passes.Storage
	readers   map[string][]string // all layers that read the activations of a layer, where these can be stored in blocks, by site name
	found     *findings
	progress  *console.Meter
	memory    *exactRun
	pool      *BufferPool
	several   bool                   // findings are kept: fits may follow each other, or a file is to hold them
	inputs    []map[string]*ir.Array // without the perturbed ones
	names     []string               // of the inputs, for errors
	given     int                    // inputs before the perturbed ones
	exact     map[string][][]float64 // by output name, [given input][element]; nil before the first fit
	held      []bool                 // by input: kept for trying a strength that was fitted to the others; nil: too few to keep any
}

// Name gives the files that the inputs come from, for errors.
func (c *Calibration) Name(files []string) { c.names = files }

// finite rejects NaN and infinity in what layers multiply, on one input: no scale can hold them. Elsewhere they do no harm:
// masks of attention are infinite, and a logarithm may be given what it never sees but in generated inputs.
func (c *Calibration) finite(n *ir.Node, outs []*ir.Tensor, at int) error {
	for k, a := range outs {
		if x, ok := finite(a); !ok {
			if !c.multiplies(n.Outputs[k]) {
				continue
			}
			name := fmt.Sprint(at + 1)
			switch {
			case at >= c.given:
				name = fmt.Sprintf("%d of those perturbed", at+1-c.given)
			case at < len(c.names):
				name = c.names[at]
			}
			return fmt.Errorf("it yields %v as %%%s for calibration input %s: low precision needs finite activations; leave that input out, or compile with --precision fp32", x, n.Outputs[k].Name, name)
		}
	}
	return nil
}

// multiplies reports whether a layer that can be quantised multiplies a value, or a view of it.
func (c *Calibration) multiplies(v *ir.Value) bool {
	return slices.ContainsFunc(c.Sites(), func(s passes.Site) bool {
		return c.storage.Group(s.Node.Inputs[s.X]) == c.storage.Group(v)
	})
}

// New prepares a calibration of a graph for a precision, on inputs and on perturbed ones that it makes of them. Neither may
// change afterwards.
func New(g *ir.Graph, precision string, inputs []map[string]*ir.Array, e Evaluator, m *console.Meter) (*Calibration, error) {
	if len(inputs) == 0 {
		return nil, fmt.Errorf("no calibration inputs: give --calibrate at least one .npz file")
	}
	perturbed, from := fittedTo(g, precision, inputs)
	w, err := newWalk(g, slices.Concat(inputs, perturbed))
	if err != nil {
		return nil, err
	}
	s := passes.StorageOf(g)
	return &Calibration{walk: w, evaluator: e, storage: s, readers: blockReaders(w, s), found: &findings{alone: map[layerKey]float64{}, means: map[string][][]float32{}}, progress: m, memory: newExactRun(w, false), pool: &BufferPool{},
		inputs: inputs, given: len(inputs), held: heldOut(len(inputs), from)}, nil
}

// leastTrials is the number of inputs below which none are held out.
const leastTrials = 4

// fitted are the arrays of the inputs that formats are fitted to: not of those held out.
func (c *Calibration) fitted(arrays []*ir.Tensor) []*ir.Tensor {
	if c.held == nil {
		return arrays
	}
	var out []*ir.Tensor
	for i, a := range arrays {
		if !c.held[i] {
			out = append(out, a)
		}
	}
	return out
}

// heldOut is every fourth of the inputs, and those perturbed ones that come from them.
func heldOut(inputs int, from []int) []bool {
	if inputs < leastTrials {
		return nil
	}
	var out []bool
	for i := range inputs {
		out = append(out, isHeldOut(i))
	}
	for _, i := range from {
		out = append(out, isHeldOut(i))
	}
	return out
}

func isHeldOut(input int) bool { return input%4 == 3 }

// Split parts calibration inputs, or something of each, into those that a calibration fits formats to, and those by which it
// only chooses how strongly.
func Split[T any](inputs []T) (fitted, held []T) {
	for i, in := range inputs {
		if len(inputs) >= leastTrials && isHeldOut(i) {
			held = append(held, in)
		} else {
			fitted = append(fitted, in)
		}
	}
	return fitted, held
}

// Exact is what the graph yields in f32 for the given inputs, by output name, [input][element]; nil before the first walk
// through it.
func (c *Calibration) Exact() map[string][][]float64 { return c.exact }

// Sites lists the layers that can be quantised.
func (c *Calibration) Sites() []passes.Site { return passes.Sites(c.walk.g) }

// distance is the relative L2 distance of lists of tensors.
func distance(got, want []*ir.Tensor) float64 {
	squares := make([][2]float64, len(want)) // of each tensor: of differences, and of what is wanted
	parallel.For(len(want), func(at int) {
		squares[at][0], squares[at][1] = blas.Squares(floats(got[at]), floats(want[at]))
	})
	var d, n float64
	for _, s := range squares {
		d, n = d+s[0], n+s[1]
	}
	if n == 0 {
		return math.Sqrt(d)
	}
	return math.Sqrt(d / n)
}
