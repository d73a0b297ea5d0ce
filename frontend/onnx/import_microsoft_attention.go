package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// packedAttention is com.microsoft.Attention: one product makes queries, keys and values of the input.
func packedAttention(s *site) {
	x := s.exactly(s.in(0), 3)
	qkv := s.op("MatMul", s.wide(x), s.wide(s.exactly(s.in(1), 2)))
	if bias := s.opt(2); bias != nil {
		qkv = s.op("Add", qkv, s.wide(bias))
	}
	s.need("num_heads")
	s.selfAttention(s.cast(qkv, x.Type.DType), s.opt(3), s.opt(4), s.opt(5))
}

// selfAttention sets the outputs of attention of [B,S,q+k+v] to itself; past is [2,B,H,P,D], and so is output 1 with
// the new keys and values.
func (s *site) selfAttention(qkv, mask, past, bias *ir.Value) {
	for _, name := range []string{"do_rotary", "past_present_share_buffer"} {
		if s.bool(name, false) {
			s.refuse("optimise it for the CPU, without that", "%s is not supported", name)
		}
	}
	total, heads := qkv.Type.Shape[2], s.int("num_heads", 0)
	sizes := s.ints("qkv_hidden_sizes")
	if sizes == nil {
		sizes = []int{total / 3, total / 3, total / 3}
	}
	if len(sizes) != 3 || sizes[0]+sizes[1]+sizes[2] != total {
		s.fail("qkv_hidden_sizes %v do not add up to %d", sizes, total)
	}
	q := s.heads(s.part(qkv, 2, 0, sizes[0]), heads)
	k := s.heads(s.part(qkv, 2, sizes[0], sizes[1]), heads)
	v := s.heads(s.part(qkv, 2, sizes[0]+sizes[1], sizes[2]), heads)
	cached := 0
	if past != nil {
		cached = s.exactly(past, 5).Type.Shape[3]
		k, v = s.concat(2, s.index(past, 0, 0), k), s.concat(2, s.index(past, 0, 1), v)
	}
	if s.wants(1) {
		s.out(1, s.concat(0, s.unsqueeze(k, 0), s.unsqueeze(v, 0)))
	}
	s.attention(q, k, v, mask, bias, cached)
}

// multiHeadAttention is com.microsoft.MultiHeadAttention: keys and values are [B,T,H·D], or those of a
// cross-attention, [B,H,T,D].
func multiHeadAttention(s *site) {
	s.need("num_heads")
	heads := s.int("num_heads", 0)
	q, k, v, bias := s.in(0), s.opt(1), s.opt(2), s.opt(3)
	for i := 8; i <= 9; i++ {
		if s.opt(i) != nil {
			s.refuse("optimise it without a shared buffer for past keys", "input %d is not supported", i)
		}
	}
	if k == nil || v == nil || q.Type.Rank() != 3 {
		s.refuse("optimise it for the CPU, which does not pack them", "keys and values that are packed with others are not supported")
	}
	if bias != nil {
		if k.Type.Rank() != 3 || v.Type.Rank() != 3 {
			s.refuse("add it in nodes of its own", "a bias for keys of rank 4 is not supported")
		}
		s.exactly(bias, 1)
		at := 0
		for _, x := range []**ir.Value{&q, &k, &v} {
			size := (*x).Type.Shape[2]
			if at+size > bias.Type.Shape[0] {
				s.fail("bias %v is shorter than queries, keys and values", bias.Type)
			}
			y := s.op("Add", s.wide(*x), s.wide(s.part(bias, 0, at, size)))
			*x, at = s.cast(y, (*x).Type.DType), at+size
		}
	}
	q, k, v = s.heads(q, heads), s.heads(k, heads), s.heads(v, heads)
	cached := 0
	if past := s.opt(6); past != nil {
		cached = s.exactly(past, 4).Type.Shape[2]
		k, v = s.concat(2, past, k), s.concat(2, s.exactly(s.in(7), 4), v)
	}
	s.out(1, k)
	s.out(2, v)
	s.attention(q, k, v, s.opt(4), s.opt(5), cached)
}

// attention sets output 0 to attention of [B,H,S,D] over keys of which the first cached ones are before the queries.
// mask and bias may be nil.
func (s *site) attention(q, k, v, mask, bias *ir.Value, cached int) {
	n, t := q.Type.Shape[2], k.Type.Shape[2]
	add := func(v *ir.Value) {
		if v = s.cast(v, ir.Float32); bias != nil {
			v = s.op("Add", s.cast(bias, ir.Float32), v)
		}
		bias = v
	}
	if mask != nil {
		add(s.keyMask(mask, k.Type.Shape[0], t))
	}
	causal := s.bool("unidirectional", false)
	if causal && cached > 0 {
		at := s.op("Add", s.iota(ir.Int64, n, 0, 2), s.scalar(ir.Int64, float64(cached)))
		add(s.mask(s.op("LessEqual", s.iota(ir.Int64, t, 1, 2), at), ir.Float32))
		causal = false
	}
	scale := s.float("scale", 0)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.Type.Shape[3]))
	}
	s.out(0, s.joinHeads(s.attend(q, k, v, bias, scale, 0, causal)))
}

// keyMask turns a mask into what is added to the scores [B,H,S,T]: mask_filter_value where a key is hidden. The mask
// is 0 there and 1 elsewhere, [B,T], [B,S,T] or [B,1,T',T'], or holds for each sample the end of its keys, [B], or
// all ends, then all starts, [2B].
func (s *site) keyMask(mask *ir.Value, batch, t int) *ir.Value {
	shape := mask.Type.Shape
	var keep *ir.Value
	switch {
	case len(shape) == 1 && (shape[0] == batch || shape[0] == 2*batch):
		key := s.iota(mask.Type.DType, t, 3, 4)
		keep = s.op("Less", key, s.reshape(s.part(mask, 0, 0, batch), batch, 1, 1, 1))
		if shape[0] == 2*batch {
			keep = s.op("And", keep, s.op("GreaterEqual", key, s.reshape(s.part(mask, 0, batch, batch), batch, 1, 1, 1)))
		}
	case len(shape) == 2 && slices.Equal(shape, []int{batch, t}), len(shape) == 3:
		keep = s.op("Greater", s.reshape(mask, slices.Concat(shape[:1], ones(4-len(shape)), shape[1:])...), s.like(mask, 0))
	default:
		s.refuse("give a mask for each key, [batch, keys]", "a mask of type %v for %d keys is not supported", mask.Type, t)
	}
	return s.where(keep, s.scalar(ir.Float32, 0), s.scalar(ir.Float32, s.float("mask_filter_value", -10000)))
}
