package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// groupQueryAttention is com.microsoft.GroupQueryAttention: attention over keys and values that it writes into a
// cache [B,N,P,D], after the past ones. The length of each sample is data, but the total length must be known: it
// decides the size of the cache.
func groupQueryAttention(s *site) {
	s.refuseCacheFormats()
	q, k, v := s.queryGroups()
	total := s.knownInt(6, "total_sequence_length", 0)
	b, n := q.Type.Shape[0], q.Type.Shape[1]
	switch {
	case n < 1 || total < n:
		s.fail("total_sequence_length is %d, but %d tokens are new", total, n)
	case s.in(5).Type.Numel() != b:
		s.fail("seqlens_k is %v, want a number for each of %d samples", s.in(5).Type, b)
	case n > 1 && n < total && b > 1:
		s.refuse("compile it for a batch of 1", "several tokens after cached ones in a batch of %d are not supported", b)
	}
	end := s.op("Add", s.cast(s.reshape(s.in(5), b, 1), ir.Int64), s.scalar(ir.Int64, 1)) // [B,1]
	start := s.fill(ir.Int64, 0, b, 1)                                                    // of a prompt
	if n < total {
		start = s.op("Sub", end, s.scalar(ir.Int64, float64(n)))
	}
	if s.bool("do_rotary", false) {
		cos, sin := s.angles(7, s.cachePositions(start, n)), s.angles(8, s.cachePositions(start, n))
		s.fitting(cos, sin, q.Type.Shape[3])
		interleaved := s.bool("rotary_interleaved", false)
		q, k = s.rotated(q, cos, sin, interleaved), s.rotated(k, cos, sin, interleaved)
	}
	q, k, v = s.swapAxes(q, 1, 2), s.swapAxes(k, 1, 2), s.swapAxes(v, 1, 2)
	k, v = s.cached(3, k, start, total), s.cached(4, v, start, total)
	s.out(1, k)
	s.out(2, v)
	k, v = s.part(k, 2, 0, total), s.part(v, 2, 0, total)
	scale := s.float("scale", 0)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.Type.Shape[3]))
	}
	k, v, bias := s.withSink(k, v, s.cacheBias(start, end, n, total), q.Type.Shape[1])
	s.out(0, s.joinHeads(s.attend(q, k, v, bias, scale, s.float("softcap", 0), false)))
}

// refuseCacheFormats refuses what only other devices than the CPU have in ONNX Runtime.
func (s *site) refuseCacheFormats() {
	for _, name := range []string{"k_quant_type", "v_quant_type"} {
		if kind := s.string(name, "NONE"); kind != "NONE" && kind != "" {
			s.refuse("export it with a cache of floats", "%s=%q is not supported", name, kind)
		}
	}
	if s.bool("sliding_window_cache", false) {
		s.refuse("export it with a cache of all tokens", "sliding_window_cache is not supported")
	}
	for i, name := range []string{"k_scale", "v_scale", "q_norm_weight", "k_norm_weight"} {
		if s.opt(12+i) != nil {
			s.refuse("export it with nodes for that", "input %s is not supported", name)
		}
	}
}

// queryGroups returns queries [B,S,H,D] and keys and values [B,S,N,D], which may come in one input.
func (s *site) queryGroups() (q, k, v *ir.Value) {
	x := s.exactly(s.in(0), 3)
	heads, kv := s.int("num_heads", 0), s.int("kv_num_heads", 0)
	if heads < 1 || kv < 1 || heads%kv != 0 {
		s.fail("num_heads=%d is not a multiple of kv_num_heads=%d", heads, kv)
	}
	split := func(v *ir.Value, heads int) *ir.Value {
		shape := s.exactly(v, 3).Type.Shape
		if !slices.Equal(shape[:2], x.Type.Shape[:2]) || shape[2]%heads != 0 {
			s.fail("%d heads of %v do not fit a query %v", heads, v.Type, x.Type)
		}
		return s.reshape(v, shape[0], shape[1], heads, shape[2]/heads)
	}
	if s.opt(1) == nil && s.opt(2) == nil {
		all := split(x, heads+2*kv)
		return s.part(all, 2, 0, heads), s.part(all, 2, heads, kv), s.part(all, 2, heads+kv, kv)
	}
	q, k, v = split(x, heads), split(s.in(1), kv), split(s.in(2), kv)
	if !slices.Equal(k.Type.Shape, v.Type.Shape) || k.Type.Shape[3] != q.Type.Shape[3] {
		s.fail("queries %v, keys %v and values %v do not fit", q.Type, k.Type, v.Type)
	}
	return q, k, v
}

