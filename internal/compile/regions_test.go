package compile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/roundoff"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestEveryKernelOfAQuantisedModelComputesItsRegion runs each kernel alone on the values that the reference evaluator has
// at its inputs. End to end one code that falls the other way decorrelates what follows; here nothing follows, and every
// element is a number that rounding in f32 can make of the region: a code moves only where the sum lies at a tie.
func TestEveryKernelOfAQuantisedModelComputesItsRegion(t *testing.T) {
	fulltest.Long(t)
	type run struct {
		model     string
		size      driving.Size
		precision string
	}
	var runs []run
	for _, row := range precision.All() {
		if row.Calibrates() {
			runs = append(runs, run{"dmonitoring", driving.Small, row.Name})
		}
	}
	for _, c := range append(runs, []run{
		{"dmonitoring", driving.Small, "fp16"},
		{"policy", driving.Small, "fp8"}, {"policy", driving.Small, "nvfp4"}, {"vision", driving.Small, "nvfp4"},
		{"policy", driving.Full, "fp8"}, {"policy", driving.Full, "nvfp4"}, {"vision", driving.Full, "fp8"}, {"vision", driving.Full, "nvfp4"},
	}...) {
		t.Run(c.model+"/"+string(c.size)+"/"+c.precision, func(t *testing.T) {
			if c.size == driving.Full && !fulltest.Runs(t.Name()) {
				t.Skip("calibrates a full-size model: set SPARK_FULL=1")
			}
			g, seen := evaluated(t, c.model, c.size, c.precision)
			var all tally
			kernels, blocks := 0, 0
			for _, n := range g.Nodes {
				if n.IsFamily(ir.FamilyView) {
					continue
				}
				kernels++
				if len(n.Outputs) == 2 && n.Outputs[0].Type.DType == ir.Float4E2M1 {
					blocks++
				}
				want := rangesOf(t, n, seen)
				for v, got := range runRegion(t, n, seen) {
					all.add(within(t, n.Name, got.Array(), want[v]))
				}
			}
			require.Positive(t, kernels)
			if c.model == "vision" && c.precision == "nvfp4" {
				require.Positive(t, blocks, "no kernel makes NVFP4 activations")
			}
			t.Logf("%d kernels, %d of them make NVFP4 activations: %v", kernels, blocks, all)
		})
	}
}

// TestAFaultOfALayerIsOutsideOfItsRegionsRange: what the ranges allow is less than what a layer does whose scales are off by
// a thousandth, a hundredth of a step of e4m3, or in which two output channels have changed places. A layer whose activations
// are read in two terms sums twice as many products, and what order may do to a sum is bounded by their number: two thousandths. Where a kernel
// has a product of what another one sums, bounds add up, and each of its parts is tried by itself: the contraction's tests compare the two bit for bit.
func TestAFaultOfALayerIsOutsideOfItsRegionsRange(t *testing.T) {
	g, seen := evaluated(t, "dmonitoring", driving.Small, "fp8")
	tried := 0
	for _, n := range g.Nodes {
		for _, layer := range n.Parts() {
			if products(n) > 1 {
				maps.Copy(seen, runRegion(t, layer, seen))
			}
			i, scales := scaledWeights(layer)
			if i < 0 {
				continue
			}
			tried++
			whole := n
			if products(n) > 1 {
				whole = layer
			}
			want := rangesOf(t, whole, seen)
			xs := layer.Inputs[scales].Const.Floats()
			off := 1.001
			if slices.ContainsFunc(layer.Region.Operands, func(o ir.Operand) bool { return o.Read.SplitTerms == 2 }) {
				off = 1.002
			}
			for k := range xs {
				xs[k] *= off
			}
			for fault, wrong := range map[string]*ir.Node{
				fmt.Sprint("scales × ", off): replaced(g, whole, layer.Inputs[scales], ir.FromFloats(layer.Inputs[scales].Type, xs)),
				"channels":                   replaced(g, whole, layer.Inputs[i], swapped(layer, i)),
			} {
				for v, got := range runRegion(t, wrong, seen) {
					require.Positive(t, outside(got.Array(), want[v]), "%s: nobody sees wrong %s", layer.Name, fault)
				}
			}
		}
	}
	require.Greater(t, tried, 20)
}

// products is how many parts of a region are contractions.
func products(n *ir.Node) (count int) {
	for _, part := range n.Parts() {
		if part.IsFamily(ir.FamilyContraction) {
			count++
		}
	}
	return count
}

// replaced is a region that reads another constant.
func replaced(g *ir.Graph, n *ir.Node, constant *ir.Value, by *ir.Tensor) *ir.Node {
	wrong := *n
	wrong.Inputs = slices.Clone(n.Inputs)
	wrong.Inputs[slices.Index(n.Inputs, constant)] = g.Constant("wrong", by)
	return &wrong
}

