package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var attentionOperators = []operator{
	{name: "Attention", since: 23, convert: attention},
	{domain: "ai.onnx.preview", name: "FlexAttention", since: 1, convert: flexAttention},
	{name: "RotaryEmbedding", since: 23, convert: rotaryEmbedding},
	{name: "LinearAttention", since: 27, convert: linearAttention},
}

// attention converts Attention 23, 24 and 25. It is one op unless the scores are an output.
func attention(s *site) {
	packed := s.in(0).Type.Rank() == 3
	q := s.heads(s.in(0), s.int("q_num_heads", 0))
	k := s.heads(s.in(1), s.int("kv_num_heads", 0))
	v := s.heads(s.in(2), s.int("kv_num_heads", 0))
	past := 0
	if s.opt(4) != nil {
		past = s.exactly(s.in(4), 4).Type.Shape[2]
		k, v = s.concat(2, s.in(4), k), s.concat(2, s.exactly(s.in(5), 4), v)
	}
	s.out(1, k)
	s.out(2, v)

	scale := s.attentionScale(q)
	softcap := s.float("softcap", 0)
	bias, causal := s.attentionBias(q, k, past)
	var y *ir.Value
	if s.wants(3) {
		y = s.attentionScores(q, k, v, bias, scale, softcap, causal)
	} else {
		y = s.attend(q, k, v, bias, scale, softcap, causal)
	}
	if packed {
		y = s.joinHeads(y)
	}
	s.out(0, y)
}

// attend is the op Attention of queries, keys and values with dimensions batch, head, token, element.
func (s *site) attend(q, k, v, bias *ir.Value, scale, softcap float64, causal bool) *ir.Value {
	attrs := ir.Attrs{"scale": scale}
	if causal {
		attrs["causal"] = true
	}
	if softcap != 0 {
		attrs["softcap"] = softcap
	}
	return s.add("Attention", attrs, q, k, s.cast(v, q.Type.DType), bias)
}

// joinHeads turns [B,H,S,D] into [B,S,H·D].
func (s *site) joinHeads(y *ir.Value) *ir.Value {
	y = s.swapAxes(y, 1, 2)
	return s.reshape(y, y.Type.Shape[0], y.Type.Shape[1], y.Type.Shape[2]*y.Type.Shape[3])
}

// attentionScale is what products of queries and keys are multiplied by: attribute scale, or else 1/√D.
func (s *site) attentionScale(q *ir.Value) float64 {
	if s.hasAttr("scale") {
		return s.float("scale", 0)
	}
	return 1 / math.Sqrt(float64(q.Type.Shape[3]))
}

// heads turns [B,S,H·D] into [B,H,S,D].
func (s *site) heads(v *ir.Value, heads int) *ir.Value {
	if v.Type.Rank() != 3 {
		return s.exactly(v, 4)
	}
	b, n, width := v.Type.Shape[0], v.Type.Shape[1], v.Type.Shape[2]
	if heads < 1 || width%heads != 0 {
		s.fail("%d heads do not divide %v", heads, v.Type)
	}
	return s.swapAxes(s.reshape(v, b, n, heads, width/heads), 1, 2)
}

