package ir

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
)

func sigmoidOf(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// One unit, one input: the equations of ONNX GRU 14 written out.
func TestGRUOfOneUnit(t *testing.T) {
	x := f64([]int{2, 1, 1}, 0.5, -1)
	w, r := f64([]int{1, 3, 1}, 0.1, 0.2, 0.3), f64([]int{1, 3, 1}, 0.4, 0.5, 0.6)
	b := f64([]int{1, 6}, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
	h0 := f64([]int{1, 1, 1}, 0.7)
	for _, linear := range []bool{false, true} {
		h := 0.7
		var want []float64
		for _, v := range x.F {
			z := sigmoidOf(0.1*v + 0.4*h + 0.01 + 0.04)
			g := sigmoidOf(0.2*v + 0.5*h + 0.02 + 0.05)
			n := math.Tanh(0.3*v + 0.03 + 0.6*(g*h) + 0.06)
			if linear {
				n = math.Tanh(0.3*v + 0.03 + g*(0.6*h+0.06))
			}
			h = (1-z)*n + z*h
			want = append(want, h)
		}
		out := apply(t, "GRU", Attrs{"linear_before_reset": linear}, x, w, r, b, nil, h0)
		assert.InDeltaSlice(t, want, out[0].F, 1e-15)
		assert.Equal(t, out[0].F[1:], out[1].F)
	}
}

func TestLSTMOfOneUnitWithPeepholes(t *testing.T) {
	x := f64([]int{2, 1, 1}, 0.5, -1)
	w, r := f64([]int{1, 4, 1}, 0.1, 0.2, 0.3, 0.4), f64([]int{1, 4, 1}, 0.5, 0.6, 0.7, 0.8)
	h0, c0, p := f64([]int{1, 1, 1}, 0.2), f64([]int{1, 1, 1}, 0.3), f64([]int{1, 3}, 0.11, 0.12, 0.13)
	for _, attrs := range []Attrs{nil, {"input_forget": true}, {"clip": 0.25}} {
		gate := func(x float64) float64 {
			if limit := attrs.Float("clip", 0); limit > 0 {
				return min(max(x, -limit), limit)
			}
			return x
		}
		h, c := 0.2, 0.3
		var want []float64
		for _, v := range x.F {
			i := sigmoidOf(gate(0.1*v + 0.5*h + 0.11*c))
			f := sigmoidOf(gate(0.3*v + 0.7*h + 0.13*c))
			if attrs.Bool("input_forget") {
				f = 1 - i
			}
			g := math.Tanh(gate(0.4*v + 0.8*h))
			c = f*c + i*g
			h = sigmoidOf(gate(0.2*v+0.6*h+0.12*c)) * math.Tanh(c)
			want = append(want, h)
		}
		out := apply(t, "LSTM", attrs, x, w, r, nil, nil, h0, c0, p)
		assert.InDeltaSlice(t, want, out[0].F, 1e-15, "%v", attrs)
		assert.InDelta(t, c, out[2].F[0], 1e-15, "%v", attrs)
	}
}

func TestRecurrentDirectionsAndLengths(t *testing.T) {
	// A linear unit h = x + h sums its sequence.
	x := f64([]int{3, 2, 1}, 1, 10, 2, 20, 4, 40)
	ones := f64([]int{2, 1, 1}, 1, 1)
	attrs := Attrs{"direction": "bidirectional", "activations": []string{"Affine", "affine"}}
	out := apply(t, "RNN", attrs, x, ones, ones, nil, ints64(Int32, 3, 2))
	// y is [time, direction, batch, 1]; the second sequence ends after two steps.
	assert.Equal(t, []float64{1, 10, 7, 30, 3, 30, 6, 20, 7, 0, 4, 0}, out[0].F)
	assert.Equal(t, []float64{7, 30, 7, 30}, out[1].F)
	attrs["clip"] = 5.0
	out = apply(t, "RNN", attrs, x, ones, ones)
	assert.Equal(t, []float64{5, 5, 5, 5}, out[1].F)
}

func TestActivations(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name           string
		alpha, beta, x float64
		want           float64
	}{
		{"Relu", nan, nan, -1, 0}, {"Affine", 2, 3, 4, 11}, {"LeakyRelu", nan, nan, -1, -0.01}, {"ThresholdedRelu", nan, nan, 0.5, 0},
		{"ThresholdedRelu", 0.1, nan, 0.5, 0.5}, {"ScaledTanh", 2, 3, 1, 2 * math.Tanh(3)}, {"HardSigmoid", nan, nan, 1, 0.7},
		{"Elu", nan, nan, -1, math.Expm1(-1)}, {"Softsign", nan, nan, -3, -0.75}, {"Softplus", nan, nan, 800, 800}, {"Softplus", nan, nan, 0, math.Ln2},
	} {
		attrs := Attrs{"activations": []string{c.name}}
		if !math.IsNaN(c.alpha) {
			attrs["alpha"] = []float64{c.alpha}
		}
		if !math.IsNaN(c.beta) {
			attrs["beta"] = []float64{c.beta}
		}
		one := f64([]int{1, 1, 1}, 1)
		assert.InDelta(t, c.want, apply(t, "RNN", attrs, f64([]int{1, 1, 1}, c.x), one, one)[0].F[0], 1e-14, "%+v", c)
	}
}

func TestAttentionIsSoftmaxOfScores(t *testing.T) {
	rng := rand.New(rand.NewSource(11))
	q, k, v := random(rng, 2, 4, 3, 8), random(rng, 2, 2, 5, 8), random(rng, 2, 2, 5, 6)
	mask := random(rng, 3, 5)
	got := apply(t, "Attention", Attrs{"scale": 0.3}, q, k, v, mask)[0]
	// Heads 0 and 1 share the first key head, 2 and 3 the second.
	shared := func(a *Array) *Array {
		five := apply(t, "Reshape", Attrs{"shape": []int{2, 2, 1, a.Shape[2], a.Shape[3]}}, a)[0]
		wide := apply(t, "Expand", Attrs{"shape": []int{2, 2, 2, a.Shape[2], a.Shape[3]}}, five)[0]
		return apply(t, "Reshape", Attrs{"shape": []int{2, 4, a.Shape[2], a.Shape[3]}}, wide)[0]
	}
	scores := apply(t, "MatMul", Attrs{"transB": true}, q, shared(k))[0]
	scores = apply(t, "Mul", nil, scores, f64(nil, 0.3))[0]
	scores = apply(t, "Add", nil, scores, mask)[0]
	weights := apply(t, "Softmax", Attrs{"axis": 3}, scores)[0]
	want := apply(t, "MatMul", nil, weights, shared(v))[0]
	assert.InDeltaSlice(t, want.F, got.F, 1e-14)

	causal := apply(t, "Attention", Attrs{"scale": 1.0, "causal": true}, q, k, v)[0]
	assert.InDeltaSlice(t, v.F[:6], causal.F[:6], 1e-15, "the first query sees the first key only")
}

func TestNormalisations(t *testing.T) {
	x := f64([]int{2, 2}, 1, 3, 0, 4)
	scale, bias := f64([]int{2}, 2, 10), f64([]int{2}, 1, 1)
	assert.InDeltaSlice(t, []float64{-1, 11, -1, 11}, apply(t, "LayerNorm", Attrs{"axis": 1, "epsilon": 0.0}, x, scale, bias)[0].F, 1e-15)
	assert.InDeltaSlice(t, []float64{0, math.Sqrt2}, apply(t, "RMSNorm", Attrs{"axis": 1, "epsilon": 0.0}, x)[0].F[2:], 1e-15)
	bn := apply(t, "BatchNorm", Attrs{"epsilon": 0.0}, x, scale, bias, f64([]int{2}, 1, 1), f64([]int{2}, 4, 25))[0]
	assert.InDeltaSlice(t, []float64{1, 5, 0, 7}, bn.F, 1e-15)
}

func TestResizeModes(t *testing.T) {
	x := f64([]int{4}, 1, 2, 3, 4)
	resize := func(size int, scale float64, extra Attrs) []float64 {
		a := Attrs{"sizes": []int{size}, "scales": []float64{scale}}
		for k, v := range extra {
			a[k] = v
		}
		return apply(t, "Resize", a, x)[0].F
	}
	assert.Equal(t, []float64{1, 1, 2, 2, 3, 3, 4, 4}, resize(8, 2, nil))
	assert.Equal(t, []float64{1, 1, 2, 2, 3, 3, 4, 4}, resize(8, 2, Attrs{"coordinate": "asymmetric", "nearest": "floor"}))
	assert.InDeltaSlice(t, []float64{1, 2.5, 4}, resize(3, 0.75, Attrs{"mode": "linear", "coordinate": "align_corners"}), 1e-15)
	assert.InDeltaSlice(t, []float64{2.5, 0, 0}, resize(3, 0.75, Attrs{"mode": "linear", "coordinate": "tf_crop_and_resize", "roi": []float64{0.5, 2}, "extrapolation": 0.0}), 1e-15)
	// Halving with antialias weighs 1/8, 3/8, 3/8, 1/8 around each centre; the ends repeat the edge.
	assert.InDeltaSlice(t, []float64{(1 + 3*1 + 3*2 + 3) / 8.0, (2 + 3*3 + 3*4 + 4) / 8.0}, resize(2, 0.5, Attrs{"mode": "linear", "antialias": true}), 1e-15)
	assert.InDeltaSlice(t, []float64{(3*1 + 3*2 + 3) / 7.0, (2 + 3*3 + 3*4) / 7.0}, resize(2, 0.5, Attrs{"mode": "linear", "antialias": true, "exclude_outside": true}), 1e-15)
	// Cubic interpolation reproduces what it is given at integer positions and preserves constants.
	assert.Equal(t, x.F, resize(4, 1, Attrs{"mode": "cubic"}))
	x = f64([]int{4}, 5, 5, 5, 5)
	for _, v := range resize(7, 1.75, Attrs{"mode": "cubic"}) {
		assert.InDelta(t, 5, v, 1e-14)
	}
}

func TestGridSamplePadding(t *testing.T) {
	x := f64([]int{1, 1, 1, 2}, 1, 3)
	sample := func(gx float64, a Attrs) float64 {
		return apply(t, "GridSample", a, x, f64([]int{1, 1, 1, 2}, gx, 0))[0].F[0]
	}
	assert.Equal(t, 2.0, sample(0, nil), "half way between the two pixels")
	assert.Equal(t, 0.5, sample(-1, nil), "half a pixel outside: half is zero")
	assert.Equal(t, 1.0, sample(-1, Attrs{"padding": "border"}))
	assert.Equal(t, 1.0, sample(-1, Attrs{"align_corners": true}))
	assert.Equal(t, 3.0, sample(1.5, Attrs{"padding": "reflection"}), "three quarters of a pixel past the edge, and back")
	assert.Equal(t, 3.0, sample(0.4, Attrs{"mode": "nearest"}))
}

// TestRoiAlignWeights_SumSamples holds the weights of an axis to a sum over all samples of each bin, in float64.
func TestRoiAlignWeights_SumSamples(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 2000 {
		bins, size, ratio := 1+rng.Intn(5), 1+rng.Intn(12), rng.Intn(3)
		half, vertical := rng.Intn(2) == 0, rng.Intn(2) == 0
		from := float64(rng.Intn(160)-80) / 4
		to := from + float64(rng.Intn(32*bins)-8)/4
		if rng.Intn(3) == 0 {
			to += rng.Float64()
		}
		box, offset, corner := []float64{99, 99, -99, -99}, 0.0, 0
		if vertical {
			corner = 1
		}
		if half {
			offset = 0.5
		}
		box[corner], box[corner+2] = 2*from, 2*to
		length := to - from
		if !half {
			length = max(length, 1)
		}
		bin := length / float64(bins)
		samples := ratio
		if ratio == 0 {
			samples = int(math.Ceil(bin))
		}
		want := make([]float64, bins*size)
		for k := range bins * max(samples, 0) {
			p, i := k/samples, k%samples
			y := from - offset + float64(p)*bin + (float64(i)+0.5)*bin/float64(samples)
			if y < -1 || y > float64(size) {
				continue
			}
			y = min(max(y, 0), float64(size-1))
			low := int(y)
			want[p*size+low] += (1 - y + float64(low)) / float64(samples)
			if low+1 < size {
				want[p*size+low+1] += (y - float64(low)) / float64(samples)
			}
		}
		attrs := Attrs{"bins": bins, "size": size, "vertical": vertical, "half_pixel": half, "sampling_ratio": ratio, "scale": 0.5}
		got := apply(t, "RoiAlignWeights", attrs, f64([]int{1, 4}, box...))[0]
		if !assert.InDeltaSlice(t, want, got.F, 1e-12, "%v %v", attrs, box) {
			return
		}
	}
}

func TestRoiAlignOfAPlane(t *testing.T) {
	// On a linear ramp bilinear samples are exact: the average of a bin is the value at its centre.
	x := NewArray(T(Float64, 1, 1, 8, 8))
	for i := range x.F {
		x.F[i] = float64(i%8) + 10*float64(i/8)
	}
	attrs := Attrs{"height": 2, "width": 1, "sampling_ratio": 2}
	out := apply(t, "RoiAlign", attrs, x, f64([]int{1, 4}, 2, 2, 6, 6), ints64(Int64, 0))[0]
	assert.InDeltaSlice(t, []float64{3.5 + 25, 3.5 + 45}, out.F, 1e-13)
}

func TestScatterND(t *testing.T) {
	x := f64([]int{2, 2}, 1, 2, 3, 4)
	idx := &Array{Type: T(Int64, 2, 1), I: []int64{-1, -1}}
	u := f64([]int{2, 2}, 10, 20, 5, 50)
	assert.Equal(t, []float64{1, 2, 5, 50}, apply(t, "ScatterND", nil, x, idx, u)[0].F)
	assert.Equal(t, []float64{1, 2, 10, 50}, apply(t, "ScatterND", Attrs{"reduction": "max"}, x, idx, u)[0].F)
	got := apply(t, "GatherND", Attrs{"batch_dims": 1}, x, &Array{Type: T(Int64, 2, 1), I: []int64{1, 0}})[0]
	assert.Equal(t, []float64{2, 3}, got.F)
}

// Sequences of length 0 have no last state: zero, as in ONNX Runtime, instead of the initial one. The others keep
// theirs.
func TestRecurrent_EmptySequencesEndInZero(t *testing.T) {
	x, lengths := f64([]int{2, 2, 1}, 0.5, -1, 0.25, 2), ints64(Int32, 2, 0)
	for _, direction := range []string{"forward", "reverse", "bidirectional"} {
		dirs := 1
		if direction == "bidirectional" {
			dirs = 2
		}
		fill := func(v float64, shape ...int) *Array {
			a := NewArray(T(Float64, shape...))
			for i := range a.F {
				a.F[i] = v
			}
			return a
		}
		h0 := fill(0.7, dirs, 2, 1)
		attrs := Attrs{"direction": direction}
		gru := apply(t, "GRU", attrs, x, fill(0.1, dirs, 3, 1), fill(0.2, dirs, 3, 1), nil, lengths, h0)
		lstm := apply(t, "LSTM", attrs, x, fill(0.1, dirs, 4, 1), fill(0.2, dirs, 4, 1), nil, lengths, h0, h0)
		for _, last := range [][]float64{gru[1].F, lstm[1].F, lstm[2].F} {
			for d := range dirs {
				assert.NotZero(t, last[2*d], direction)
				assert.Zero(t, last[2*d+1], direction)
			}
		}
		rnn := apply(t, "RNN", attrs, x, fill(0.1, dirs, 1, 1), fill(0.2, dirs, 1, 1), nil, lengths, h0)
		assert.Equal(t, 0.7, rnn[1].F[1], direction)
	}
}
