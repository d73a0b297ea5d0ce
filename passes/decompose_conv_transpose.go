package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "decompose-conv-transpose",
	Summary: "turn ConvTranspose into a Conv of flipped weights for each phase of its stride",
	After: map[string]string{
		"fold-scale":     "a factor moves into one weight, and not into those of every phase",
		"merge-branches": "it merges branches in the file's layout",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, decomposeConvTranspose)
		return err
	},
})

// A launch takes as long as tensor cores take for some 2^24 products: so many with zeros may one convolution do that
// replaces several.
const zeroMACs = 1 << 24

// mostPhases is how many convolutions may stand for one; one may stand for so many phases.
const (
	mostPhases = 16
	allPhases  = 256
)

// idle is how many times as many products as it needs a convolution of single channels may have: it takes as long as
// its image is large.
const idle = 4

// decomposeConvTranspose computes y[p] = Σ_t x[(p + begin - t·dilation)/stride]·w[t], over the taps t for which that
// is whole, as convolutions. All p of one remainder by the stride, a phase, have the same taps, so that a phase is a
// convolution of x (sub-pixel convolution: Shi and others 2016, section 3), and phases are interleaved. Where that
// multiplies few zeros, one convolution has the channels of all of them. Where only one phase has taps, its positions
// lie among zeros.
func decomposeConvTranspose(s *sweep, n *ir.Node) {
	if n.Op.Name != "ConvTranspose" || n.Inputs[0].Type.Numel() == 0 || n.Inputs[1].Type.Numel() == 0 {
		return
	}
	phases := 1
	for _, stride := range n.Attrs.Ints("strides") {
		if phases *= min(stride, allPhases+1); phases > allPhases {
			return
		}
	}
	t := newSpread(s, n)
	single, exact := [][]phase{}, 0
	var taken []int // phases that have taps
	for i, p := range t.phases {
		single = append(single, []phase{p})
		exact += t.common([]phase{p}).taps()
		if !p.empty() {
			taken = append(taken, i)
		}
	}
	all := t.common(t.phases)
	wide := all.taps() * len(t.phases)
	zeros := (wide - exact) * t.products()
	var y *ir.Value
	switch {
	case len(t.phases) == 1:
		y = t.conv(t.phases)
	case len(taken) == 1 && n.In(2) == nil:
		y = t.amongZeros(t.conv(single[taken[0]]), taken[0])
	case all.even && (zeros <= zeroMACs || !t.dense() && wide <= idle*exact):
		y = t.interleaved(t.conv(t.phases), t.group)
	case len(t.phases) > mostPhases:
		return
	default:
		var parts []*ir.Value
		for _, p := range single {
			parts = append(parts, t.conv(p))
		}
		y = t.interleaved(s.add("Concat", n.Name, ir.Attrs{"axis": 1 + len(t.out)}, parts...), 1)
	}
	if t.first {
		y = s.add("Transpose", n.Name, ir.Attrs{"perm": toFirst(y.Type.Rank())}, y)
	}
	s.replace(n.Outputs[0], y)
}

// spread is a ConvTranspose decomposed by phase.
type spread struct {
	s            *sweep
	n            *ir.Node
	first        bool      // channels stand before the spatial dimensions
	x, w         *ir.Value // x with channels last, w as Conv has it: [out, in/group, taps…]
	in, channels int
	group        int
	out, strides []int   // of every spatial dimension
	phases       []phase // in row-major order of the remainders
}

// phase is the taps that output positions with one remainder read: runs of taps along every dimension.
type phase []run

// run is the taps first, first+step, … of which there are count: tap number j lies at x[u + at - j·dilation] for
// position u of the phase. Without taps the phase is 0.
type run struct{ first, step, count, at, dilation int }

func newSpread(s *sweep, n *ir.Node) *spread {
	rank := n.Inputs[0].Type.Rank()
	t := &spread{s: s, n: n, first: n.Attrs.String("layout", "NCHW") == "NCHW", group: n.Attrs.Int("group", 1), strides: n.Attrs.Ints("strides")}
	t.x = n.Inputs[0]
	y := n.Outputs[0].Type.Shape
	if t.first {
		t.x, y = s.add("Transpose", n.Name, ir.Attrs{"perm": toLast(rank)}, t.x), permute(y, toLast(rank))
	}
	if s.err != nil {
		return t
	}
	t.in, t.channels, t.out = t.x.Type.Shape[rank-1], y[rank-1], y[1:rank-1]
	t.swapChannels()
	pads, dilations := n.Attrs.Ints("pads"), n.Attrs.Ints("dilations")
	t.phases = []phase{nil}
	for i, taps := range n.Inputs[1].Type.Shape[2:] {
		var longer []phase
		for _, p := range t.phases {
			for remainder := range t.strides[i] {
				longer = append(longer, append(slices.Clone(p), tapsOf(remainder, taps, t.strides[i], dilations[i], pads[i])))
			}
		}
		t.phases = longer
	}
	return t
}