// attentionBias returns what is added to the scores, nil if nothing is: the mask, the sliding window, padding among
// the keys, and causality (query i sees keys j ≤ i) unless the op handles it. After cached keys, query i sees as many
// more; how many an external cache holds is an input.
func (s *site) attentionBias(q, k *ir.Value, past int) (bias *ir.Value, causal bool) {
	n, t := q.Type.Shape[2], k.Type.Shape[2]
	causal = s.bool("is_causal", false)
	left, right := s.int("left_window_size", -1), s.int("right_window_size", -1)
	nonpad := s.opt(6)

	if m := s.opt(3); m != nil {
		bias = s.additive(m, t)
	}
	if causal && past == 0 && nonpad == nil && left < 0 && right < 0 {
		return bias, true
	}
	key := s.iota(ir.Int64, t, 1, 2)   // [1,T]
	query := s.iota(ir.Int64, n, 0, 2) // [S,1]
	offset := s.scalar(ir.Int64, float64(past))
	var allowed *ir.Value
	allow := func(c *ir.Value) {
		if allowed != nil {
			c = s.op("And", allowed, c)
		}
		allowed = c
	}
	if nonpad != nil {
		count := s.reshape(nonpad, nonpad.Type.Numel(), 1, 1, 1)
		if s.opt(4) == nil {
			offset = s.op("Sub", count, s.scalar(ir.Int64, float64(n)))
		}
		allow(s.op("Less", key, count))
	}
	at := s.op("Add", query, offset) // the query's absolute position
	if causal {
		allow(s.op("LessEqual", key, at))
	}
	if left >= 0 {
		allow(s.op("GreaterEqual", key, s.op("Sub", at, s.scalar(ir.Int64, float64(left)))))
	}
	if right >= 0 {
		allow(s.op("LessEqual", key, s.op("Add", at, s.scalar(ir.Int64, float64(right)))))
	}
	if allowed == nil {
		return bias, false
	}
	hide := s.mask(allowed, ir.Float32)
	if bias == nil {
		return hide, false
	}
	return s.op("Add", s.cast(bias, ir.Float32), hide), false
}

// mask is what hides scores when added to them: 0 where allowed, else -∞.
func (s *site) mask(allowed *ir.Value, d ir.DType) *ir.Value {
	return s.where(allowed, s.scalar(d, 0), s.negInf(d))
}

// additive turns a mask into what is added to the scores of t keys: false becomes -∞, and so do the keys beyond a
// shorter mask.
func (s *site) additive(m *ir.Value, t int) *ir.Value {
	r := s.rank(m, 1)
	switch d := m.Type.DType; {
	case d == ir.Bool:
		m = s.mask(m, ir.Float32)
	case !d.IsFloat():
		m = s.cast(m, ir.Float32)
	}
	if have := m.Type.Shape[r-1]; have < t && have != 1 {
		m = s.padEnd(m, r-1, t-have, math.Inf(-1))
	}
	return m
}

// attentionScores expands attention and sets the output of the scores, at the stage that qk_matmul_output_mode selects.
func (s *site) attentionScores(q, k, v, bias *ir.Value, scale, softcap float64, causal bool) *ir.Value {
	d := q.Type.DType
	scores := s.scores(q, k, scale)
	stage := []*ir.Value{scores, nil, nil, nil}
	if softcap != 0 {
		c := s.like(scores, softcap)
		scores = s.op("Mul", s.op("Tanh", s.op("Div", scores, c)), c)
	}
	stage[1] = scores
	if causal {
		past := s.op("LessEqual", s.iota(ir.Int64, k.Type.Shape[2], 1, 2), s.iota(ir.Int64, q.Type.Shape[2], 0, 2))
		scores = s.op("Add", scores, s.mask(past, scores.Type.DType))
	}
	if bias != nil {
		scores = s.op("Add", scores, s.cast(bias, scores.Type.DType))
	}
	stage[2] = scores
	p := s.guardedSoftmax(scores)
	stage[3] = p
	mode := s.int("qk_matmul_output_mode", 0)
	if mode < 0 || mode > 3 {
		s.fail("qk_matmul_output_mode=%d, want 0 to 3", mode)
	}
	s.out(3, s.cast(stage[mode], d))
	return s.cast(s.mix(p, v), d)
}

// scores is q·kᵀ·scale in the wide type; heads of k serve groups of heads of q.
func (s *site) scores(q, k *ir.Value, scale float64) *ir.Value {
	x := s.add("MatMul", ir.Attrs{"transB": true}, s.wide(q), s.repeatHeads(s.wide(k), q.Type.Shape[1]))
	return s.op("Mul", x, s.like(x, scale))
}

// mix is p·v.
func (s *site) mix(p, v *ir.Value) *ir.Value {
	return s.op("MatMul", p, s.repeatHeads(s.cast(v, p.Type.DType), p.Type.Shape[1]))
}