// swapped are the weights of operand i, of the first member, whose first and last output channel have changed places.
func swapped(n *ir.Node, i int) *ir.Tensor {
	w, o := n.Inputs[i].Const, n.Region.Operands[i]
	shape := w.Shape
	if o.Batched {
		shape = shape[1:]
	}
	size := func(dims []int) int { return ir.Type{Shape: dims}.Numel() }
	inner, channels := size(shape[o.ChannelAxis+1:]), shape[o.ChannelAxis]
	xs := w.Floats()
	for outer := range size(shape[:o.ChannelAxis]) {
		for k := range inner {
			first := outer*channels*inner + k
			last := first + (channels-1)*inner
			xs[first], xs[last] = xs[last], xs[first]
		}
	}
	return ir.FromFloats(w.Type, xs)
}

// scaledWeights are the inputs of a contraction that hold weights and the scales of their channels, or -1.
func scaledWeights(n *ir.Node) (weights, scales int) {
	if n.IsFamily(ir.FamilyContraction) {
		for i := range n.Region.Operands {
			if s := n.ChannelScales(i); s != nil {
				return i, slices.Index(n.Inputs, s)
			}
		}
	}
	return -1, -1
}

// evaluated compiles a model of the repository's own and returns the final graph with every value on one input.
func evaluated(t *testing.T, model string, size driving.Size, precision string) (*ir.Graph, map[*ir.Value]*ir.Tensor) {
	t.Helper()
	src, err := driving.Make(model, size)
	require.NoError(t, err)
	m, err := onnx.Decode(string(size)+"/"+model+".onnx", src.ONNX)
	require.NoError(t, err)
	opt := Options{Precision: precision, Targets: []string{"sm_121"}}
	if size == driving.Small {
		m, opt.Generated = small(t, model), 2
	}
	r := once(t, m, opt)
	in, seen := map[string]*ir.Array{}, map[*ir.Value]*ir.Tensor{}
	for _, q := range src.Inputs {
		in[q.Name] = q.Draw(5).Array()
	}
	for _, v := range r.Graph.Inputs {
		seen[v] = in[v.Name].Tensor()
	}
	_, err = ir.Evaluate(context.Background(), r.Graph, in, ir.EvalOptions{Round: true, Observe: func(v *ir.Value, a *ir.Array) { seen[v] = a.Tensor() }})
	require.NoError(t, err)
	return r.Graph, seen
}

// runRegion lowers a region for sm_121 and runs its kernel on the CPU device.
func runRegion(t *testing.T, n *ir.Node, data map[*ir.Value]*ir.Tensor) map[*ir.Value]*ir.Tensor {
	t.Helper()
	tg, err := target.Lookup("sm_121")
	require.NoError(t, err)
	spec, err := families.New(nil).Lower(n, &kernel.Context{Target: tg})
	require.NoError(t, err, n.Name)
	return kerneltest.Run(t, spec, tg, data)
}

// rangesOf bounds a region's outputs on known inputs.
func rangesOf(t *testing.T, n *ir.Node, data map[*ir.Value]*ir.Tensor) map[*ir.Value]roundoff.Range {
	t.Helper()
	in := make([]roundoff.Range, len(n.Inputs))
	for i, v := range n.Inputs {
		x := data[v]
		if v.IsConst() {
			x = v.Const
		}
		in[i] = roundoff.Exactly(x.Array())
	}
	return rangesFrom(t, n, in)
}

func rangesFrom(t *testing.T, n *ir.Node, in []roundoff.Range) map[*ir.Value]roundoff.Range {
	t.Helper()
	out, err := roundoff.Model{}.Node(n, in)
	require.NoError(t, err)
	byValue := map[*ir.Value]roundoff.Range{}
	for i, v := range n.Outputs {
		byValue[v] = out[i]
	}
	return byValue
}

// tally counts elements: of how many the range holds more than one number, and how many are not its middle.
type tally struct{ elements, open, moved int }

func (a *tally) add(b tally) {
	a.elements, a.open, a.moved = a.elements+b.elements, a.open+b.open, a.moved+b.moved
}

func (a tally) String() string {
	return fmt.Sprintf("%d elements of 8 and 4 bits, %d at a tie, %d of them at its upper end", a.elements, a.open, a.moved)
}

// within requires every element in its range.
func within(t *testing.T, name string, got *ir.Array, want roundoff.Range) tally {
	t.Helper()
	var c tally
	lo, hi, xs := want.Lo.Floats(), want.Hi.Floats(), got.Floats()
	require.Len(t, xs, len(lo), name)
	for i, x := range xs {
		if !(lo[i] <= x && x <= hi[i]) {
			require.FailNow(t, "outside of what rounding can do", "%s: element %d of %v: %v, allowed [%v, %v]", name, i, got.Type, x, lo[i], hi[i])
		}
		if got.DType.Bits() <= 8 {
			c.elements++
			if lo[i] != hi[i] {
				c.open++
				if x == hi[i] {
					c.moved++
				}
			}
		}
	}
	return c
}

// outside counts the elements that are not in their range.
func outside(got *ir.Array, want roundoff.Range) int {
	count := 0
	lo, hi := want.Lo.Floats(), want.Hi.Floats()
	for i, x := range got.Floats() {
		if !(lo[i] <= x && x <= hi[i]) {
			count++
		}
	}
	return count
}