// swapChannels makes w what Conv has.
func (t *spread) swapChannels() {
	w := t.n.Inputs[1]
	shape := w.Type.Shape
	taps, each := shape[2:], shape[1]
	by, perm := []int{}, []int{1, 0} // group
	if t.group > 1 {
		by, perm = []int{t.group}, []int{0, 2, 1}
	}
	for range taps {
		perm = append(perm, len(perm))
	}
	w = t.reshape(w, slices.Concat(by, []int{t.in / t.group, each}, taps)...)
	w = t.s.add("Transpose", t.n.Inputs[1].Name, ir.Attrs{"perm": perm}, w)
	t.w = t.reshape(w, slices.Concat([]int{t.channels, t.in / t.group}, taps)...)
}

func (t *spread) reshape(v *ir.Value, shape ...int) *ir.Value {
	if slices.Equal(v.Type.Shape, shape) {
		return v
	}
	return t.s.add("Reshape", v.Name, ir.Attrs{"shape": shape}, v)
}

// tapsOf are the taps that positions of a remainder by the stride meet along a dimension.
func tapsOf(remainder, taps, stride, dilation, begin int) run {
	common := gcd(stride, dilation)
	for first := range min(taps, stride/common) {
		if at := remainder + begin - first*dilation; at%stride == 0 {
			step := stride / common
			return run{first, step, (taps - first + step - 1) / step, at / stride, dilation / common}
		}
	}
	return run{}
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// dense reports whether sums run over several channels.
func (t *spread) dense() bool { return t.in > t.group || t.group == 1 }

// products is the number of products of a tap, of one phase.
func (t *spread) products() int {
	n := t.x.Type.Shape[0] * t.channels * t.in / t.group
	for i, size := range t.out {
		n *= t.positions(i, size)
	}
	return n
}

// positions is the number of positions of each phase along a dimension: those of the last ones may lie outside.
func (t *spread) positions(i, size int) int { return (size + t.strides[i] - 1) / t.strides[i] }

// frame is the window of x that some phases read: size[i] positions with a step of dilation[i], from u + low[i].
// even: all their taps lie on that grid.
type frame struct {
	low, size, dilation []int
	even                bool
}

func (f *frame) taps() int { return ir.Type{Shape: f.size}.Numel() }

// common is the smallest window of some phases. That of none that has taps has size 0.
func (t *spread) common(phases []phase) *frame {
	f := &frame{even: true}
	for i := range t.out {
		low, high, dilation := 0, -1, 1
		for _, p := range phases {
			r := p[i]
			if p.empty() {
				continue
			}
			from := r.at - (r.count-1)*r.dilation
			if high < low {
				low, high, dilation = from, r.at, r.dilation
			}
			f.even = f.even && (r.dilation == 1 || len(phases) == 1)
			low, high = min(low, from), max(high, r.at)
		}
		f.low, f.size, f.dilation = append(f.low, low), append(f.size, (high-low)/dilation+1), append(f.dilation, dilation)
		if high < low {
			f.size[i] = 0
		}
	}
	return f
}

func (p phase) empty() bool {
	return slices.ContainsFunc(p, func(r run) bool { return r.count == 0 })
}

// conv computes some phases: [batch, positions…, channels], the channels by group, phase and number.
func (t *spread) conv(phases []phase) *ir.Value {
	if t.s.err != nil {
		return &ir.Value{}
	}
	f, d := t.common(phases), t.x.Type.DType
	shape := []int{t.x.Type.Shape[0]}
	for i, size := range t.out {
		shape = append(shape, t.positions(i, size))
	}
	shape = append(shape, len(phases)*t.channels)
	bias := t.bias(len(phases))
	if f.taps() == 0 {
		if bias == nil {
			return t.s.g.Constant(t.n.Name, ir.Splat(ir.T(d, shape...), 0))
		}
		return t.s.add("Expand", t.n.Name, ir.Attrs{"shape": shape}, bias)
	}
	var begin, end []int
	for i, size := range f.size {
		begin = append(begin, -f.low[i])
		end = append(end, shape[1+i]+(size-1)*f.dilation[i]-t.x.Type.Shape[1+i]+f.low[i])
	}
	attrs := ir.Attrs{"strides": slices.Repeat([]int{1}, len(begin)), "dilations": f.dilation, "pads": slices.Concat(begin, end), "group": t.group, "layout": "NHWC"}
	inputs := []*ir.Value{t.x, t.weights(phases, f)}
	if bias != nil {
		inputs = append(inputs, bias)
	}
	return t.s.add("Conv", t.n.Name, attrs, inputs...)
}

// bias is the node's for so many phases, or nil.
func (t *spread) bias(phases int) *ir.Value {
	b := t.n.In(2)
	if b == nil || phases == 1 {
		return b
	}
	each := t.channels / t.group
	b = t.reshape(b, t.group, 1, each)
	b = t.s.add("Expand", b.Name, ir.Attrs{"shape": []int{t.group, phases, each}}, b)
	return t.reshape(b, phases*t.channels)
}

// weights are those of some phases over a window, flipped: [channels, in/group, taps…].
func (t *spread) weights(phases []phase, f *frame) *ir.Value {
	name := t.n.Inputs[1].Name
	var parts []*ir.Value
	for _, p := range phases {
		w := t.flipped(p, f)
		if len(phases) > 1 {
			w = t.reshape(w, slices.Concat([]int{t.group, 1, t.channels / t.group, t.in / t.group}, f.size)...)
		}
		parts = append(parts, w)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	w := t.s.add("Concat", name, ir.Attrs{"axis": 1}, parts...)
	return t.reshape(w, slices.Concat([]int{len(phases) * t.channels, t.in / t.group}, f.size)...)
}

// flipped are the weights of a phase, the last tap first, with zeros where it does not reach over all of the window.
func (t *spread) flipped(p phase, f *frame) *ir.Value {
	name, shape := t.n.Inputs[1].Name, t.w.Type.Shape
	if p.empty() {
		return t.s.g.Constant(name, ir.Splat(ir.T(t.w.Type.DType, slices.Concat(shape[:2], f.size)...), 0))
	}
	starts, sizes, steps := []int{0, 0}, slices.Clone(shape[:2]), []int{1, 1}
	begin, end := []int{0, 0}, []int{0, 0}
	for i, r := range p {
		starts, sizes, steps = append(starts, r.first+(r.count-1)*r.step), append(sizes, r.count), append(steps, -r.step)
		lead := (r.at - (r.count-1)*r.dilation - f.low[i]) / f.dilation[i]
		begin, end = append(begin, lead), append(end, f.size[i]-r.count-lead)
	}
	w := t.w
	if attrs := sliceAttrs(starts, sizes, steps); !slices.Equal(sizes, shape) || attrs["steps"] != nil {
		w = t.s.add("Slice", name, attrs, w)
	}
	if slices.Equal(sizes[2:], f.size) {
		return w
	}
	return t.s.add("Pad", name, ir.Attrs{"begin": begin, "end": end}, w)
}

// amongZeros puts the positions of one phase, by its number, in their places.
func (t *spread) amongZeros(v *ir.Value, phase int) *ir.Value {
	if t.s.err != nil {
		return v
	}
	shape := v.Type.Shape
	separate, begin, end, whole := shape[:1:1], []int{0}, []int{0}, shape[:1:1]
	remainders := make([]int, len(t.out))
	for i, stride := range slices.Backward(t.strides) {
		remainders[i], phase = phase%stride, phase/stride
	}
	for i, r := range remainders {
		separate, begin, end = append(separate, shape[1+i], 1), append(begin, 0, r), append(end, 0, t.strides[i]-1-r)
		whole = append(whole, shape[1+i]*t.strides[i])
	}
	v = t.s.add("Pad", t.n.Name, ir.Attrs{"begin": append(begin, 0), "end": append(end, 0)}, t.reshape(v, append(separate, t.channels)...))
	return t.cropped(t.reshape(v, append(whole, t.channels)...))
}

// interleaved puts the positions of all phases in their places; the channels of v lie by group, phase and number.
func (t *spread) interleaved(v *ir.Value, group int) *ir.Value {
	if t.s.err != nil {
		return v
	}
	rank := len(t.out)
	batch, each := v.Type.Shape[0], t.channels/group
	split, perm, whole := []int{batch}, []int{0}, []int{batch}
	for i, size := range t.out {
		split = append(split, t.positions(i, size))
		perm = append(perm, 1+i, 2+rank+i)
		whole = append(whole, t.positions(i, size)*t.strides[i])
	}
	split = slices.Concat(split, []int{group}, t.strides, []int{each})
	perm = append(perm, 1+rank, 2+2*rank)
	name := t.n.Name
	v = t.s.add("Transpose", name, ir.Attrs{"perm": perm}, t.reshape(v, split...))
	return t.cropped(t.reshape(v, append(whole, t.channels)...))
}

// cropped takes away positions of the last phases that lie outside.
func (t *spread) cropped(v *ir.Value) *ir.Value {
	if t.s.err != nil {
		return v
	}
	if sizes := slices.Concat(v.Type.Shape[:1], t.out, []int{t.channels}); !slices.Equal(v.Type.Shape, sizes) {
		v = t.s.add("Slice", t.n.Name, ir.Attrs{"starts": make([]int, len(sizes)), "sizes": sizes}, v)
	}
	return v
}