func (s *site) repeatHeads(v *ir.Value, heads int) *ir.Value {
	b, h, t, d := v.Type.Shape[0], v.Type.Shape[1], v.Type.Shape[2], v.Type.Shape[3]
	if h == heads {
		return v
	}
	if h == 0 || heads%h != 0 {
		s.fail("%d heads of keys do not divide %d of queries", h, heads)
	}
	v = s.expand(s.reshape(v, b, h, 1, t, d), b, h, heads/h, t, d)
	return s.reshape(v, b, heads, t, d)
}

// guardedSoftmax is the softmax along the last dimension; rows in which every score is -∞ become 0.
func (s *site) guardedSoftmax(x *ir.Value) *ir.Value {
	last := x.Type.Rank() - 1
	top := s.reduce("ReduceMax", x, []int{last}, true)
	dead := s.op("Equal", top, s.negInf(x.Type.DType))
	p := s.add("Softmax", ir.Attrs{"axis": last}, s.where(dead, s.like(x, 0), x))
	return s.where(dead, s.like(x, 0), p)
}

// flexAttention is attention that applies graphs of the node to scores and probabilities.
func flexAttention(s *site) {
	q, k, v := s.exactly(s.in(0), 4), s.exactly(s.in(1), 4), s.exactly(s.in(2), 4)
	scale := s.attentionScale(q)
	precision := s.dtype("softmax_precision", wideType(q.Type.DType))
	modify := func(x *ir.Value, attr string) *ir.Value {
		g := s.graph(attr)
		if g == nil {
			return x
		}
		outs, err := s.im.subgraph(s.sc, g, nodeLabel(s.n)+"/"+attr, []*ir.Value{s.cast(x, precision)})
		s.check(err)
		if len(outs) != 1 || !slices.Equal(outs[0].Type.Shape, x.Type.Shape) {
			s.fail("%s must have one output of its input's shape", attr)
		}
		return s.cast(outs[0], x.Type.DType)
	}
	x := modify(s.scores(q, k, scale), "score_mod")
	p := modify(s.add("Softmax", ir.Attrs{"axis": 3}, x), "prob_mod")
	s.out(0, s.cast(s.mix(p, v), q.Type.DType))
}

// rotaryEmbedding rotates pairs of elements of every head by the angle of the token's position.
func rotaryEmbedding(s *site) {
	x := s.in(0)
	packed := x.Type.Rank() == 3
	h := s.swapAxes(s.heads(x, s.int("num_heads", 0)), 1, 2) // [B,S,H,D]
	b, n, width := h.Type.Shape[0], h.Type.Shape[1], h.Type.Shape[3]
	dim := s.int("rotary_embedding_dim", 0)
	if dim == 0 {
		dim = width
	}
	if dim > width || dim%2 != 0 {
		s.fail("rotary_embedding_dim=%d does not fit heads of %d", dim, width)
	}
	cache := func(i int) *ir.Value {
		c := s.in(i)
		if s.opt(3) != nil {
			c = s.add("Gather", ir.Attrs{"axis": 0}, c, s.in(3))
		}
		if r := c.Type.Rank(); r != 3 || c.Type.Shape[2] != dim/2 {
			s.fail("input %d is %v at the tokens' positions, want [%d,%d,%d]", i, c.Type, b, n, dim/2)
		}
		return s.wide(s.unsqueeze(c, 2))
	}
	y := s.rotated(h, cache(1), cache(2), s.bool("interleaved", false))
	if packed {
		s.out(0, s.reshape(y, x.Type.Shape...))
		return
	}
	s.out(0, s.swapAxes(y, 1, 2))
}

