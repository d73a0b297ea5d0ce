package dora

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// vector is one value of a program, in which tensors of all layers are concatenated.
type vector struct {
	name  string
	parts []part
	size  int
}

// part is where a tensor lies in a vector. Data is nil where only the device has it.
type part struct {
	name  string
	shape []int
	data  *[]float32
	class class
	at    int
}

// class is what kind of tensor a part is: those of one class lie side by side, and magnitudes, gains and inverse norms of a
// class in the same order.
type class int

const (
	factors    class = iota
	directions       // of layers of kind DoRA
	frozen           // of layers of kind Magnitude, whose norms are constants
)

func (p *part) numel() int { return ir.T(ir.Float32, p.shape...).Numel() }

// lay places the tensors without gaps, so that kernels write theirs in place. In a class those whose size is a multiple of a
// greater power of two come first: factors, which are loaded as matrices, then begin at a multiple of that.
func (v *vector) lay() {
	slices.SortStableFunc(v.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(bits.TrailingZeros(uint(b.numel())), bits.TrailingZeros(uint(a.numel()))))
	})
	v.size = 0
	for i := range v.parts {
		v.parts[i].at = v.size
		v.size += v.parts[i].numel()
	}
}

// at is where a tensor lies; -1: it does not.
func (v *vector) at(name string) int {
	return slices.IndexFunc(v.parts, func(p part) bool { return p.name == name })
}

// span is where the tensors of a class lie.
func (v *vector) span(c class) (from, size int) {
	for _, p := range v.parts {
		if p.class < c {
			from += p.numel()
		} else if p.class == c {
			size += p.numel()
		}
	}
	return from, size
}

// input is an input that holds the vector.
func (v *vector) input(name string) *ir.Value {
	return &ir.Value{Name: name, Type: ir.T(ir.Float32, v.size)}
}

// split makes the graph's values that are called as the tensors parts of flat, which is a value of the graph or becomes an input
// if there are any.
func (v *vector) split(g *ir.Graph, flat *ir.Value) error {
	known := map[string]*ir.Value{}
	for _, w := range g.Inputs {
		known[w.Name] = w
	}
	for _, n := range g.Nodes {
		for _, w := range n.Outputs {
			known[w.Name] = w
		}
	}
	by := map[*ir.Value]*ir.Value{}
	err := g.Build(v.name, func(x *ir.Expansion) {
		for _, p := range v.parts {
			if w := known[p.name]; w != nil {
				slice := x.Add("Slice", ir.Attrs{"starts": []int{p.at}, "sizes": []int{p.numel()}}, flat)
				by[w] = x.Reshape(slice, p.shape...)
			}
		}
	})
	if err != nil || len(by) == 0 {
		return err
	}
	g.Substitute(by)
	if err := g.Toposort(); err != nil {
		return err
	}
	g.RemoveDead()
	g.Inputs = slices.DeleteFunc(g.Inputs, func(w *ir.Value) bool { return by[w] != nil })
	if flat.Def == nil {
		g.Inputs = append(g.Inputs, flat)
	}
	return nil
}

// join makes one output of the graph's values that are called as the tensors, with a prefix; they are no outputs then.
func (v *vector) join(g *ir.Graph, output, prefix string) error {
	known := map[string]*ir.Value{}
	for _, n := range g.Nodes {
		for _, w := range n.Outputs {
			known[w.Name] = w
		}
	}
	taken := map[*ir.Value]bool{}
	var parts []*ir.Value
	for _, p := range v.parts {
		w := known[prefix+p.name]
		if w == nil {
			return fmt.Errorf("no value %q in graph %q", prefix+p.name, g.Name)
		}
		taken[w], parts = true, append(parts, w)
	}
	if len(parts) == 0 {
		return nil
	}
	g.Outputs = slices.DeleteFunc(g.Outputs, func(w *ir.Value) bool { return taken[w] })
	return g.Build(v.name, func(x *ir.Expansion) {
		for i, w := range parts {
			parts[i] = x.Reshape(w, w.Type.Numel())
		}
		flat := x.Add("Concat", ir.Attrs{"axis": 0}, parts...)
		flat.Name = output
		g.Outputs = append(g.Outputs, flat)
	})
}

// bytes are the tensors' numbers as the session keeps them.
func (v *vector) bytes() []byte {
	out := make([]byte, 4*v.size)
	for _, p := range v.parts {
		for i, x := range *p.data {
			binary.LittleEndian.PutUint32(out[4*(p.at+i):], math.Float32bits(x))
		}
	}
	return out
}

// read takes the tensors' numbers from what the session keeps.
func (v *vector) read(data []byte) {
	for _, p := range v.parts {
		for i := range *p.data {
			(*p.data)[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*(p.at+i):]))
		}
	}
}

// vectors are the trained numbers of an adapter, the gains and the inverse norms.
func (a *Adapter) vectors() (trained, gains, inverse vector) {
	trained.name, gains.name, inverse.name = keptAdapter, keptGain, keptInverse
	for _, l := range a.Layers {
		p := passes.Adapter{Name: l.Module}
		shapeA, shapeB, _ := l.Shapes(&l.Weight.Layer)
		out, c := []int{l.Out}, directions
		if l.Kind == Magnitude {
			c = frozen
		}
		for _, t := range []part{{p.InputA(), shapeA, &l.A, factors, 0}, {p.InputB(), shapeB, &l.B, factors, 0}, {p.InputM(), out, &l.M, c, 0}} {
			if *t.data != nil {
				trained.parts = append(trained.parts, t)
			}
		}
		if l.Kind != LoRA {
			gains.parts = append(gains.parts, part{name: p.Gain(), shape: out, class: c})
			inverse.parts = append(inverse.parts, part{name: p.InverseNorm(), shape: out, class: c})
		}
	}
	for _, v := range []*vector{&trained, &gains, &inverse} {
		v.lay()
	}
	return trained, gains, inverse
}
