package ptx

import "cmp"

// compareRows: comparison and selection (PTX ISA 9.7.6, 9.7.7). The comparisons are false with a NaN, but neu and nan.
var compareRows = []row{
	{op: "setp.eq.$", types: "u32 s32 u64 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(equal)},
	{op: "setp.ne.$", types: "u32 s32 s64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | greater)},
	{op: "setp.lt.$", types: "u32 s32 u64 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less)},
	{op: "setp.le.$", types: "s32 s64 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | equal)},
	{op: "setp.gt.$", types: "u32 s32 f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(greater)},
	{op: "setp.ge.$", types: "u32 s32", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(greater | equal)},
	{op: "setp.neu.$", types: "f32 f64", args: "=pred $ $", since: v10, kind: KindInt, eval: compare(less | greater | unordered)},
	{op: "setp.nan.f64", args: "=pred f64 f64", since: v10, kind: KindInt, eval: compare(unordered)["f64"]},
	{op: "selp.$", args: "=$ $? $! pred", since: v10, kind: KindInt, eval: by{"b32": choose[uint32], "b64": choose[uint64], "f32": choose[uint32], "f64": choose[uint64]}},
}

// relation is a set of outcomes of a comparison.
type relation uint32

const (
	less relation = 1 << iota
	equal
	greater
	unordered
)

// compare holds where one of the outcomes comes about.
func compare(r relation) by {
	return by{"u32": compare32[uint32](r), "s32": compare32[int32](r), "f32": compare32[float32](r),
		"u64": compare64[uint64](r), "s64": compare64[int64](r), "f64": compare64[float64](r)}
}

func compare32[T lane](r relation) func(a, b *Row32) uint32 {
	return func(a, b *Row32) uint32 { return compareLanes(r, as[T](a), as[T](b)) }
}

func compare64[T lane](r relation) func(a, b *Row64) uint32 {
	return func(a, b *Row64) uint32 { return compareLanes(r, as[T](a), as[T](b)) }
}

func compareLanes[T cmp.Ordered](r relation, a, b *[32]T) uint32 {
	var lt, eq, gt uint32
	for l := range a {
		lt |= bit(a[l] < b[l]) << l
		eq |= bit(a[l] == b[l]) << l
		gt |= bit(a[l] > b[l]) << l
	}
	return lt&-uint32(r&1) | eq&-uint32(r>>1&1) | gt&-uint32(r>>2&1) | ^(lt|eq|gt)&-uint32(r>>3&1)
}

func bit(b bool) (v uint32) {
	if b {
		v = 1
	}
	return v
}

// choose takes a where the predicate is set, else b.
func choose[T integer](d, a, b *[32]T, p uint32) {
	for l := range d {
		k := -T(p >> l & 1)
		d[l] = a[l]&k | b[l]&^k
	}
}
