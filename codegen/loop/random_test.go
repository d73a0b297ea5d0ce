package loop

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

// randomRegion is a chain of movement and elementwise ops over one or two inputs, perhaps with a reduction in it.
func randomRegion(r *rand.Rand) *testCase {
	d := []ir.DType{ir.Float16, ir.Float32, ir.Int32, ir.Uint8}[r.Intn(4)]
	shape := []int{1 + r.Intn(4), 1 + r.Intn(9), 8 * (1 + r.Intn(8))}
	if r.Intn(2) == 0 {
		shape[2] = 1 + r.Intn(37)
	}
	c := &testCase{inputs: []ir.Type{ir.T(d, shape...), ir.T(d, shape[2])}}
	if d == ir.Float16 {
		c.tol = 1e-3 // the evaluator rounds no arithmetic inside of a body
	}
	steps := 1 + r.Intn(6)
	seed := r.Int63()
	c.build = func(ch *kerneltest.Region, in []*ir.Value) []*ir.Value {
		r := rand.New(rand.NewSource(seed))
		v := in[0]
		reduced := false
		for range steps {
			s := v.Type.Shape
			switch r.Intn(10) {
			case 0:
				v = ch.Add("Reshape", ir.Attrs{"shape": randomShape(r, v.Type.Numel())}, v)
			case 1:
				perm := r.Perm(len(s))
				v = ch.Add("Transpose", ir.Attrs{"perm": perm}, v)
			case 2:
				starts, sizes, steps := make([]int, len(s)), make([]int, len(s)), make([]int, len(s))
				for i, n := range s {
					starts[i] = r.Intn(n)
					steps[i] = 1 + r.Intn(2)
					sizes[i] = (n-1-starts[i])/steps[i] + 1
					if r.Intn(4) == 0 {
						steps[i], sizes[i] = -1, starts[i]+1
					}
				}
				v = ch.Add("Slice", ir.Attrs{"starts": starts, "sizes": sizes, "steps": steps}, v)
			case 3:
				v = ch.Add("Concat", ir.Attrs{"axis": r.Intn(len(s))}, v, v)
			case 4:
				begin, end := make([]int, len(s)), make([]int, len(s))
				for i := range s {
					begin[i], end[i] = r.Intn(3), r.Intn(3)
				}
				mode := []string{"constant", "edge", "reflect", "wrap"}[r.Intn(4)]
				v = ch.Add("Pad", ir.Attrs{"begin": begin, "end": end, "mode": mode}, v)
			case 5:
				if s[len(s)-1] == in[1].Type.Shape[0] {
					v = ch.Add("Add", nil, v, in[1])
				}
			case 6:
				v = ch.Add("Max", nil, v, v)
				v = ch.Add("Neg", nil, v)
			case 7, 8:
				if !reduced {
					reduced = true
					op := []string{"ReduceSum", "ReduceMax", "ReduceMean"}[r.Intn(3)]
					axes := []int{r.Intn(len(s))}
					if len(s) > 1 && axes[0]+1 < len(s) && r.Intn(2) == 0 {
						axes = append(axes, axes[0]+1)
					}
					m := ch.Add(op, ir.Attrs{"axes": axes, "keepdims": true}, v)
					v = ch.Add([]string{"Sub", "Max"}[r.Intn(2)], nil, v, m)
				}
			case 9:
				repeats := slices.Repeat([]int{1}, len(s))
				repeats[r.Intn(len(s))] = 2
				v = ch.Add("Tile", ir.Attrs{"repeats": repeats}, v)
			}
		}
		if v == in[0] {
			v = ch.Add("Neg", nil, v)
		}
		return []*ir.Value{v}
	}
	return c
}

func randomShape(r *rand.Rand, n int) []int {
	var s []int
	for n > 1 && len(s) < 3 {
		f := 1 + r.Intn(n)
		for n%f != 0 {
			f--
		}
		s = append(s, f)
		n /= f
	}
	return append(s, n)
}

func TestRandomRegionsAgreeWithTheEvaluator(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	for i := range 300 {
		c := randomRegion(r)
		c.name = fmt.Sprint(i)
		t.Run(c.name, func(t *testing.T) {
			c.check(t, "sm_121")
		})
	}
}
