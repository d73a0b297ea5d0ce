package loop

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// large are regions that read tensors of more than 2³¹ elements, or of more than 4 GiB. Nothing is computed here.
var large = []struct {
	name  string
	in    []ir.Type
	build func(r *kerneltest.Region, x []*ir.Value) *ir.Value
}{
	{"a sum of everything", []ir.Type{ir.T(ir.Uint8, 70000, 40000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("ReduceSum", ir.Attrs{"axes": []int{0, 1}}, x[0])
	}},
	{"a sum of everything, of odd sizes", []ir.Type{ir.T(ir.Uint8, 50021, 50023)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("ReduceSum", ir.Attrs{"axes": []int{0, 1}}, x[0])
	}},
	{"a mean over two of three dimensions", []ir.Type{ir.T(ir.Float16, 70000, 3, 40000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("ReduceMean", ir.Attrs{"axes": []int{0, 2}}, x[0])
	}},
	{"the greatest of a Reshape", []ir.Type{ir.T(ir.Float16, 70000, 40000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("ReduceMax", ir.Attrs{"axes": []int{1}}, r.Add("Reshape", ir.Attrs{"shape": []int{4, 700000000}}, x[0]))
	}},
	{"sums of columns", []ir.Type{ir.T(ir.Float32, 700000, 4096)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("ReduceSum", ir.Attrs{"axes": []int{0}}, x[0])
	}},
	{"rows of a table", []ir.Type{ir.T(ir.Float16, 3000000, 1024), ir.T(ir.Int64, 16)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("Gather", ir.Attrs{"axis": 0}, x[0], x[1])
	}},
	{"the end of a transposed tensor", []ir.Type{ir.T(ir.Float16, 60000, 50000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		y := r.Add("Transpose", ir.Attrs{"perm": []int{1, 0}}, x[0])
		return r.Add("Slice", ir.Attrs{"starts": []int{49990, 59000}, "sizes": []int{10, 1000}, "steps": []int{1, 1}}, y)
	}},
	{"a padded cut", []ir.Type{ir.T(ir.Float16, 60000, 50000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		y := r.Add("Slice", ir.Attrs{"starts": []int{59990, 0}, "sizes": []int{10, 50000}, "steps": []int{1, 1}}, x[0])
		return r.Add("Pad", ir.Attrs{"begin": []int{1, 2}, "end": []int{3, 0}}, y)
	}},
	{"elementwise over 16 GiB", []ir.Type{ir.T(ir.Float64, 2000000000)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("Neg", nil, x[0])
	}},
	{"a product of a great matrix and a vector", []ir.Type{ir.T(ir.Float32, 60000, 50000), ir.T(ir.Float32, 50000, 1)}, func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
		return r.Add("MatMul", nil, x[0], x[1])
	}},
}

// declared is a region over inputs without data.
func declared(t *testing.T, in []ir.Type, build func(r *kerneltest.Region, x []*ir.Value) *ir.Value) *ir.Node {
	r := kerneltest.New(t, ir.FamilyLoop)
	var xs []*ir.Value
	for i, typ := range in {
		xs = append(xs, r.Read(r.AddInput(fmt.Sprint("x", i), typ), false))
	}
	return r.Finish(build(r, xs))
}

// TestIndicesOfLargeTensors looks at the index of every load under every schedule: where arithmetic of 32 bits could
// leave their range, an element would be read at another place.
func TestIndicesOfLargeTensors(t *testing.T) {
	for _, c := range large {
		t.Run(c.name, func(t *testing.T) {
			region, ctx := declared(t, c.in, c.build), kerneltest.Target(t, "sm_121")
			_, err := Family.Lower(region, ctx)
			require.NoError(t, err)
			first, err := newProblem(region, ctx)
			require.NoError(t, err)
			for _, s := range first.candidates() {
				p, err := newProblem(region, ctx)
				require.NoError(t, err)
				k := ptx.NewModule("sm_121").NewKernel("k", s.threads)
				var params []ptx.Sym
				for i := range p.l.Operands {
					params = append(params, k.AddParam(fmt.Sprint("p", i), "u64"))
				}
				reach := int64(0)
				p.emit(s, k, params, func(_ *frame, index *expr.Expr, _, _ int) {
					reach = max(reach, index.Hi)
					expr.Walk([]*expr.Expr{index}, func(e *expr.Expr) {
						if e.Op == expr.OpAffine || e.Op == expr.OpMul {
							wraps := e.Type == expr.S32 && e.Lo == math.MinInt32 && e.Hi == math.MaxInt32
							require.False(t, wraps, "%s: %v may wrap around", s, e)
						}
					})
				})
				// A vector's loads are seen at its first element.
				require.GreaterOrEqual(t, reach, int64(region.Inputs[0].Type.Numel()-16), "%s: the last element is out of reach", s)
			}
		})
	}
}

// TestLoop_NamesOversizedRegions: a single dimension, or an output, that 32 bits cannot index.
func TestLoop_NamesOversizedRegions(t *testing.T) {
	for reason, c := range map[string]struct {
		in    ir.Type
		build func(r *kerneltest.Region, x []*ir.Value) *ir.Value
	}{
		"does not fit 32-bit indices: use a smaller --batch or --shape": {ir.T(ir.Uint8, 70000, 40000), func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
			return r.Add("BitNot", nil, x[0])
		}},
		"a dimension of 3000000000 elements": {ir.T(ir.Uint8, 3000000000), func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
			return r.Add("ReduceSum", ir.Attrs{"axes": []int{0}}, x[0])
		}},
		"a dimension of 2800000000 elements": {ir.T(ir.Uint8, 70000, 40000), func(r *kerneltest.Region, x []*ir.Value) *ir.Value {
			return r.Add("ArgMax", ir.Attrs{"axis": 0}, r.Add("Reshape", ir.Attrs{"shape": []int{2800000000}}, x[0]))
		}},
	} {
		_, err := Family.Lower(declared(t, []ir.Type{c.in}, c.build), kerneltest.Target(t, "sm_121"))
		require.ErrorContains(t, err, reason)
	}
}