// cachePositions are the positions [B,S] of n new tokens: they follow the cached ones unless an input says otherwise.
// Of a prompt's positions ONNX Runtime takes the first one.
func (s *site) cachePositions(start *ir.Value, n int) *ir.Value {
	given := s.opt(9)
	if given == nil {
		return s.op("Add", start, s.iota(ir.Int64, n, 1, 2))
	}
	if !slices.Equal(given.Type.Shape, []int{start.Type.Shape[0], n}) {
		s.fail("position_ids are %v, want [%d %d]", given.Type, start.Type.Shape[0], n)
	}
	if start.IsConst() && n > 1 {
		first := s.part(s.part(given, 0, 0, 1), 1, 0, 1)
		return s.op("Add", s.op("Add", start, first), s.iota(ir.Int64, n, 1, 2))
	}
	return given
}

// angles are the rows of the table of cosines or sines, input i, of positions [B,S], as [B,S,1,R/2].
func (s *site) angles(i int, positions *ir.Value) *ir.Value {
	rows := s.add("Gather", ir.Attrs{"axis": 0}, s.exactly(s.in(i), 2), positions)
	return s.wide(s.unsqueeze(rows, 2))
}

// fitting fails unless cosines and sines fit heads of a width.
func (s *site) fitting(cos, sin *ir.Value, width int) {
	if !slices.Equal(cos.Type.Shape, sin.Type.Shape) || 2*cos.Type.Shape[3] > width {
		s.fail("tables of %d cosines and %d sines do not fit heads of %d", cos.Type.Shape[3], sin.Type.Shape[3], width)
	}
}

// cached is the cache [B,N,P,D], input i, which may be absent, with the new tokens [B,N,S,D] from each sample's start
// on, padded with zeros. It is as long as the old one, or as all tokens need.
func (s *site) cached(i int, fresh, start *ir.Value, total int) *ir.Value {
	shape := fresh.Type.Shape
	b, n := shape[0], shape[2]
	past := s.opt(i)
	if (s.opt(3) == nil) != (s.opt(4) == nil) {
		s.fail("past_key and past_value must be there both, or neither")
	}
	size := total
	if past != nil {
		p := s.exactly(past, 4).Type.Shape
		if p[0] != b || p[1] != shape[1] || p[3] != shape[3] || past.Type.DType != fresh.Type.DType {
			s.fail("input %d is %v, want a cache for %v", i, past.Type, fresh.Type)
		}
		size = max(total, p[2])
	}
	if n == total {
		return s.padEnd(fresh, 2, size-n, 0)
	}
	if past == nil {
		past = s.fill(fresh.Type.DType, 0, b, shape[1], size, shape[3])
	}
	past = s.padEnd(past, 2, size-past.Type.Shape[2], 0)
	start = s.reshape(start, b, 1, 1, 1)
	at := s.op("Sub", s.iota(ir.Int64, size, 2, 4), start) // the place among the new ones, [B,1,P,1]
	if n > 1 {                                             // and b is 1
		place := s.op("Min", s.op("Max", s.reshape(at, size), s.scalar(ir.Int64, 0)), s.scalar(ir.Int64, float64(n-1)))
		fresh = s.add("Gather", ir.Attrs{"axis": 2}, fresh, place)
	}
	isNew := s.op("Less", at, s.scalar(ir.Int64, float64(n)))
	y := s.where(isNew, fresh, s.scalar(fresh.Type.DType, 0))
	return s.where(s.op("Less", at, s.scalar(ir.Int64, 0)), past, y)
}