// rotated turns pairs of the first elements of heads [B,S,H,D] by angles whose cosines and sines are [B,S,1,R/2],
// with R at most D: elements 2i and 2i+1 of interleaved pairs, else i and i+R/2.
func (s *site) rotated(h, cos, sin *ir.Value, interleaved bool) *ir.Value {
	width, dim := h.Type.Shape[3], 2*cos.Type.Shape[3]
	turn := s.wide(s.part(h, 3, 0, dim))
	var x1, x2, y *ir.Value
	if interleaved {
		pairs := s.reshape(turn, append(slices.Clone(turn.Type.Shape[:3]), dim/2, 2)...)
		x1, x2 = s.index(pairs, 4, 0), s.index(pairs, 4, 1)
	} else {
		x1, x2 = s.part(turn, 3, 0, dim/2), s.part(turn, 3, dim/2, dim/2)
	}
	re, im := s.eval("x*y - z*u", cos, x1, sin, x2), s.eval("x*y + z*u", sin, x1, cos, x2)
	if interleaved {
		y = s.reshape(s.concat(4, s.unsqueeze(re, 4), s.unsqueeze(im, 4)), turn.Type.Shape...)
	} else {
		y = s.concat(3, re, im)
	}
	y = s.cast(y, h.Type.DType)
	if dim < width {
		y = s.concat(3, y, s.part(h, 3, dim, width-dim))
	}
	return y
}

// linearAttention unrolls the recurrence over the tokens, in the wide type.
func linearAttention(s *site) {
	rule := s.choice("update_rule", "gated_delta", "linear", "gated", "delta")
	hq, hkv := s.int("q_num_heads", 0), s.int("kv_num_heads", 0)
	x := s.in(0)
	if hq < 1 || hkv < 1 || hq%hkv != 0 {
		s.fail("q_num_heads=%d is not a multiple of kv_num_heads=%d", hq, hkv)
	}
	q := s.wide(s.heads(x, hq)) // [B,Hq,T,dk]
	k, v := s.wide(s.heads(s.in(1), hkv)), s.wide(s.heads(s.in(2), hkv))
	b, steps, dk, dv := q.Type.Shape[0], q.Type.Shape[2], q.Type.Shape[3], v.Type.Shape[3]
	if steps > s.im.opt.MaxUnroll {
		s.refuse("compile it for fewer tokens, with --shape or a step at a time", "%d tokens: the recurrence is unrolled over at most %d", steps, s.im.opt.MaxUnroll)
	}
	scale := s.float("scale", 0)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(dk))
	}
	stateType := x.Type.DType
	state := s.fill(q.Type.DType, 0, b, hkv, dk, dv)
	if past := s.opt(3); past != nil {
		stateType, state = past.Type.DType, s.wide(past)
	}
	// gate i of a token as [B,Hkv,·,1], to be broadcast over the state
	gate := func(i int) *ir.Value {
		g := s.exactly(s.in(i), 3)
		if g.Type.Shape[2] == 1 {
			return s.swapAxes(s.reshape(s.wide(g), b, steps, 1, 1), 1, 2)
		}
		return s.heads(s.wide(g), hkv)
	}
	var decay, beta *ir.Value
	if rule == "gated" || rule == "gated_delta" {
		decay = s.op("Exp", gate(4))
	}
	if rule == "delta" || rule == "gated_delta" {
		beta = gate(5)
	}
	q = s.reshape(q, b, hkv, hq/hkv, steps, dk)
	var outs []*ir.Value
	for t := range steps {
		kt, vt := s.part(k, 2, t, 1), s.part(v, 2, t, 1) // [B,Hkv,1,d]
		if decay != nil {
			state = s.op("Mul", state, s.swapAxes(s.part(decay, 2, t, 1), 2, 3))
		}
		if beta != nil {
			vt = s.op("Mul", s.part(beta, 2, t, 1), s.op("Sub", vt, s.op("MatMul", kt, state)))
		}
		state = s.op("Add", state, s.op("Mul", s.swapAxes(kt, 2, 3), vt))
		qt := s.index(q, 3, t) // [B,Hkv,G,dk]
		y := s.op("MatMul", qt, state)
		outs = append(outs, s.reshape(s.op("Mul", y, s.like(y, scale)), b, 1, hq*dv))
	}
	if len(outs) == 0 {
		s.fail("query is %v: no tokens", x.Type)
	}
	s.out(0, s.cast(s.concat(1, outs...), x.Type.DType))
	s.out(1, s.cast(state, stateType))
}