// cacheBias is what is added to the scores [B,H,S,T] of n queries after start: −∞ for keys from the end on, later than
// the query, or before its window, and the input attention_bias.
func (s *site) cacheBias(start, end *ir.Value, n, total int) *ir.Value {
	b := start.Type.Shape[0]
	key := s.iota(ir.Int64, total, 3, 4)
	query := s.op("Add", s.reshape(start, b, 1, 1, 1), s.iota(ir.Int64, n, 2, 4))
	allowed := s.op("Less", key, s.reshape(end, b, 1, 1, 1))
	window := s.int("local_window_size", -1)
	if s.bool("causal", true) {
		allowed = s.op("And", allowed, s.op("LessEqual", key, query))
	} else if window > 0 {
		s.fail("local_window_size=%d without a causal mask", window)
	}
	if window > 0 {
		allowed = s.op("And", allowed, s.op("Greater", key, s.op("Sub", query, s.scalar(ir.Int64, float64(window)))))
	}
	bias := s.mask(allowed, ir.Float32)
	if given := s.opt(10); given != nil {
		if s.exactly(given, 4).Type.Shape[3] != total {
			s.fail("attention_bias is %v, want %d keys", given.Type, total)
		}
		bias = s.op("Add", s.cast(given, ir.Float32), bias)
	}
	return bias
}

// withSink adds a key of zeros, with a value of zeros, where softmax has another term: of score 0 (smooth_softmax), or
// of one for each head (head_sink).
func (s *site) withSink(k, v, bias *ir.Value, heads int) (_, _, _ *ir.Value) {
	sink := s.opt(11)
	if sink == nil && !s.bool("smooth_softmax", false) {
		return k, v, bias
	}
	shape := slices.Clone(bias.Type.Shape)
	column := s.fill(ir.Float32, 0, shape[0], shape[1], shape[2], 1)
	if sink != nil {
		if s.exactly(sink, 1).Type.Shape[0] != heads {
			s.fail("head_sink is %v, want [%d]", sink.Type, heads)
		}
		shape[1] = heads
		bias = s.expand(bias, shape...)
		column = s.expand(s.reshape(s.cast(sink, ir.Float32), 1, heads, 1, 1), shape[0], heads, shape[2], 1)
	}
	return s.padEnd(k, 2, 1, 0), s.padEnd(v, 2, 1, 0), s.concat(3, bias, column)
}

// microsoftRotaryEmbedding is com.microsoft.RotaryEmbedding of [B,S,H·D] or [B,H,S,D]: position_ids are those of all
// tokens or that of the first one. Attribute scale does nothing, as in ONNX Runtime.
func microsoftRotaryEmbedding(s *site) {
	x, positions := s.in(0), s.in(1)
	heads, dim := s.int("num_heads", 0), s.int("rotary_embedding_dim", 0)
	cols := 2 * s.exactly(s.in(2), 2).Type.Shape[1]
	switch {
	case dim > 0 && dim != cols:
		s.fail("rotary_embedding_dim=%d, but the tables are for %d", dim, cols)
	case dim > 0 && heads < 1 && x.Type.Rank() == 3:
		s.fail("rotary_embedding_dim=%d without num_heads", dim)
	case dim == 0 && x.Type.Rank() == 3 && cols > 0:
		heads = x.Type.Shape[2] / cols
	}
	h := s.swapAxes(s.heads(x, heads), 1, 2) // [B,S,H,D]
	b, n := h.Type.Shape[0], h.Type.Shape[1]
	if positions.Type.Numel() == 1 && positions.Type.Rank() < 2 {
		first := s.cast(s.reshape(positions, 1, 1), ir.Int64)
		positions = s.expand(s.op("Add", first, s.iota(ir.Int64, n, 1, 2)), b, n)
	}
	if !slices.Equal(positions.Type.Shape, []int{b, n}) {
		s.fail("position_ids are %v, want [1] or [%d %d]", positions.Type, b, n)
	}
	cos, sin := s.angles(2, positions), s.angles(3, positions)
	s.fitting(cos, sin, h.Type.Shape[3])
	y := s.rotated(h, cos, sin, s.bool("interleaved", false))
	if x.Type.Rank() == 3 {
		s.out(0, s.reshape(y, x.Type.Shape...))
		return
	}
	s.out(0, s.swapAxes(y, 1, 2))
}
